"""Encoders that a person typed; a run's file may name one, and never imports it."""

import importlib
from typing import Any

from minerva.cli.typed_env import import_from_here
from minerva.errors import ConfigError


def typed_encoder(name: str | None) -> Any:
    """Return the class or function that `module:name` names; raise ConfigError if there is none."""
    if name is None:
        return None
    module, _, place = name.partition(":")
    if not module or not place:
        raise ConfigError(f"own_encoder is {name!r}: write the module and the name of its factory, as module:name.")
    import_from_here(name)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise ConfigError(
            f"own_encoder is {name!r}, and no module {module!r} can be imported: start in its folder, or install it."
        ) from None
    for part in place.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigError(f"own_encoder is {name!r}, and the module {module!r} has no class or function of that name.")
    return found
