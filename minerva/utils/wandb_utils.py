"""Weights & Biases, optional: without it, offline or broken, training goes on and says so once."""

import importlib
import logging
from collections.abc import Mapping
from typing import Any

logger = logging.getLogger("minerva")

_told = False


def log_wandb(metrics: Mapping[str, Any], step: int | None = None, silent: bool = False) -> bool:
    """Send `metrics` to the active W&B run, if there is one. True if they were handed over.

    A missing package, a missing run or any error is reported once (never with `silent`) and costs nothing more.
    """
    try:
        wandb = importlib.import_module("wandb")
        if wandb.run is None:
            _tell_once("no Weights & Biases run is active: call wandb.init() first, or pass --wandb", silent)
            return False
        wandb.log(dict(metrics), step=step)
        return True
    except (Exception, SystemExit) as error:  # a logger must never stop a run, whatever it raises
        _tell_once(f"Weights & Biases is not usable ({error}); training goes on without it", silent)
        return False


def start_wandb(project: str, name: str, config: Mapping[str, Any]) -> bool:
    """Begin a W&B run; False, with one sentence in the log, if that is not possible."""
    try:
        importlib.import_module("wandb").init(project=project, name=name, config=dict(config))
        return True
    except (Exception, SystemExit) as error:  # as above
        _tell_once(f"Weights & Biases could not start ({error}); training goes on without it", silent=False)
        return False


def finish_wandb() -> None:
    """End the W&B run that `start_wandb` began, so that it sends what it still holds."""
    try:
        importlib.import_module("wandb").finish()
    except (Exception, SystemExit) as error:  # as above
        _tell_once(f"Weights & Biases could not be ended properly ({error}); the run itself is whole", silent=False)


def _tell_once(message: str, silent: bool) -> None:
    global _told
    if not silent and not _told:
        logger.warning(message)
        _told = True
