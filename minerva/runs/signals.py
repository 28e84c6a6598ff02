"""Ctrl-C and SIGTERM: finish the step, write a checkpoint, stop, and let the caller know."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

from minerva.errors import TerminatedError
from minerva.runs.settings import Result

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOPS = (KeyboardInterrupt, TerminatedError)
"""Errors that these signals raise."""
SECONDS_TO_FINISH_STEP = 5.0
"""Seconds that a step may take to finish after a signal; then it is aborted, and the last checkpoint remains."""


def exit_status(number: int) -> int:
    """Return the exit status of a process that a signal ended, as shells count it: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + number


def status_of(stop: BaseException) -> int:
    """Return the exit status for an error of `STOPS`."""
    return exit_status(signal.SIGTERM if isinstance(stop, TerminatedError) else signal.SIGINT)


def raise_stop(number: int, message: str = "") -> NoReturn:
    """Raise KeyboardInterrupt for SIGINT and TerminatedError for SIGTERM."""
    raise KeyboardInterrupt(message) if number == signal.SIGINT else TerminatedError(message)


def raise_received(*results: Result) -> None:
    """Raise the error of the signal that stopped these runs, if one did; their checkpoints are written."""
    for result in results:
        if result.signal is not None:
            where = f"{result.folder} is stopped at step {result.step:,}, where training into it again resumes it"
            raise_stop(result.signal, f"{result.folder} is finished." if result.finished else f"{where}.")


class StopSignals:
    """Catch Ctrl-C and SIGTERM in a `with` block.

    The first signal sets `number`; a second one, or `SECONDS_TO_FINISH_STEP`, raises an error of `STOPS`.
    """

    def __init__(self) -> None:
        self.number: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._timer: threading.Timer | None = None
        self._over = False

    @property
    def received(self) -> bool:
        """Return whether a signal was received."""
        return self.number is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()  # it may be sending its signal at this moment
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        again = self.received
        self.number = self.number or signal.Signals(number)
        if self._over:
            return
        if again:
            raise_stop(number)
        main = threading.main_thread().ident
        assert main is not None  # it runs: it is executing this
        self._timer = threading.Timer(SECONDS_TO_FINISH_STEP, signal.pthread_kill, (main, number))
        self._timer.daemon = True
        self._timer.start()


@contextmanager
def ignored_signals() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM in a `with` block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def raised_signals() -> Iterator[None]:
    """Raise an error of `STOPS` on Ctrl-C and SIGTERM in a `with` block, so that partial output is cleaned up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda number, frame: raise_stop(number)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
