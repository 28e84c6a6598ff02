"""Weights & Biases, optional: without it, offline or broken, training goes on and says so once."""

import contextlib
import importlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

logger = logging.getLogger("minerva")

_told = False


def log_wandb(metrics: Mapping[str, Any], step: int | None = None, silent: bool = False, run: Any = None) -> bool:
    """Send `metrics` to `run`, or to the active W&B run, if there is one. True if they were handed over.

    A missing package, a missing run or any error is reported once (never with `silent`) and costs nothing more.
    """
    try:
        wandb = importlib.import_module("wandb")
        if run is None and wandb.run is None:
            _tell_once("no Weights & Biases run is active: call wandb.init() first, or pass --wandb", silent)
            return False
        (wandb if run is None else run).log(dict(metrics), step=step)
        return True
    except (Exception, SystemExit) as error:  # a logger must never stop a run, whatever it raises
        _tell_once(f"Weights & Biases is not usable ({error}); training goes on without it", silent)
        return False


@contextlib.contextmanager
def wandb_run(
    project: str | None, name: str, config: Mapping[str, Any], group: str | None = None
) -> Iterator[Any | None]:
    """A W&B run for as long as the block lasts; None without a project, or if it could not begin.

    Runs of one `group` go side by side in one process; a run without one is the active run, `wandb.run`.
    """
    run = None if project is None else _start(project, name, config, group)
    try:
        yield run
    finally:
        if run is not None:
            _finish(run)


def _start(project: str, name: str, config: Mapping[str, Any], group: str | None) -> Any | None:
    """Begin a run; None, with one sentence in the log, if that is not possible."""
    beside = {} if group is None else {"group": group, "reinit": "create_new"}
    try:
        return importlib.import_module("wandb").init(project=project, name=name, config=dict(config), **beside)
    except (Exception, SystemExit) as error:  # as above
        _tell_once(f"Weights & Biases could not start ({error}); training goes on without it", silent=False)
        return None


def _finish(run: Any) -> None:
    """End a run, so that it sends what it still holds."""
    try:
        run.finish()
    except (Exception, SystemExit) as error:  # as above
        _tell_once(f"Weights & Biases could not be ended properly ({error}); the run itself is whole", silent=False)


def _tell_once(message: str, silent: bool) -> None:
    global _told
    if not silent and not _told:
        logger.warning(message)
        _told = True
