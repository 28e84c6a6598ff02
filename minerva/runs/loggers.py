"""Where a run's metrics go besides its own files: Weights & Biases, MLflow, and what a user brings."""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from minerva.errors import ConfigError
from minerva.utils.mlflow_utils import MLflow
from minerva.utils.wandb_utils import WeightsAndBiases

logger = logging.getLogger("minerva")


class Logger(Protocol):
    """Takes a run's metrics. If it raises an error, the run goes on without it, after one warning."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take one row of metrics: of an update, or of an evaluation (`eval/...`)."""

    def close(self) -> None:
        """Send or write what is left: the run is finished, stopped or failed."""


@dataclass(frozen=True)
class LoggedRun:
    """What a logger is told of its run when it is made."""

    folder: Path
    """The run's folder; its name is the run's."""
    config: Mapping[str, Any]
    """What `config.yaml` says of algorithm, task, seed and settings."""
    step: int = 0
    """Environment step at which the run begins; not 0 if it is resumed."""
    group: str | None = None
    """Name shared by the runs of seeds that are trained together; None: a single run."""


MakeLogger = Callable[[LoggedRun], Logger]
"""A logger's class, or another function that makes one for a run."""


def check_loggers(loggers: Any) -> None:
    """Raise ConfigError if something among the loggers cannot make one."""
    if callable(loggers) or not isinstance(loggers, Sequence):
        raise ConfigError("loggers must be a list: write loggers=[MyLogger].")
    for one in loggers:
        if not callable(one):
            raise ConfigError(
                f"The logger {one!r} cannot be made for a run: give its class, or a function of the run that makes it."
            )


def asked_for(loggers: Sequence[MakeLogger], wandb: str | None, mlflow: str | None) -> list[MakeLogger]:
    """Return the loggers of a run's settings: the user's, a project of Weights & Biases, an experiment of MLflow."""
    found = list(loggers)
    if wandb is not None:
        found.append(lambda run: WeightsAndBiases(wandb, run.folder.name, run.config, run.group))
    if mlflow is not None:
        found.append(lambda run: MLflow(mlflow, run.folder.name, run.config, run.group))
    return found


@contextlib.contextmanager
def opened(makers: Sequence[MakeLogger], run: LoggedRun) -> Iterator[list[Logger]]:
    """Make the loggers of a run, and close them after the block. None of their errors reaches the run."""
    loggers: list[Logger] = [_Guarded(made, run) for made in makers]
    try:
        yield loggers
    finally:
        for one in loggers:
            one.close()


class _Guarded:
    """A logger of somebody else: its first error is told, and the last that it is asked for."""

    def __init__(self, made: MakeLogger, run: LoggedRun) -> None:
        self._logger: Logger | None = None
        with self._guard(made):
            self._logger = made(run)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        with self._guard(self._logger):
            if self._logger is not None:
                self._logger.log(step, metrics)

    def close(self) -> None:
        with self._guard(self._logger):
            if self._logger is not None:
                self._logger.close()

    @contextlib.contextmanager
    def _guard(self, what: Any) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:  # a logger must never stop a run, whatever it raises
            name = getattr(what, "__name__", type(what).__name__)
            _warn_once(f"The logger {name} is not usable ({error}); training continues without it")
            self._logger = None


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning(message)
