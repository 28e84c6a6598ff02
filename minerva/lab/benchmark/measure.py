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
"""Options of the training run that the result's command records; the evaluation may use others."""
SAME_START = 5.0
"""Seconds by which the starts computed from two rows of one process may differ."""


@dataclass(frozen=True)
class Measure:
    """The run to evaluate, the result file to write, and facts for it that the run does not know."""

    run: Path
    file: Path
    label: str
    preset: str
    changed: str
    command: str
    env: str | None = None
    episodes: int = 100
    together: int = 1

    def write(self) -> None:
        """Evaluate the run and write the result file atomically."""
        torch.set_num_threads(1)
        about, state = load_checkpoint(find_checkpoint(self.run, "last"))
        if about["finished"] is not True:
            raise RunError(f"{self.run} is not finished: finish its training first.")
        last = evaluate(self.run, which="last", episodes=self.episodes, env=self.env)
        config = read_config(self.run / "config.yaml")
        result = {
            "algo": about["algo"],
            "env": about["env"],
            "seed": about["seed"],
            "preset": self.preset,
            "label": self.label,
            "changed": json.loads(self.changed),
            "hyperparameters": config["hyperparameters"],
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
        write_atomically(self.file, json.dumps(result) + "\n")


def device_name(made: dict[str, Any]) -> str:
    """Return the device of a run's config (where it was started) or checkpoint (where it was saved)."""
    return str(made["versions"].get("gpu", made["device"])) if made["device"].startswith("cuda") else "cpu"


def train_seconds(rows: list[dict[str, Any]]) -> float:
    """Return the training time summed over all processes of a run, without the time between them."""
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
    """Measure the run of the command line. Return 0, or print one error message and return 1."""
    try:
        tyro.cli(Measure).write()
    except (MinervaError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
