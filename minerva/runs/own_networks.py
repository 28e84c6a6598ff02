"""A user's own networks: their names in a run's files, and the rule that a file never imports what it names."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minerva.errors import CheckpointError, ConfigError

if TYPE_CHECKING:  # PyTorch, which reading a command's options does not need
    from minerva.networks.own import OwnNetworks

NETWORKS = "own_networks"
"""Key in a run's config and checkpoints: `module:name` of the factory, by the part of the networks that it makes."""


def saved_networks(own: "OwnNetworks | None") -> dict[str, dict[str, str]]:
    """Return what a run's files say of a user's own networks; raise ConfigError if one has no name to import it by."""
    return {NETWORKS: {part: _name(part, factory) for part, factory in own.items()}} if own else {}


def _name(part: str, factory: Any) -> str:
    """Return `module:name` of a factory; raise ConfigError if nobody could import it by that."""
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", "")
    found: Any = sys.modules.get(module or "")
    for step in name.split("."):
        found = getattr(found, step, None)
    if not callable(factory) or found is not factory:
        raise ConfigError(
            f"The {part} in own_networks is {factory!r}: give a class or a function of a module, so that the run can "
            "name it."
        )
    return f"{module}:{name}"


def networks_for(about: Mapping[str, Any], given: Mapping[str, Any] | None, source: Any) -> Any:
    """Return the networks to rebuild those of a run's file with, which only a person can give.

    Raise CheckpointError if the file names one and none is given, or the other way round.
    """
    named, given = about.get(NETWORKS) or {}, given or {}
    if not isinstance(named, Mapping):
        raise CheckpointError(f"{source} is damaged: its {NETWORKS} is no table.")
    for part, name in named.items():
        if part not in given:
            raise CheckpointError(
                f"{source} was trained with the {str(part)[:20]} {str(name)[:200]!r}, which is not part of Minerva, "
                f"and a file may not import code: if you trust it, give it in Python as own_networks={{{part!r}: ...}}"
                f", on the command line as --own-networks {part}=module:name."
            )
    for part in given:
        if part not in named:
            raise CheckpointError(f"{source} was trained without an own {part}: leave out the one that is given.")
    return given or None
