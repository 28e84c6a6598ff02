"""Ray itself: found, started or joined."""

import contextlib
import importlib
import importlib.util
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from minerva.errors import ConfigError
from minerva.lab.benchmark.files import is_locked

OBJECTS = 200 << 20
"""Bytes for objects that tasks share, where Ray is started here: commands and numbers are all that is sent."""
RELEASE = 60.0
"""Seconds to wait for the folders of runs: on a node that was cut off they may still be being closed."""


def ray(address: str | None = None) -> Any:
    """The package, connected: to the cluster at `address`, or to this machine, on which it is then started."""
    package = imported()
    if not package.is_initialized():
        started: dict[str, Any] = {} if address else {"include_dashboard": False, "object_store_memory": OBJECTS}
        try:
            with _own_signals():
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
        raise ConfigError("This needs Ray, which is not installed: pip install -e '.[cluster]'.")
    return importlib.import_module("ray")


def wait_until_released(folders: Sequence[Path]) -> None:
    """Until no process is training in these runs' folders any more."""
    deadline = time.monotonic() + RELEASE
    while any(map(is_locked, folders)) and time.monotonic() < deadline:
        time.sleep(0.2)


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes over SIGTERM, and aborts at it; inside, it may, and afterwards signals are heeded as before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
