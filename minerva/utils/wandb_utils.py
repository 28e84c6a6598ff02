"""Optional logging to Weights & Biases: if it is offline or fails, training continues with one warning."""

import contextlib
import importlib
import logging
from collections.abc import Iterator, Mapping
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


@contextlib.contextmanager
def wandb_run(
    project: str | None, name: str, config: Mapping[str, Any], group: str | None = None
) -> Iterator[Any | None]:
    """Open a W&B run for the block; it is None without a project, or if the run could not start.

    Runs of one `group` are open at the same time in one process; a run without a group is the active run, `wandb.run`.
    """
    run = None if project is None else _start(project, name, config, group)
    try:
        yield run
    finally:
        if run is not None:
            _finish(run)


def _start(project: str, name: str, config: Mapping[str, Any], group: str | None) -> Any | None:
    """Start a run; return None, with one warning, if that fails."""
    grouping = {} if group is None else {"group": group, "reinit": "create_new"}
    try:
        return importlib.import_module("wandb").init(project=project, name=name, config=dict(config), **grouping)
    except (Exception, SystemExit) as error:  # as above
        _warn_once(f"Weights & Biases could not start ({error}); training continues without it", silent=False)
        return None


def _finish(run: Any) -> None:
    """Finish a run, so that it sends its buffered data."""
    try:
        run.finish()
    except (Exception, SystemExit) as error:  # as above
        _warn_once(f"Weights & Biases could not be ended properly ({error}); the run itself is whole", silent=False)


def _warn_once(message: str, silent: bool) -> None:
    global _warned
    if not silent and not _warned:
        logger.warning(message)
        _warned = True
