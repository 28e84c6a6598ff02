"""What the user sees while a run goes on: lines that stay in place in a terminal, plain lines elsewhere."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.logging import RichHandler

from minerva.runs.status import RunStatus
from minerva.runs.terminal import drawn

SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_PICTURES = 0.25
STALL = 0.005
"""Share of the time that drawing may take."""

Look = Callable[[], Sequence[RunStatus]]
"""How the runs stand; asked only when they are drawn."""


class ProgressView:
    """Steps done, steps per second, time left and how each run stands."""

    def __init__(self, console: Console, total: int, done: int, quiet: bool = False) -> None:
        self.console = console
        self.total = total
        self.quiet = quiet
        self.spent = 0.0
        """Seconds that drawing took."""
        self._first = done
        self._started = self._printed = time.monotonic()
        self._next = self._started
        self._live: Live | None = None
        self._exit = ExitStack()

    @property
    def in_place(self) -> bool:
        """Whether there is a terminal that can be drawn in."""
        return self.console.is_terminal and not self.console.is_dumb_terminal and not self.quiet

    def steps_per_second(self, step: int) -> float:
        """Since this process began to train, evaluations included."""
        return (step - self._first) / max(time.monotonic() - self._started, 1e-9)

    def show(self, step: int, look: Look) -> None:
        """Draw anew, or print a line if the last is some seconds old."""
        now = time.monotonic()
        if self._live is not None:
            if now >= self._next or step >= self.total:
                self._draw(step, look)
                took = time.monotonic() - now
                self.spent += took
                self._next = now + max(SECONDS_BETWEEN_PICTURES, took / STALL)
        elif not self.quiet and not self.in_place and now - self._printed >= SECONDS_BETWEEN_LINES:
            self._printed = now
            self.console.print(self._line(step, look()), soft_wrap=True)

    def _draw(self, step: int, look: Look) -> None:
        assert self._live is not None  # `show` has looked
        self._live.update(drawn(step, self.total, self.steps_per_second(step), look(), self.console), refresh=True)

    def _line(self, step: int, glances: Sequence[RunStatus]) -> str:
        """The same in one line, with the mean over runs."""
        parts = [f"{self.steps_per_second(step):,.0f} steps/s"]
        for name, values in (
            ("return", [glance.train for glance in glances]),
            ("evaluated", [glance.evaluated for glance in glances]),
        ):
            known = [value for value in values if value is not None]
            parts += [f"{name} {sum(known) / len(known):,.1f}"] if known else []
        left = (self.total - step) / max(self.steps_per_second(step), 1e-9)
        share = 100 * step / self.total
        return f"{step:>9,} / {self.total:,} ({share:3.0f} %)  {'  '.join(parts)}  {left:.0f} s left"

    def __enter__(self) -> Self:
        if self.in_place:
            with ExitStack() as stack:
                self._live = stack.enter_context(
                    Live(console=self.console, auto_refresh=False, transient=True, vertical_overflow="crop")
                )
                _log_above(self.console, stack)
                self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()
        self._live = None


def _log_above(console: Console, stack: ExitStack) -> None:
    """Until the stack closes, messages that the log writes to the terminal appear above what stays in place."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, RichHandler) and handler.console.is_terminal:
            stack.callback(setattr, handler, "console", handler.console)
            handler.console = console
