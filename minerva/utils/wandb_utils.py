"""Optional logging to Weights & Biases."""

import importlib
import logging
from collections.abc import Mapping
from typing import Any

from minerva.errors import ConfigError, pip_install

logger = logging.getLogger("minerva")

_warned = False


def refuse_missing_wandb() -> None:
    """Raise ConfigError if the package of Weights & Biases is not installed: before a run that is to log there."""
    try:
        importlib.import_module("wandb")
    except ImportError:
        raise ConfigError(f"Weights & Biases is asked for and not installed: {pip_install('wandb')}.") from None


def log_wandb(metrics: Mapping[str, Any], step: int | None = None, silent: bool = False, run: Any = None) -> bool:
    """Log `metrics` to `run`, or to the active W&B run if there is one; return whether they were logged.

    A missing package, a missing run or any error is logged once (never with `silent`) and has no other effect.
    """
    try:
        wandb = importlib.import_module("wandb")
        if run is None and wandb.run is None:
            _warn_once("no Weights & Biases run is active: call wandb.init() first, or pass --wandb", silent)
            return False
        (wandb if run is None else run).log(dict(metrics), step=step)
        return True
    except (Exception, SystemExit) as error:  # a logger must never stop a run, whatever it raises
        _warn_once(f"Weights & Biases is not usable ({error}); training continues without it", silent)
        return False


class WeightsAndBiases:
    """A run of a W&B project.

    Runs of one `group` are open at the same time in one process; a run without a group is the active run, `wandb.run`.
    """

    def __init__(self, project: str, name: str, config: Mapping[str, Any], group: str | None = None) -> None:
        grouping = {} if group is None else {"group": group, "reinit": "create_new"}
        wandb = importlib.import_module("wandb")
        self._run = wandb.init(project=project, name=name, config=dict(config), **grouping)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log a row of metrics."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Finish the run, so that it sends its buffered data."""
        self._run.finish()


def _warn_once(message: str, silent: bool) -> None:
    global _warned
    if not silent and not _warned:
        logger.warning(message)
        _warned = True
