"""Metrics logs: metrics.jsonl is the reference, TensorBoard and other loggers are views of it.

Every log in the folder is append-only. A checkpoint stores the length of each, and a resumed run cuts the logs off
there: no row is missing and none is there twice, however often a run is resumed.
"""

import contextlib
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from minerva.errors import TrainingError
from minerva.metrics import Metric
from minerva.runs import files
from minerva.runs.events import NAME, EventsFile
from minerva.runs.folder import RunFolder
from minerva.runs.loggers import Logger
from minerva.runs.tensorboard_layout import custom_scalars

logger = logging.getLogger("minerva")

Lengths = dict[str, int]
"""Length of each log in bytes, by its path in the run's folder."""


class MetricsWriter:
    """Writer of a run's metrics to all logs.

    `lengths` are those of the checkpoint that the run is resumed from, empty for a new run; `loggers` take
    each row too; `metrics` are the algorithm's, for TensorBoard's layout.
    """

    def __init__(
        self, folder: RunFolder, lengths: Lengths, loggers: Sequence[Logger] = (), metrics: Sequence[Metric] = ()
    ) -> None:
        self._loggers = loggers
        self.folder = folder
        for name in lengths.keys() - {self._name(path) for path in self._logs()}:
            logger.warning("%s is gone: the rows written to it before are lost", folder.path / name)
        for path in self._logs():
            self._cut(path, lengths.get(self._name(path), 0))
        for path in (folder.metrics, folder.evaluations):
            path.parent.mkdir(exist_ok=True)
        self._file = open(folder.metrics, "a", buffering=1)  # noqa: SIM115  closed in __exit__
        self._evaluations = open(folder.evaluations, "a", buffering=1)  # noqa: SIM115
        self._tensorboard = EventsFile(folder.tensorboard)
        self._tensorboard.arrange(custom_scalars(metrics))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one row of metrics to every log."""
        with self._disk():
            self._file.write(json.dumps({"step": step, **_finite_or_none(metrics)}) + "\n")
            self._tensorboard.log(step, metrics)
        for logger in self._loggers:
            logger.log(step, metrics)

    def write_evaluation(self, step: int, returns: list[float], lengths: list[int]) -> None:
        """Write the return and length of every episode of one evaluation."""
        with self._disk():
            self._evaluations.write(json.dumps({"step": step, "returns": returns, "lengths": lengths}) + "\n")

    def lengths(self) -> Lengths:
        """Sync every log to disk and return its length in bytes."""
        for path in self._logs():
            files.sync(path)
        return {self._name(path): path.stat().st_size for path in self._logs()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for log in (self._file, self._evaluations, self._tensorboard):
            with contextlib.suppress(OSError):  # rows up to the last checkpoint are already synced
                log.close()

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        """Turn an OSError, such as a full disk, into a TrainingError that names the fix."""
        try:
            yield
        except OSError as error:
            raise TrainingError(
                f"Metrics could not be written to {self.folder.path} ({error.strerror}): its last checkpoint is "
                "unchanged. Once the disk can be written to, continue with --resume."
            ) from None

    def _logs(self) -> list[Path]:
        logs = [path for path in (self.folder.metrics, self.folder.evaluations) if path.exists()]
        return logs + sorted(self.folder.tensorboard.glob(f"{NAME}*"))

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder.path).as_posix()

    def _cut(self, path: Path, length: int) -> None:
        if length == 0:
            files.remove(path)
            return
        if path.stat().st_size < length:
            logger.warning("%s is shorter than when the checkpoint was written: some of its rows are lost", path)
            if path.suffix == ".jsonl":
                length = path.read_bytes().rfind(b"\n") + 1  # the next row starts on a new line
        files.cut(path, min(length, path.stat().st_size))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a .jsonl file; skip a last line that was cut off, and anything else that is not a row."""
    rows = []
    for line in path.read_text(errors="replace").split("\n"):
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict):
                rows.append(row)
    return rows


def evaluation_means(path: Path) -> list[float]:
    """Return the mean return of each evaluation in an evaluations.jsonl."""
    means = []
    for row in read_rows(path):
        with contextlib.suppress(KeyError, TypeError, ValueError, ArithmeticError):
            means.append(math.fsum(row["returns"]) / len(row["returns"]))
    return means


def _finite_or_none(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def refuse_non_finite(step: int, metrics: Mapping[str, float], folder: RunFolder) -> None:
    """Raise TrainingError if a loss is not finite."""
    for name, value in metrics.items():
        if name.startswith("loss") and not math.isfinite(value):
            raise TrainingError(
                f"{name} became {value} at step {step}: the run is stopped, and {folder.last} holds its last good "
                "state. A lower learning rate or max_grad_norm usually helps."
            )
