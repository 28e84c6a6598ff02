"""What the user sees while a run goes on: a live line in a terminal, plain lines elsewhere."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 10.0


class ProgressLine:
    """Steps done, steps per second, latest returns and time left."""

    def __init__(self, console: Console, total: int, done: int, quiet: bool = False) -> None:
        self.console = console
        self.total = total
        self.quiet = quiet
        self._first = done
        self._started = self._printed = time.monotonic()
        self._status = ""
        self._bar = Progress(  # fits into 80 columns
            BarColumn(bar_width=10),
            TextColumn("{task.percentage:3.0f} %"),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=quiet or not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("training", total=total, completed=done, status="")

    def steps_per_second(self, step: int) -> float:
        """Since this process began to train, evaluations included."""
        return (step - self._first) / max(time.monotonic() - self._started, 1e-9)

    def show(self, step: int, train_return: float | None, eval_return: float | None) -> None:
        """Redraw the live line, or print one if the last is some seconds old."""
        parts = [f"{self.steps_per_second(step):,.0f} steps/s"]
        parts += [f"return {train_return:,.1f}"] if train_return is not None else []
        parts += [f"evaluated {eval_return:,.1f}"] if eval_return is not None else []
        self._status = "  ".join(parts)
        self._bar.update(self._task, completed=step, status=self._status)
        now = time.monotonic()
        if not self.console.is_terminal and not self.quiet and now - self._printed >= SECONDS_BETWEEN_LINES:
            self._printed = now
            left = (self.total - step) / max(self.steps_per_second(step), 1e-9)
            share = 100 * step / self.total
            line = f"{step:>9,} / {self.total:,} ({share:3.0f} %)  {self._status}  {left:.0f} s left"
            self.console.print(line, soft_wrap=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
