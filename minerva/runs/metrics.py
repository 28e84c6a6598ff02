"""Where metrics go: metrics.jsonl is the truth, TensorBoard and Weights & Biases are views of it."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch.utils.tensorboard import SummaryWriter

from minerva.runs.folder import RunFolder, write_whole
from minerva.utils.wandb_utils import log_wandb


class MetricsWriter:
    """Writes each row to every place. Of a run that goes on from `step`, later rows are forgotten; -1: all rows."""

    def __init__(self, folder: RunFolder, step: int, wandb: bool) -> None:
        self.wandb = wandb
        self._keep_until(folder.metrics, step)
        self._keep_until(folder.evaluations, step)
        self._file = open(folder.metrics, "a", buffering=1)  # noqa: SIM115  closed in __exit__
        self._evaluations = open(folder.evaluations, "a", buffering=1)  # noqa: SIM115
        self._tensorboard = SummaryWriter(str(folder.tensorboard), purge_step=step + 1)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """One row of numbers."""
        self._file.write(json.dumps({"step": step, **_finite_or_none(metrics)}) + "\n")
        for name, value in metrics.items():
            self._tensorboard.add_scalar(name, value, step)
        if self.wandb:
            log_wandb(metrics, step)

    def write_evaluation(self, step: int, returns: list[float], lengths: list[int]) -> None:
        """Every episode of one evaluation."""
        self._evaluations.write(json.dumps({"step": step, "returns": returns, "lengths": lengths}) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._evaluations.close()
        self._tensorboard.close()

    @staticmethod
    def _keep_until(path: Path, step: int) -> None:
        if path.exists():
            kept = [row for row in read_rows(path) if row["step"] <= step]
            write_whole(path, "".join(json.dumps(row) + "\n" for row in kept))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a .jsonl file; a last line that was cut off is left out."""
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def _finite_or_none(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}
