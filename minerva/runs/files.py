"""Every change of a file that a run's safety rests on, one function each.

A checkpoint survives a full disk or a kill at any moment only if these are called in the right order. `before` is
called ahead of each of them: the fault harness puts an error or a SIGKILL in its place, at every one in turn.
"""

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from minerva.errors import RunError

logger = logging.getLogger("minerva")

CHUNK = 1 << 24
"""Bytes written at once."""


def before(operation: str, path: Path) -> None:
    """Called before each operation on a file; does nothing."""


def write(path: Path, content: bytes) -> None:
    """Write a new file and wait until the disk has it."""
    before("open", path)
    with open(path, "wb") as file:
        for start in range(0, len(content), CHUNK):
            before("write", path)
            file.write(content[start : start + CHUNK])
        file.flush()
        before("sync", path)
        os.fsync(file.fileno())


def replace(source: Path, target: Path) -> None:
    """Rename, in one step, also over a file that exists."""
    before("rename", target)
    os.replace(source, target)


def link_backup(path: Path, other: Path) -> None:
    """Give a file a second name, so that replacing it under its first does not lose it."""
    if not _link(path, other):
        os.replace(path, other)  # without hard links: for a moment there is only the other


def link_copy(path: Path, other: Path) -> None:
    """Give a file a second name, which another file may have had; copy it where there are no hard links."""
    if not _link(path, other):
        write(_temporary(other), path.read_bytes())
        replace(_temporary(other), other)


def _link(path: Path, other: Path) -> bool:
    """Make `other` a hard link to `path`, in one step; return False if the file system has none."""
    before("link", other)
    temporary = _temporary(other)
    temporary.unlink(missing_ok=True)
    try:
        os.link(path, temporary)
    except OSError:
        return False
    replace(temporary, other)
    return True


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def sync(path: Path) -> None:
    """Wait until the disk has a file, or a folder's list of names."""
    before("sync", path)
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file, if it is there."""
    before("remove", path)
    path.unlink(missing_ok=True)


def cut(path: Path, length: int) -> None:
    """Forget what a log holds after its first `length` bytes."""
    before("cut", path)
    os.truncate(path, length)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep every other process out of a run's folder; the kernel ends it with this process, however that ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"Another process is training in {folder}: wait for it, or give another folder.") from None
        except OSError as error:
            logger.warning("%s cannot be locked (%s): see to it that one process only uses it", folder, error.strerror)
        yield
    finally:
        os.close(handle)
