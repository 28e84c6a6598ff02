"""One machine for all workers' Rays: a lock that they share, and that a test which must be alone holds by itself."""

import contextlib
import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

LOCK = Path(tempfile.gettempdir()) / f"minerva_tests_ray_{os.getuid()}"
ENDING = 60.0
"""Seconds that Ray's processes may take to end after their driver's `shutdown`."""


@contextlib.contextmanager
def room_for_ray(alone: bool = False) -> Iterator[None]:
    """Let a `with` block start a Ray, which is shut down in the end; with `alone` there is no other meanwhile."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        if alone:
            _wait_until_none_is_left()
        try:
            yield
        finally:
            if "ray" in sys.modules:  # a command that was run in this process leaves its Ray to the process's end
                sys.modules["ray"].shutdown()


def _wait_until_none_is_left() -> None:
    from ray._private.services import find_gcs_addresses

    deadline = time.monotonic() + ENDING
    while (found := find_gcs_addresses()) and time.monotonic() < deadline:
        find_gcs_addresses.cache_clear()
        time.sleep(0.5)
    assert not found, f"a Ray that no test holds is running on this machine, at {found}: `ray stop`"
