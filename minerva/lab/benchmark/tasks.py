"""Tasks of a benchmark: idempotent commands. Run again, each resumes where it stopped, or has nothing to do."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_type_hints

from minerva.compute.modes import MatmulPrecision
from minerva.compute.python import PYTHON
from minerva.envs.engines.registry import EngineName
from minerva.lab.benchmark.files import Files
from minerva.lab.benchmark.grid import Cell, Grid
from minerva.trainers.registry import config_class

PYTHON_MODULE = (*PYTHON, "-m")


@dataclass(frozen=True)
class Task:
    """One command that trains some cells or measures one."""

    kind: Literal["train", "measure"]
    cells: tuple[Cell, ...]
    command: tuple[str, ...]
    log: Path
    """File to which its output is appended."""

    def __str__(self) -> str:
        first = self.cells[0]
        seeds = ", ".join(str(cell.seed) for cell in self.cells)
        which = f"seeds {seeds} together" if len(self.cells) > 1 else f"seed {seeds}"
        return f"{first.entry.name} on {first.env}, {which}"


class Executor(Protocol):
    """Interface of what runs tasks: on this machine or on a cluster."""

    def room(self, task: Task) -> bool:
        """Return whether the task could be started now."""

    def start(self, task: Task) -> None:
        """Start a task."""

    def running(self) -> list[Task]:
        """Return the tasks that were started and have not been returned by `ended`."""

    def ended(self) -> list[tuple[Task, int]]:
        """Return the tasks that ended since the last call, with their exit codes."""

    def stop(self, tasks: Sequence[Task]) -> None:
        """Let these tasks write their checkpoints and exit; return once none of them is running."""


@dataclass(frozen=True)
class Maker:
    """Factory of the tasks of a grid."""

    grid: Grid
    files: Files
    device: str = "cpu"
    engine: EngineName = "auto"
    matmul: MatmulPrecision = "highest"

    def train(self, cells: Sequence[Cell]) -> Task:
        """Return the task that trains these seeds of one entry and environment in one process."""
        first, folder = cells[0], self.files.group(cells[0])
        seeds = ",".join(str(cell.seed) for cell in cells)
        where = ["--seed", seeds, "--run-dir", str(self.files.run(first))]
        if len(cells) > 1:
            where = ["--seeds", seeds, "--run-dir", str(folder)]
        return Task(
            "train", tuple(cells), (*PYTHON_MODULE, "minerva", *self.options(first), *where), self.files.log(cells)
        )

    def measure(self, cell: Cell) -> Task:
        """Return the task that evaluates the last checkpoint of a finished run and writes the result."""
        entry = cell.entry
        options = {
            "run": self.files.run(cell),
            "env": cell.env,
            "file": self.files.result(cell),
            "label": entry.label,
            "preset": entry.preset,
            "changed": json.dumps(dict(entry.hyperparameters)),
            "command": shlex.join(["minerva", *self.recorded_options(cell), "--seed", str(cell.seed)]),
            "episodes": self.grid.episodes,
            "together": self.files.trained_together(cell),
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        log = self.files.group(cell) / f"measure_seed_{cell.seed}.log"
        return Task("measure", (cell,), (*PYTHON_MODULE, "minerva.lab.benchmark.measure", *words), log)

    def options(self, cell: Cell) -> list[str]:
        """Return the arguments of `minerva train` for a cell, without seed and folder."""
        hardware = ["--device", self.device, "--engine", self.engine, "--matmul", self.matmul]
        return [*self.recorded_options(cell), *hardware]

    def recorded_options(self, cell: Cell) -> list[str]:
        """Return the arguments of `minerva train` without device, engine and precision, which the run records."""
        every = max(cell.total_steps // self.grid.evaluations, 1)
        named = {"env": cell.env, "total-steps": cell.total_steps, "eval-every": every, "preset": cell.entry.preset}
        words = [word for name, value in named.items() for word in (f"--{name}", str(value))]
        return ["train", cell.entry.algo, *words, *command_line_options(cell.entry.algo, cell.entry.hyperparameters)]


def command_line_options(algo: str, hyperparameters: Mapping[str, Any]) -> list[str]:
    """Return hyperparameters as command-line options."""
    words: list[str] = []
    for name, value in hyperparameters.items():
        option = name.replace("_", "-")
        if get_type_hints(config_class(algo))[name] is bool:
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += [f"--{option}", *map(str, value if isinstance(value, (list, tuple)) else [value])]
    return words
