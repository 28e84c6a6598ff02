"""`python -m minerva.lab.benchmark.measure`: evaluate the last checkpoint of a finished run and write the result."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro

from minerva.api import evaluate
from minerva.errors import MinervaError, RunError
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.folder import PROVENANCE, find_checkpoint, read_config, write_atomically
from minerva.runs.metrics import read_rows

HOW = ("device", "engine", "matmul")
"""What a run was begun with: its command names these, and not what it is measured with."""
SAME_START = 5.0
"""Seconds by which the starts computed from two rows of one process may differ."""


@dataclass(frozen=True)
class Measure:
    """Which run, and what the result says of it that the run does not know."""

    run: Path
    file: Path
    label: str
    preset: str
    changed: str
    command: str
    episodes: int = 100
    together: int = 1

    def write(self) -> None:
        """Evaluate, and write the file whole or not at all."""
        torch.set_num_threads(1)
        about, state = load_checkpoint(find_checkpoint(self.run, "last"))
        if about["finished"] is not True:
            raise RunError(f"{self.run} is not finished: train it to its end first.")
        last = evaluate(self.run, which="last", episodes=self.episodes)
        config = read_config(self.run / "config.yaml")
        kept = {
            "algo": about["algo"],
            "env": about["env"],
            "seed": about["seed"],
            "preset": self.preset,
            "label": self.label,
            "changed": json.loads(self.changed),
            "total_steps": about["total_steps"],
            "steps": about["step"],
            "train_seconds": round(train_seconds(read_rows(self.run / "metrics.jsonl"))),
            "seeds_trained_together": self.together,
            "device": ", then ".join(dict.fromkeys(device_name(part) for part in (config, about))),
            "engine": about["engine"],
            "random": state["returns"]["random"],
            "before": state["returns"]["before"],
            "returns": last.returns,
            "lengths": last.lengths,
            "curve": read_rows(self.run / "eval" / "evaluations.jsonl"),
            "command": " ".join([self.command, *(f"--{name} {config[name]}" for name in HOW)]),
            **{name: config.get(name) for name in PROVENANCE},
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.file, json.dumps(kept) + "\n")


def device_name(made: dict[str, Any]) -> str:
    """What a run was begun on, by its config, or saved on, by its checkpoint."""
    return str(made["versions"].get("gpu", made["device"])) if made["device"].startswith("cuda") else "cpu"


def train_seconds(rows: list[dict[str, Any]]) -> float:
    """Time a run was trained for, over all processes that had a part in it, the waiting between them left out."""
    total = first = reached = elapsed = 0.0
    began: float | None = None
    for row in rows:
        if not row.get("charts/SPS"):
            continue
        seconds = (row["step"] - first) / row["charts/SPS"]
        if began is not None and abs(row["charts/time"] - seconds - began) > SAME_START:  # another process
            total, first = total + elapsed, reached
            seconds = (row["step"] - first) / row["charts/SPS"]
            began = None
        began = row["charts/time"] - seconds if began is None else began
        elapsed, reached = seconds, row["step"]
    return total + elapsed


def main() -> int:
    """Measure; exit code 1 and one sentence if that cannot be done."""
    try:
        tyro.cli(Measure).write()
    except (MinervaError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
