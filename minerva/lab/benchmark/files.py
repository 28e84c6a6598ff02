"""Files of a benchmark: a run's folder for each cell, and its result as one small file.

There is no other state: what is done, running, failed or not run is always read from these files.
"""

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minerva.config import check_plain
from minerva.errors import CheckpointError, ConfigError
from minerva.lab.benchmark.grid import Cell
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.folder import RunFolder

TAIL = 1 << 15
"""Bytes to read at the end of metrics.jsonl for its latest rows."""
SHORTEST = 0.95
"""Smallest share of its budget that a finished run has taken: it ends with the last complete rollout."""


class Progress(NamedTuple):
    """Progress of a run, read from its metrics."""

    step: int = 0
    per_second: float = 0.0
    episode_return: float | None = None
    evaluations: tuple[float, ...] = ()
    """Mean return of the latest evaluation, if any."""


def spans(seeds: Sequence[int]) -> str:
    """Format seeds for a file name: 0-4_7 for 0 to 4 and 7."""
    ends = [seed for seed in seeds if seed + 1 not in seeds]
    starts = [seed for seed in seeds if seed - 1 not in seeds]
    pairs = zip(sorted(starts), sorted(ends), strict=True)
    return "_".join(f"{first}-{last}" if first < last else f"{first}" for first, last in pairs)


def from_spans(text: str) -> set[int]:
    """Parse seeds as formatted by `spans`: 0-4_7 is 0 to 4 and 7."""
    pairs = [part.split("-") for part in text.split("_")]
    return {seed for pair in pairs for seed in range(int(pair[0]), int(pair[-1]) + 1)}


@dataclass(frozen=True)
class Files:
    """Paths of one benchmark: `out` holds the run folders, `results` the result files."""

    out: Path
    results: Path

    def group(self, cell: Cell) -> Path:
        """Return the folder of the runs of all seeds of an entry and environment."""
        return self.out / cell.entry.name / cell.task

    def run(self, cell: Cell) -> Path:
        """Return the run folder of a cell."""
        return self.group(cell) / f"seed{cell.seed}"

    def log(self, cells: Sequence[Cell]) -> Path:
        """Return the log file of the process that trains these cells."""
        return self.group(cells[0]) / f"train_seeds_{spans([cell.seed for cell in cells])}.log"

    def trained_together(self, cell: Cell) -> int:
        """Return the number of seeds in the process that last trained this cell."""
        logs = sorted(self.group(cell).glob("train_seeds_*.log"), key=lambda log: log.stat().st_mtime)
        seeds = [from_spans(log.stem.removeprefix("train_seeds_")) for log in logs]
        return next((len(group) for group in reversed(seeds) if cell.seed in group), 1)

    def failure(self, cell: Cell) -> Path:
        """Return the file that holds the reason of a failure, until the run is tried again."""
        return self.group(cell) / f"seed{cell.seed}.failed"

    def result(self, cell: Cell) -> Path:
        """Return the result file of a cell."""
        label = f"_{cell.entry.label}" if cell.entry.label else ""
        return self.results / cell.entry.algo / f"{cell.task}{label}_seed{cell.seed}.json"

    def done(self, cell: Cell) -> dict[str, Any] | None:
        """Return the cell's result, or None if there is none. Raise ConfigError if it is of another experiment."""
        path = self.result(cell)
        if not path.is_file():
            return None
        try:
            kept: dict[str, Any] = json.loads(path.read_text())
            check_plain(kept)
            if not np.isfinite(np.mean([float(value) for value in kept["returns"]])):
                raise ValueError("its returns are not finite numbers")
            other = [name for name, (here, there) in _compared(cell, kept).items() if here != there]
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
            raise ConfigError(
                f"{path} is not a result of `minerva benchmark`: remove it, or give other --results."
            ) from None
        if other:
            here, there = _compared(cell, kept)[other[0]]
            raise ConfigError(
                f"{path} is the result of another experiment ({other[0]}: {there}, here {here}): give the entry "
                f"{cell.entry.name} another name, or other --results."
            )
        return kept

    def finished(self, cell: Cell) -> bool:
        """Return whether the cell's run is finished."""
        last = RunFolder(self.run(cell), cell.entry.algo).last
        try:
            return last.is_file() and load_checkpoint(last).about.get("finished") is True
        except CheckpointError:
            return False

    def progress(self, cell: Cell) -> Progress:
        """Return the progress of a cell's run."""
        return progress(self.run(cell) / "metrics.jsonl")


def progress(metrics: Path) -> Progress:
    """Return the progress recorded in the latest rows of a metrics.jsonl."""
    if not metrics.is_file():
        return Progress()
    with open(metrics, "rb") as file:
        file.seek(max(metrics.stat().st_size - TAIL, 0))
        lines = file.read().decode(errors="replace").splitlines()
    latest: dict[str, Any] = {}
    for line in lines:
        # a line may be cut off at the beginning of what was read, or being written
        with contextlib.suppress(ValueError, AttributeError, RecursionError):
            row = json.loads(line)
            check_plain(row)
            latest |= {name: value for name, value in row.items() if type(value) in (int, float) and isfinite(value)}
    return Progress(
        int(latest.get("step", 0)),
        latest.get("charts/SPS", 0.0),
        latest.get("train/episode_return"),
        (latest["eval/return_mean"],) if "eval/return_mean" in latest else (),
    )


def write_failure(path: Path, reason: str, log: Path) -> None:
    """Write the reason of a failure, for the status table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{reason} (log: {log})\n")


def reason_in(log: Path, start: int, seed: int, code: int) -> str:
    """Return why a command failed, from its log after byte `start`: the line about the seed, or the error."""
    text = log.read_bytes()[start:].decode(errors="replace") if log.is_file() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for mark in (rf"seed{seed}:", r"^error:"):
        found = [line for line in lines if re.search(mark, line)]
        if found:
            return re.sub(rf"^(ERROR|WARNING|error:)\s+(seed{seed}: )?", "", found[-1])
    if code < 0:
        return f"killed by signal {-code}"
    return lines[-1] if lines else f"exit code {code}"


def is_locked(folder: Path) -> bool:
    """Return whether a process is training in a run's folder."""
    if not folder.is_dir():
        return False
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        return True
    finally:
        os.close(handle)


def _compared(cell: Cell, kept: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the values that identify an experiment, each as (wanted here, found in the result file)."""
    wanted = {"algo": cell.entry.algo, "env": cell.env, "seed": cell.seed, "preset": cell.entry.preset}
    wanted["changed"] = json.loads(json.dumps(dict(cell.entry.hyperparameters)))
    pairs = {name: (value, {"preset": "auto", "changed": {}, **kept}[name]) for name, value in wanted.items()}
    steps = kept.get("total_steps", kept["steps"])
    close = "total_steps" not in kept and SHORTEST * cell.total_steps <= steps <= cell.total_steps
    pairs["total_steps"] = (cell.total_steps, cell.total_steps if close else steps)
    return pairs
