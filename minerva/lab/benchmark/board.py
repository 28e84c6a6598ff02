"""One table of what is done, running, failed, to be measured and not run: live in a terminal, plain lines elsewhere."""

import itertools
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, NamedTuple, Self

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from minerva.lab.benchmark.files import SHORTEST, Files, is_locked
from minerva.lab.benchmark.grid import Cell, Grid
from minerva.lab.benchmark.tasks import Task

SECONDS_BETWEEN_VIEWS = 0.5
SECONDS_BETWEEN_LINES = 30.0

Kind = Literal["done", "running", "failed", "to be measured", "stopped", "not run"]
COLOURS: dict[Kind, str] = {
    "done": "green",
    "running": "cyan",
    "failed": "red",
    "to be measured": "blue",
    "stopped": "yellow",
    "not run": "dim",
}


class State(NamedTuple):
    """What a cell is, and its mean return, its reason or its step."""

    kind: Kind
    mean: float = 0.0
    note: str = ""

    def __str__(self) -> str:
        if self.kind == "done":
            return number(self.mean)
        return f"stopped at {self.note}" if self.kind == "stopped" else self.kind


class Board:
    """Shows a grid. In a `with` block it stays in place; `update` redraws it, or prints what is new."""

    def __init__(self, grid: Grid, files: Files, console: Console) -> None:
        self.rows, self.files, self.console = grid.rows(), files, console
        self._means: dict[Cell, float] = {}
        self._trained: set[Cell] = set()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._shown, self._printed = -SECONDS_BETWEEN_VIEWS, time.monotonic()
        self._known: dict[Cell, State] = {}

    def states(self, running: Sequence[Task] | None = None) -> dict[Cell, State]:
        """Every cell's state. `running` None: a cell is running if some process holds its folder."""
        held = None if running is None else {cell for task in running for cell in task.cells}
        return {cell: self._state(cell, held) for row in self.rows for cell in row}

    def update(self, running: Sequence[Task]) -> None:
        """Show how things are, if it is time to."""
        now = time.monotonic()
        if now - self._shown < SECONDS_BETWEEN_VIEWS:
            return
        self._shown, states = now, self.states(running)
        if self._live is not None:
            lines = "\n".join(map(escape, self._lines(states, running)))
            self._live.update(Group(self.table(states), lines), refresh=True)
            return
        for cell, state in states.items():
            if state.kind in ("done", "failed") and self._known and self._known[cell] != state:
                self._say(f"{state.kind}: {cell}: {state.note or number(state.mean)}")
        self._known = states
        if now - self._printed >= SECONDS_BETWEEN_LINES:
            self._printed = now
            for line in self._lines(states, running):
                self._say(line)

    def started(self, task: Task) -> None:
        """Say that a task begins, where there is no live table to show it."""
        if self._live is None and task.kind == "train":
            self._say(f"training {task}; log: {task.log}")

    def conclude(self, running: Sequence[Task] | None = None) -> dict[Cell, State]:
        """Print the table as it is, for good."""
        states = self.states(running)
        self.console.print(self.table(states))
        for line in self._lines(states, []):
            self._say(line)
        return states

    def table(self, states: dict[Cell, State]) -> Table:
        """A row for each entry and environment."""
        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading in ("entry", "environment", "return", "each seed"):
            last = heading == "each seed"
            table.add_column(heading, justify="right" if heading == "return" else "left", no_wrap=not last)
        for row in self.rows:
            first, own = row[0], [states[cell] for cell in row]
            table.add_row(first.entry.name, escape(first.env), over_seeds(own), each_seed(own))
        return table

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def _say(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)

    def _state(self, cell: Cell, held: set[Cell] | None) -> State:
        if cell in self._means:
            return State("done", self._means[cell])
        kept = self.files.done(cell)
        if kept is not None:
            self._means[cell] = float(np.mean(kept["returns"]))
            return State("done", self._means[cell])
        if cell in held if held is not None else is_locked(self.files.run(cell)):
            return State("running")
        failure = self.files.failure(cell)
        if failure.is_file():
            return State("failed", note=failure.read_text().strip())
        step = self.files.progress(cell).step
        if self._is_trained(cell, step):
            return State("to be measured")
        return State("stopped", note=f"{step:,}") if step else State("not run")

    def _is_trained(self, cell: Cell, step: int) -> bool:
        """Whether its run has come to its end. The checkpoint knows, and takes long to read: only where it may be."""
        if cell not in self._trained and step >= SHORTEST * cell.total_steps and self.files.finished(cell):
            self._trained.add(cell)
        return cell in self._trained

    def _lines(self, states: dict[Cell, State], running: Sequence[Task]) -> list[str]:
        """What is running and how fast, what failed and why, and how many cells are what."""
        lines = [f"measuring {task}" if task.kind == "measure" else self._line(task) for task in running]
        lines += [f"failed: {cell}: {state.note}" for cell, state in states.items() if state.kind == "failed"]
        return [*lines, summary(states)]

    def _line(self, task: Task) -> str:
        total, ways = task.cells[0].total_steps, [self.files.progress(cell) for cell in task.cells]
        step, speed = min(way.step for way in ways), min(way.per_second for way in ways)
        parts = [f"training {task}: {step:,} / {total:,} ({100 * step / total:.0f} %)"]
        if speed:
            parts.append(f"{speed * len(ways):,.0f} steps/s")
        for name, values in (
            ("return", [way.episode_return for way in ways]),
            ("evaluated", [way.evaluated for way in ways]),
        ):
            known = [value for value in values if value is not None]
            parts += [f"{name} {number(float(np.mean(known)))}"] if known else []
        return "  ".join([*parts, f"{duration((total - step) / speed)} left"] if speed else parts)


def summary(states: dict[Cell, State]) -> str:
    """How many cells are what."""
    kinds = [state.kind for state in states.values()]
    counts = [f"{kinds.count(kind)} {kind}" for kind in COLOURS if kinds.count(kind) and kind != "done"]
    return ", ".join([f"{kinds.count('done')} of {len(kinds)} done", *counts])


def over_seeds(states: Sequence[State]) -> str:
    """Mean ± standard deviation of the seeds that are done."""
    means = [state.mean for state in states if state.kind == "done"]
    if not means:
        return "[dim]not run[/]" if {state.kind for state in states} == {"not run"} else ""
    spread = f" ± {number(float(np.std(means, ddof=1)))}" if len(means) > 1 else ""
    return f"[bold]{number(float(np.mean(means)))}[/]{spread}"


def each_seed(states: Sequence[State]) -> str:
    """Every seed in its order; neighbours that are in the same state are counted."""
    parts = []
    for state, alike in itertools.groupby(states):
        count = len(list(alike))
        times = f" ({count})" if count > 1 and state.kind != "done" else ""
        parts += [f"[{COLOURS[state.kind]}]{state}{times}[/]"] * (count if state.kind == "done" else 1)
    return ", ".join(parts)


def number(value: float) -> str:
    """Whole, unless that would leave too few digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}"


def duration(seconds: float) -> str:
    """In the largest unit that leaves a number to read."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
