"""Arguments of an environment as options of the command line: `--env-kwargs g=1.0 mode=fast`."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from minerva.errors import ConfigError


def parse_kwargs(words: Iterable[str]) -> dict[str, Any]:
    """Return the arguments of words such as `g=1.0`; a value that is not JSON is text."""
    parsed: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier() or name in parsed:
            raise ConfigError(f"env_kwargs has {word!r}: write each argument once, as name=value, such as g=1.0.")
        try:
            parsed[name] = json.loads(value)
        except (ValueError, RecursionError):
            parsed[name] = value
    return parsed


def kwargs_words(kwargs: Any) -> tuple[str, ...]:
    """Return the words from which `parse_kwargs` reads these arguments of a config file."""
    if not isinstance(kwargs, Mapping):
        raise ConfigError(f"env_kwargs is {kwargs!r}: it must be a mapping of names to values.")
    try:
        return tuple(f"{name}={json.dumps(value)}" for name, value in kwargs.items())
    except (TypeError, ValueError, RecursionError):
        raise ConfigError("env_kwargs holds a value that is neither a number, text, a list nor a mapping.") from None
