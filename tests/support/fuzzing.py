"""Give a reader one input after the other, and see that each is read or refused, and nothing else happens."""

import hashlib
import os
import random
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from minerva.errors import MinervaError

SECONDS = float(os.environ.get("MINERVA_FUZZ_SECONDS", "2"))
"""CPU time for which each reader is tried; the inputs are the same, however long."""
SEED = int(os.environ.get("MINERVA_FUZZ_SEED", "0"))
FOUND = Path(__file__).parents[2] / "build" / "fuzz"
"""Where an input that is neither read nor refused is kept."""

MOST_SECONDS = 10.0
"""Of CPU time for one input."""
MOST_MEMORY = 500 << 20
"""Bytes that the process may grow by for one input."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
FORBIDDEN = (
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "pickle.find_class"),
    *("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.truncate", "os.chmod"),
)
"""What no reader does, by the names of Python's audit events; writing to a file is another."""

Mutate = Callable[[bytes, random.Random], bytes]


class Reader(NamedTuple):
    """A kind of file: its path in a folder, everything that reads it there, and how other inputs are made from one."""

    name: str
    path: str
    reads: Sequence[Callable[[Path], Any]]
    mutate: Sequence[Mutate]


class TooLongError(BaseException):
    """An input took too long; no reader catches it."""


def fuzz(reader: Reader, corpus: Sequence[bytes], folder: Path, seconds: float = SECONDS, seed: int = SEED) -> int:
    """Try the corpus, then mutations of it until the time is up; return how many inputs there were.

    Raise AssertionError with the first input that is neither read nor refused in one line.
    """
    for content in corpus:  # once unobserved: what is imported at the first use is imported here
        _tried(reader, content, folder, _nothing)
    for content in corpus:
        _check(reader, content, folder)
    until, count = time.process_time() + seconds, 0
    for content in mutations(reader, corpus, seed):
        if time.process_time() >= until:
            break
        _check(reader, content, folder)
        count += 1
    return len(corpus) + count


def mutations(reader: Reader, corpus: Sequence[bytes], seed: int) -> Iterator[bytes]:
    """Inputs without end, each made from one of the corpus; a seed gives the same again."""
    source = random.Random(f"{reader.name} {seed}")
    while True:
        content = source.choice(corpus)
        for mutate in source.choices(reader.mutate, k=source.choice((1, 1, 2))):
            content = mutate(content, source)
        yield content


def _check(reader: Reader, content: bytes, folder: Path) -> None:
    modules, memory, began = set(sys.modules), _peak_memory(), time.process_time()
    problem = _tried(reader, content, folder, observed)
    seconds, grown = time.process_time() - began, _peak_memory() - memory
    imported = {name.partition(".")[0] for name in sys.modules.keys() - modules} - modules
    if seconds > MOST_SECONDS:
        problem = f"it took {seconds:.0f} s"
    if grown > MOST_MEMORY:
        problem = f"it took {grown >> 20} MiB"
    if imported:
        problem = f"it imported {sorted(imported)}"
    if problem:
        FOUND.mkdir(parents=True, exist_ok=True)
        kept = FOUND / f"{reader.name}-{hashlib.sha256(content).hexdigest()[:12]}"
        kept.write_bytes(content)
        shown = content if len(content) < 2000 else content[:2000] + b"..."
        raise AssertionError(f"{reader.name}: {problem}\nThe input is kept as {kept}: {shown!r}")


def _tried(reader: Reader, content: bytes, folder: Path, watch: Callable[[list[str]], Any]) -> str:
    """Let everything read one input; return what should not have happened, or an empty string."""
    (folder / reader.path).write_bytes(content)
    return next((problem for read in reader.reads if (problem := _read(read, folder, watch))), "")


def _read(read: Callable[[Path], Any], folder: Path, watch: Callable[[list[str]], Any]) -> str:
    done: list[str] = []
    try:
        with _time_limit(), watch(done):
            read(folder)
    except MinervaError as error:
        if "\n" in str(error):
            return f"its refusal has several lines: {error}"
    except TooLongError:
        return f"it took more than {MOST_SECONDS:g} s"
    except Exception:
        return traceback.format_exc()
    return f"it did {done}" if done else ""


def _peak_memory() -> int:
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


@contextmanager
def _time_limit() -> Iterator[None]:
    """Raise TooLongError after the CPU time of an input; the machine may be busy."""

    def stop(*_: Any) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


# --- what a reader does besides reading ---------------------------------------------------------------------------


class _Audit:
    """A hook cannot be removed again: it reports to `done` while there is one, and only of its thread."""

    done: list[str] | None = None
    thread = 0
    installed = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.done is None or threading.get_ident() != self.thread:
            return
        if event in FORBIDDEN or (event == "open" and int(arguments[2] or 0) & WRITING):
            self.done.append(f"{event} {arguments[0]!r}")


_audit = _Audit()


@contextmanager
def observed(done: list[str]) -> Iterator[None]:
    """Append to `done` what this thread writes, starts or unpickles."""
    if not _audit.installed:
        sys.addaudithook(_audit)
        _audit.installed = True
    _audit.thread, _audit.done = threading.get_ident(), done
    try:
        yield
    finally:
        _audit.done = None


@contextmanager
def _nothing(done: list[str]) -> Iterator[None]:
    yield
