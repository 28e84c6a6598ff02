"""Import Ray, and start it or connect to a cluster."""

import contextlib
import importlib
import importlib.util
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from minerva.errors import ConfigError, pip_install
from minerva.lab.benchmark.files import is_locked

OBJECTS = 200 << 20
"""Bytes of Ray's object store if it is started on this machine: only commands and numbers are sent."""
RELEASE = 60.0
"""Seconds to wait for the folders of runs: on a disconnected node a run may still be closing them."""


def ray(address: str | None = None) -> Any:
    """Return the package `ray`, connected to the cluster at `address`, or started on this machine if that is None."""
    package = imported()
    if not package.is_initialized():
        started: dict[str, Any] = {} if address else {"include_dashboard": False, "object_store_memory": OBJECTS}
        try:
            with _restored_signals():
                package.init(address or "local", logging_level="error", log_to_driver=False, **started)
        except (ConnectionError, RuntimeError, ValueError, AssertionError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ConfigError(
                f"Ray at {address or 'this machine'} cannot be reached ({reason}): give the address that `ray start` "
                "printed, and in RAY_AUTH_TOKEN_PATH the file with its token."
            ) from None
    return package


def imported() -> Any:
    """Return the package `ray`, or raise ConfigError with the command that installs it."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(f"This needs Ray, which is not installed: {pip_install('cluster')}.")
    return importlib.import_module("ray")


def wait_until_released(folders: Sequence[Path]) -> None:
    """Wait until no process is training in these run folders any more."""
    deadline = time.monotonic() + RELEASE
    while any(map(is_locked, folders)) and time.monotonic() < deadline:
        time.sleep(0.2)


@contextlib.contextmanager
def _restored_signals() -> Iterator[None]:
    """Restore the signal handlers at the end of a `with` block: Ray replaces SIGTERM's by one that aborts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
