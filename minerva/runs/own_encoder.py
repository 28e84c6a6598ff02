"""A user's own encoder: its name in a run's files, and the rule that a file never imports the code that it names."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minerva.errors import CheckpointError, ConfigError

if TYPE_CHECKING:  # PyTorch, which reading a command's options does not need
    from minerva.networks.observations import EncoderFactory

ENCODER = "own_encoder"
"""Key in a run's config and checkpoints: `module:name` of the factory."""


def encoder_name(factory: Any) -> str:
    """Return `module:name` of a factory; raise ConfigError if nobody could import it by that."""
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", "")
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(factory) or found is not factory:
        raise ConfigError(
            f"The own_encoder is {factory!r}: give a class or a function of a module, so that the run can name it."
        )
    return f"{module}:{name}"


def encoder_for(about: Mapping[str, Any], given: "EncoderFactory | str | None", source: Any) -> Any:
    """Return the encoder to rebuild the networks of a run's file with, which only a person can give.

    Raise CheckpointError if the file names one and none is given, or the other way round.
    """
    named = about.get(ENCODER)
    if named is not None and given is None:
        raise CheckpointError(
            f"{source} was trained with the encoder {str(named)[:200]!r}, which is not part of Minerva, and a file may "
            "not import code: if you trust it, give it in Python as own_encoder=..., on the command line as "
            "--own-encoder module:name."
        )
    if named is None and given is not None:
        raise CheckpointError(f"{source} was trained without an own encoder: leave out the one that is given.")
    return given
