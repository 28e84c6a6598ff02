"""The status table of a benchmark: which cells are done, running, failed, to be measured, stopped and not run."""

import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.text import Text

from minerva.lab.benchmark.files import SHORTEST, Files, is_locked
from minerva.lab.benchmark.grid import Cell, Grid
from minerva.lab.benchmark.tasks import Task
from minerva.runs.status import RunStatus
from minerva.runs.terminal import ALL, Progress, TerminalView, draw_rows

Kind = Literal["done", "running", "failed", "to be measured", "stopped", "not run"]
COLOURS: dict[Kind, str] = {
    "done": "green",
    "running": "cyan",
    "failed": "red",
    "to be measured": "blue",
    "stopped": "yellow",
    "not run": "dim",
}
States = dict[Cell, "State"]


class State(NamedTuple):
    """State of a cell: its kind, with its mean return, the reason of its failure or the step at which it stopped."""

    kind: Kind
    mean: float = 0.0
    note: str = ""

    def __str__(self) -> str:
        if self.kind == "done":
            return _number(self.mean)
        return f"stopped at {self.note}" if self.kind == "stopped" else self.kind


class Board(TerminalView):
    """Status display of a grid: redrawn in place in its `with` block in a terminal, plain lines elsewhere."""

    seconds_between_lines = 30.0
    drawing_time_share = 0.05

    def __init__(self, grid: Grid, files: Files, console: Console) -> None:
        super().__init__(console)
        self.rows, self.files = grid.rows(), files
        self._means: dict[Cell, float] = {}
        self._trained: set[Cell] = set()
        self._running: Sequence[Task] = ()

    def states(self, running: Sequence[Task] | None = None) -> States:
        """Return every cell's state. `running` None: a cell is running if a process has locked its folder."""
        held = None if running is None else {cell for task in running for cell in task.cells}
        return {cell: self._state(cell, held) for row in self.rows for cell in row}

    def update(self, running: Sequence[Task]) -> None:
        """Show what is running; without a display, print at once what begins and what has ended."""
        if not self.in_place:
            for cell in (cell for task in self._running if task not in running for cell in task.cells):
                state = self._state(cell, set())
                if state.kind in ("done", "failed"):
                    self.say(f"{state.kind}: {cell}: {state.note or state}")
            for task in running:
                if task.kind == "train" and task not in self._running:
                    self.say(f"training {task}; log: {task.log}")
        self._running = running
        self.refresh(lambda: self._draw(running), lambda: self._lines(running))

    def print_summary(self, running: Sequence[Task] | None = None) -> States:
        """Print the table and its notes permanently, and return the states."""
        states = self.states(running)
        self.console.print(self.table(states))
        for line in notes(states):
            self.say(line)
        return states

    def table(self, states: States, height: int = ALL) -> RenderableType:
        """Draw a row for each entry and environment, at most `height` rows."""
        rows = []
        for row in self.rows:
            first, seeds = row[0], [states[cell] for cell in row]
            names = {"entry": Text(first.entry.name), "environment": Text(first.env)}
            rows.append({**names, "return": over_seeds(seeds), "each seed": each_seed(seeds)})
        return draw_rows(rows, self.console.options, height, wrap="each seed")

    def _draw(self, running: Sequence[Task]) -> RenderableType:
        """Draw the table, a row for each task that is running, and the notes."""
        states, options = self.states(running), self.console.options
        below = notes(states)
        tasks = [self._progress(task).row(str(task)) for task in running if task.kind == "train"]
        tasks += [{"": Text(f"measuring {task}")} for task in running if task.kind == "measure"]
        height = options.max_height - len(tasks) - len(below) - 4
        return Group(self.table(states, height), draw_rows(tasks, options), Text("\n".join(below)))

    def _lines(self, running: Sequence[Task]) -> list[str]:
        """Return plain lines: what is running and how fast, what failed and why, and the number of cells per state."""
        tasks = [f"{task}: {self._progress(task).line()}" for task in running if task.kind == "train"]
        tasks += [f"measuring {task}" for task in running if task.kind == "measure"]
        return [*tasks, *notes(self.states(running))]

    def _progress(self, task: Task) -> Progress:
        """Return the progress of a training task; the slowest seed sets step and speed."""
        seeds = [self.files.progress(cell) for cell in task.cells]
        runs = [RunStatus("", seed.episode_return, seed.evaluations, [], []) for seed in seeds]
        step, speed = min(seed.step for seed in seeds), min(seed.per_second for seed in seeds)
        return Progress(step, task.cells[0].total_steps, speed, runs)

    def _state(self, cell: Cell, held: set[Cell] | None) -> State:
        kept = None if cell in self._means else self.files.done(cell)
        if kept is not None:
            self._means[cell] = float(np.mean(kept["returns"]))
        if cell in self._means:
            return State("done", self._means[cell])
        if cell in held if held is not None else is_locked(self.files.run(cell)):
            return State("running")
        failure = self.files.failure(cell)
        if failure.is_file():
            return State("failed", note=failure.read_text(errors="replace").strip())
        step = self.files.progress(cell).step
        if self._is_trained(cell, step):
            return State("to be measured")
        return State("stopped", note=f"{step:,}") if step else State("not run")

    def _is_trained(self, cell: Cell, step: int) -> bool:
        """Return whether the cell's run is finished; its checkpoint, slow to read, is opened only near the end."""
        if cell not in self._trained and step >= SHORTEST * cell.total_steps and self.files.finished(cell):
            self._trained.add(cell)
        return cell in self._trained


def notes(states: States) -> list[str]:
    """Return lines for what failed and why, and the number of cells per state."""
    failed = [f"failed: {cell}: {state.note}" for cell, state in states.items() if state.kind == "failed"]
    kinds = [state.kind for state in states.values()]
    counts = [f"{kinds.count(kind)} {kind}" for kind in COLOURS if kinds.count(kind) and kind != "done"]
    return [*failed, ", ".join([f"{kinds.count('done')} of {len(kinds)} done", *counts])]


def over_seeds(states: Sequence[State]) -> Text:
    """Return the mean ± standard deviation of the return over the seeds that are done."""
    means = [state.mean for state in states if state.kind == "done"]
    if not means:
        not_run = {state.kind for state in states} == {"not run"}
        return Text("not run" if not_run else "", style="dim", justify="right")
    std = f" ± {_number(float(np.std(means, ddof=1)))}" if len(means) > 1 else ""
    return Text.assemble((_number(float(np.mean(means))), "bold"), std, justify="right")


def each_seed(states: Sequence[State]) -> Text:
    """Return every seed's state in order; neighbours in the same state are merged with a count, unless done."""
    parts: list[Text] = []
    for state, alike in itertools.groupby(states):
        count = len(list(alike))
        times = f" ({count})" if count > 1 and state.kind != "done" else ""
        parts += [Text(f"{state}{times}", style=COLOURS[state.kind])] * (count if state.kind == "done" else 1)
    return Text(", ").join(parts)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}"
