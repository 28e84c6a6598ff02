"""Optional logging to MLflow, at the tracking server or in the folder that `MLFLOW_TRACKING_URI` names."""

import importlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from minerva.errors import ConfigError, pip_install

BATCH = 100
"""Parameters that MLflow takes in one call."""
LONGEST = 6000
"""Characters of a parameter's value that MLflow takes."""


def refuse_missing_mlflow() -> None:
    """Raise ConfigError if MLflow is not installed: before a run that is to log there."""
    try:
        importlib.import_module("mlflow")
    except ImportError:
        raise ConfigError(f"MLflow is asked for and not installed: {pip_install('mlflow')}.") from None


class MLflow:
    """A run of an MLflow experiment, which is made if there is none of this name."""

    def __init__(self, experiment: str, name: str, config: Mapping[str, Any], group: str | None = None) -> None:
        self._mlflow = importlib.import_module("mlflow")
        self._client = self._mlflow.MlflowClient()
        known = self._client.get_experiment_by_name(experiment)
        number = self._client.create_experiment(experiment) if known is None else known.experiment_id
        tags = {"group": group} if group else {}
        self._run = self._client.create_run(number, run_name=name, tags=tags).info.run_id
        pairs = list(_flat(config))
        for first in range(0, len(pairs), BATCH):
            parts = pairs[first : first + BATCH]
            params = [self._mlflow.entities.Param(key, str(value)[:LONGEST]) for key, value in parts]
            self._client.log_batch(self._run, params=params)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log a row of metrics."""
        now = int(time.time() * 1000)
        made = [self._mlflow.entities.Metric(name, float(value), now, step) for name, value in metrics.items()]
        self._client.log_batch(self._run, metrics=made)

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self._run)


def _flat(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings, with their keys joined by dots."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value if not isinstance(value, Sequence) or isinstance(value, str) else list(value)
