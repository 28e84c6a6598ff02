"""Ctrl-C and SIGTERM: finish the step, write a checkpoint, stop."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

SECONDS_TO_FINISH_STEP = 5.0
"""Seconds that a step may take to finish after a signal; then it is aborted, and the last checkpoint remains."""


class StopSignals:
    """Catch Ctrl-C and SIGTERM in a `with` block.

    The first signal sets `received`; a second one, or `SECONDS_TO_FINISH_STEP`, raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.received = False
        self._before: dict[signal.Signals, Any] = {}
        self._timer: threading.Timer | None = None
        self._over = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
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
        if self._over:
            return
        if self.received:
            raise KeyboardInterrupt
        self.received = True
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
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def raised_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C and SIGTERM in a `with` block, so that partial output is cleaned up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
