"""Ray itself: found, started or joined."""

import importlib
import importlib.util
from typing import Any

from minerva.errors import ConfigError

OBJECTS = 200 << 20
"""Bytes for objects that tasks share, where Ray is started here: commands and numbers are all that is sent."""


def ray(address: str | None = None) -> Any:
    """The package, connected: to the cluster at `address`, or to this machine, on which it is then started."""
    package = imported()
    if not package.is_initialized():
        started: dict[str, Any] = {} if address else {"include_dashboard": False, "object_store_memory": OBJECTS}
        try:
            package.init(address or "local", logging_level="error", log_to_driver=False, **started)
        except (ConnectionError, RuntimeError, ValueError, AssertionError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ConfigError(
                f"Ray at {address or 'this machine'} cannot be reached ({reason}): give the address that `ray start` "
                "printed, and in RAY_AUTH_TOKEN_PATH the file with its token."
            ) from None
    return package


def imported() -> Any:
    """The package, or a ConfigError that says how to get it."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("This needs Ray, which is not installed: pip install 'minerva[cluster]'.")
    return importlib.import_module("ray")
