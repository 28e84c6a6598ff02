"""`minerva train --config` of a run that began with the weights of another one: begin with them again, or refuse."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minerva.errors import ConfigError
from minerva.loop.trainer import Trainer
from minerva.runs.folder import read_config
from minerva.runs.origin import AGENT, POLICY, Origin


def saved_parent(saved: Mapping[str, Any], given: Path | None, optimizer: bool) -> tuple[Path | None, bool]:
    """Return the checkpoint that the run of a config began with, if any, or the one `given` by a person instead.

    The second value tells whether the whole agent is taken from it, with the state of its optimiser.

    Raise ConfigError if the run cannot begin with it again.
    """
    origin = _origin(saved)
    if origin is None or given is not None:
        return given, optimizer
    if origin.taken not in (POLICY, AGENT):
        raise ConfigError(
            f"the run was {origin} inside a program, which its config does not repeat: run the program again, or give "
            "--init-from."
        )
    if not Path(origin.checkpoint).is_file():
        raise ConfigError(
            f"the run began with the weights of {origin.checkpoint}, which is not there: give its place as --init-from."
        )
    return Path(origin.checkpoint), origin.taken == AGENT


def require_saved_weights(config: Path | None, init_from: Path | None, trainer: Trainer) -> None:
    """Raise ConfigError if a run begins with the checkpoint that its config names, and that has other weights now."""
    saved = None if config is None else _origin(read_config(config / "config.yaml" if config.is_dir() else config))
    if saved is None or init_from is None or Path(saved.checkpoint) != init_from:
        return
    found = trainer.origin
    if found is None or found.weights != saved.weights:
        raise ConfigError(
            f"{config} began with weights of {init_from} at step {saved.step:,} ({saved.weights[:16]}), and that file "
            "holds others now: give a copy of the old one as --init-from."
        )


def _origin(saved: Mapping[str, Any]) -> Origin | None:
    try:
        return Origin.read(saved)
    except ValueError as error:
        raise ConfigError(f"{error}: give a config.yaml that Minerva wrote.") from None
