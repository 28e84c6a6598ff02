"""File operations that a run's crash safety depends on, one function each.

A checkpoint survives a full disk or a kill at any moment only if these are called in the right order. Each of them
first calls `before`, which the fault harness replaces by an error or a SIGKILL, at every call in turn.
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
    """Do nothing. Called before each file operation; the fault harness replaces it."""


def write(path: Path, content: bytes) -> None:
    """Write a new file and sync it to disk."""
    before("open", path)
    with open(path, "wb") as file:
        for start in range(0, len(content), CHUNK):
            before("write", path)
            file.write(content[start : start + CHUNK])
        file.flush()
        before("sync", path)
        os.fsync(file.fileno())


def replace(source: Path, target: Path) -> None:
    """Rename `source` to `target` atomically, replacing a file that exists."""
    before("rename", target)
    os.replace(source, target)


def link_backup(path: Path, other: Path) -> None:
    """Link a file as `other`, so that replacing `path` does not lose it."""
    if not _link(path, other):
        os.replace(path, other)  # without hard links: `path` is missing for a moment


def link_copy(path: Path, other: Path) -> None:
    """Link a file as `other`, replacing what was there; copy it if the file system has no hard links."""
    if not _link(path, other):
        write(_temporary(other), path.read_bytes())
        replace(_temporary(other), other)


def _link(path: Path, other: Path) -> bool:
    """Make `other` a hard link to `path` atomically; return False if the file system has no hard links."""
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
    """Sync a file, or a folder's list of names, to disk."""
    before("sync", path)
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file if it exists."""
    before("remove", path)
    path.unlink(missing_ok=True)


def cut(path: Path, length: int) -> None:
    """Cut a log off after its first `length` bytes."""
    before("cut", path)
    os.truncate(path, length)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a run's folder against other processes. The kernel releases the lock when this process ends, however."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"Another process is training in {folder}: wait for it, or give another folder.") from None
        except OSError as error:
            logger.warning("%s cannot be locked (%s): make sure that only one process uses it", folder, error.strerror)
        yield
    finally:
        os.close(handle)
