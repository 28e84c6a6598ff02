"""Scheduling of a benchmark: starts the missing cells in the grid's order, as room and time allow."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from signal import Signals

from minerva.lab.benchmark.files import reason_in, write_failure
from minerva.lab.benchmark.grid import Cell
from minerva.lab.benchmark.tasks import Executor, Maker, Task
from minerva.runs.signals import StopSignals, ignored_signals

POLL = 0.2
"""Seconds between polls of the running tasks."""
MARGIN = 1.1
"""A run is started only if the time left is at least this many times its expected duration."""


@dataclass(frozen=True)
class Pace:
    """Measured seconds per step, to estimate which runs can still be finished."""

    of_entry: dict[str, list[float]] = field(default_factory=dict)
    of_algo: dict[str, list[float]] = field(default_factory=dict)

    def add(self, cell: Cell, steps: int, seconds: float) -> None:
        """Record the seconds that a run needed for these steps."""
        if steps > 0:
            self.of_entry.setdefault(cell.entry.name, []).append(seconds / steps)
            self.of_algo.setdefault(cell.entry.algo, []).append(seconds / steps)

    def expected(self, cell: Cell, steps: int) -> float:
        """Return the expected seconds for these steps, by the slowest run of the entry or algorithm; 0 if unknown."""
        known = self.of_entry.get(cell.entry.name) or self.of_algo.get(cell.entry.algo) or [0.0]
        return max(known) * steps


@dataclass
class Started:
    """A started task: when it began, from which step, and at which byte of the log."""

    at: float
    step: int
    log: int


class Schedule:
    """Schedule of the cells of a grid that have no result yet."""

    def __init__(
        self,
        maker: Maker,
        executor: Executor,
        together: Callable[[Sequence[Cell], int], bool],
        within: float | None = None,
    ) -> None:
        """Plan the missing cells, to be run within `within` seconds.

        `together(cells, rows)` decides whether cells that differ only in their seed are trained in one process, given
        the number of such rows.
        """
        self.maker, self.files, self.executor = maker, maker.files, executor
        self.deadline = None if within is None else time.monotonic() + within
        self.pace = Pace()
        self.signal: Signals | None = None
        """Signal that stopped it."""
        self.started: dict[Task, Started] = {}
        missing = [self._missing(row) for row in maker.grid.rows()]
        self.waiting = [self.maker.measure(cell) for row in missing for cell in row if self.files.finished(cell)]
        measured = {task.cells[0] for task in self.waiting}
        rows = [[cell for cell in row if cell not in measured] for row in missing]
        rows = [row for row in rows if row]
        for row in rows:
            groups = [row] if together(row, len(rows)) else [[cell] for cell in row]
            self.waiting += [self.maker.train(group) for group in groups]

    def run(self, show: Callable[[Sequence[Task]], None]) -> bool:
        """Run until nothing is left, calling `show` with the running tasks. Return False if a signal stopped it."""
        with StopSignals() as signals:
            while True:
                for task, code in self.executor.ended():
                    self._end(task, code)
                if signals.received:
                    with ignored_signals():
                        self.executor.stop(self.executor.running())
                    self.signal = signals.number
                    return False
                if self.deadline is not None and time.monotonic() >= self.deadline:
                    self._stop_training()
                self._start_what_fits()
                show(self.executor.running())
                if not self.executor.running():
                    return True
                time.sleep(POLL)

    def _missing(self, row: Sequence[Cell]) -> list[Cell]:
        """Return the cells without a result, and record the pace of the others."""
        missing = []
        for cell in row:
            kept = self.files.done(cell)
            if kept is None:
                missing.append(cell)
            elif (kept.get("device", "cpu") == "cpu") == (self.maker.device == "cpu"):
                self.pace.add(cell, kept["steps"], kept["train_seconds"])
        return missing

    def _start_what_fits(self) -> None:
        for task in list(self.waiting):
            if self.executor.room(task) and self._in_time(task):
                self.waiting.remove(task)
                for cell in task.cells:
                    self.files.failure(cell).unlink(missing_ok=True)
                size = task.log.stat().st_size if task.log.exists() else 0
                self.started[task] = Started(time.monotonic(), self._step(task), size)
                self.executor.start(task)

    def _in_time(self, task: Task) -> bool:
        """Return whether a task is expected to end before the deadline."""
        if self.deadline is None or task.kind == "measure":
            return True
        steps = task.cells[0].total_steps - self._step(task)
        return self.deadline - time.monotonic() >= MARGIN * self.pace.expected(task.cells[0], steps)

    def _stop_training(self) -> None:
        """Stop all training at the deadline; finished runs are still measured, or their results would be lost."""
        training = [task for task in self.executor.running() if task.kind == "train"]
        with ignored_signals():
            self.executor.stop(training)
        finished = [cell for task in training for cell in task.cells if self.files.finished(cell)]
        self.waiting = [task for task in self.waiting if task.kind == "measure"]
        self.waiting += [self.maker.measure(cell) for cell in finished]

    def _end(self, task: Task, code: int) -> None:
        """Handle a task that has ended: queue the measuring of its finished runs, or record why it failed."""
        began = self.started.pop(task)
        if task.kind == "train":
            self.pace.add(task.cells[0], self._step(task) - began.step, time.monotonic() - began.at)
        for cell in task.cells:
            if task.kind == "train" and self.files.finished(cell):
                self.waiting.insert(0, self.maker.measure(cell))
            elif task.kind == "train" or self.files.done(cell) is None:
                reason = reason_in(task.log, began.log, cell.seed, code)
                write_failure(self.files.failure(cell), reason, task.log)

    def _step(self, task: Task) -> int:
        """Return the step of the slowest run of a task."""
        return min(self.files.progress(cell).step for cell in task.cells)
