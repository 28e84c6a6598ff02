"""Networks of own modules that a person typed; a run's file may name some, and never imports them."""

import importlib
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from minerva.cli.typed_env import import_from_here
from minerva.errors import ConfigError

OwnWords = Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="[PART=MODULE:NAME ...]")]
"""Type of the option."""


def typed_names(words: Sequence[str] | None) -> dict[str, str]:
    """Return the factory's `module:name` by the part of the networks that it makes, from `part=module:name`."""
    names = {}
    for word in words or ():
        part, _, name = word.partition("=")
        if not all(name.partition(":")) or part in names:
            raise ConfigError(
                f"--own-networks has {word!r}: write part=module:name, once for encoder, policy or critic."
            )
        names[part] = name
    return names


def typed_networks(words: Sequence[str] | None) -> dict[str, Any] | None:
    """Return the classes or functions that `part=module:name` names; raise ConfigError if there is none."""
    return {part: _imported(part, name) for part, name in typed_names(words).items()} or None


def _imported(part: str, name: str) -> Any:
    module, _, place = name.partition(":")
    import_from_here(name)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise ConfigError(
            f"The own {part} is {name!r}, and no module {module!r} can be imported: start in its folder, or install it."
        ) from None
    for step in place.split("."):
        found = getattr(found, step, None)
    if not callable(found):
        raise ConfigError(f"The own {part} is {name!r}, and {module!r} has no class or function of that name.")
    return found
