"""What has to be done for a cell: idempotent commands. Given again, each goes on where it was, or has nothing to do."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_type_hints

from minerva.compute.compiled import MatmulPrecision
from minerva.envs.engines.registry import EngineName
from minerva.lab.benchmark.files import Files
from minerva.lab.benchmark.grid import Cell, Grid
from minerva.trainers.registry import config_class

PYTHON = (sys.executable, "-m")


@dataclass(frozen=True)
class Task:
    """One command that trains or measures some cells."""

    kind: Literal["train", "measure"]
    cells: tuple[Cell, ...]
    command: tuple[str, ...]
    log: Path
    """What it prints is appended here."""

    def __str__(self) -> str:
        first = self.cells[0]
        seeds = ", ".join(str(cell.seed) for cell in self.cells)
        which = f"seeds {seeds} together" if len(self.cells) > 1 else f"seed {seeds}"
        return f"{first.entry.name} on {first.env}, {which}"


class Executor(Protocol):
    """Runs tasks somewhere."""

    def room(self, task: Task) -> bool:
        """Whether the task could be started now."""

    def start(self, task: Task) -> None:
        """Start it."""

    def running(self) -> list[Task]:
        """Those that were started and have not been returned by `ended`."""

    def ended(self) -> list[tuple[Task, int]]:
        """Those that ended since the last call, with their exit codes."""

    def stop(self, tasks: Sequence[Task]) -> None:
        """Let these tasks write their checkpoints and end; after this none of them is running."""


@dataclass(frozen=True)
class Maker:
    """Makes the tasks of a grid."""

    grid: Grid
    files: Files
    device: str = "cpu"
    engine: EngineName = "auto"
    matmul: MatmulPrecision = "highest"

    def train(self, cells: Sequence[Cell]) -> Task:
        """Train these seeds of one entry and environment: one alone, or several in one process."""
        first, folder = cells[0], self.files.group(cells[0])
        seeds = ",".join(str(cell.seed) for cell in cells)
        where = ["--seed", seeds, "--run-dir", str(self.files.run(first))]
        if len(cells) > 1:
            where = ["--seeds", seeds, "--run-dir", str(folder)]
        return Task("train", tuple(cells), (*PYTHON, "minerva", *self.options(first), *where), self.files.log(cells))

    def measure(self, cell: Cell) -> Task:
        """Evaluate the last checkpoint of a finished run and write the result."""
        entry = cell.entry
        told = {
            "run": self.files.run(cell),
            "file": self.files.result(cell),
            "label": entry.label,
            "preset": entry.preset,
            "changed": json.dumps(dict(entry.hyperparameters)),
            "command": shlex.join(["minerva", *self.asked(cell), "--seed", str(cell.seed)]),
            "episodes": self.grid.episodes,
            "together": self.files.trained_together(cell),
        }
        words = [word for name, value in told.items() for word in (f"--{name}", str(value))]
        log = self.files.group(cell) / f"measure_seed_{cell.seed}.log"
        return Task("measure", (cell,), (*PYTHON, "minerva.lab.benchmark.measure", *words), log)

    def options(self, cell: Cell) -> list[str]:
        """`train` and everything but the seed and the folder."""
        how = ["--device", self.device, "--engine", self.engine, "--matmul", self.matmul]
        return [*self.asked(cell), *how]

    def asked(self, cell: Cell) -> list[str]:
        """The same without device, engine and precision: a finished run knows its own, whatever it is measured with."""
        every = max(cell.total_steps // self.grid.evaluations, 1)
        named = {"env": cell.env, "total-steps": cell.total_steps, "eval-every": every, "preset": cell.entry.preset}
        words = [word for name, value in named.items() for word in (f"--{name}", str(value))]
        return ["train", cell.entry.algo, *words, *written(cell.entry.algo, cell.entry.hyperparameters)]


def written(algo: str, hyperparameters: Mapping[str, Any]) -> list[str]:
    """Hyperparameters as they are typed."""
    words: list[str] = []
    for name, value in hyperparameters.items():
        option = name.replace("_", "-")
        if get_type_hints(config_class(algo))[name] is bool:
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += [f"--{option}", *map(str, value if isinstance(value, (list, tuple)) else [value])]
    return words
