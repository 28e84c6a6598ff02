"""Presets: tuned settings per environment, with the source of every number."""

import functools
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from minerva.config import Config, check_plain, nearest, read_text
from minerva.errors import ConfigError


class Preset(NamedTuple):
    """A preset: values of settings, and the source of each; all other settings keep their defaults."""

    name: str
    values: dict[str, Any]
    sources: dict[str, str]

    def changes(self, defaults: Config) -> dict[str, Any]:
        """Return the values that differ from those of a default config."""
        same = defaults.to_dict()
        return {name: value for name, value in self.values.items() if name not in same or same[name] != value}


NONE = Preset("none", {}, {})

DEFAULT_STEPS = 1_000_000
"""Environment steps of a run whose preset names none."""

RESERVED = ("algo", "sources", "shared")
"""Tables of a preset file that are not presets: the algorithm, the sources by key, and shared blocks of settings."""


def presets(algo: str) -> dict[str, Preset]:
    """Return all presets of an algorithm, by environment id or, for those that reproduce another library, by name."""
    table = _table(algo)
    return {name: _preset(name, table) for name in _names(table)}


@functools.cache
def _table(algo: str) -> dict[str, Any]:
    """Parse an algorithm's preset file. Cached: a grid needs it once per cell, and parsing dominates its time."""
    file = resources.files("minerva.presets") / f"{algo}.toml"
    return tomllib.loads(file.read_text()) if file.is_file() else {}


def preset_for(algo: str, env: str, name: str) -> Preset:
    """Return the preset called `name`, or that of a .toml file; "auto": the environment's, if any; "none": empty."""
    if name == "none":
        return NONE
    if name.endswith(".toml"):
        return _from_file(Path(name), algo, env)
    table = _table(algo)
    known = _names(table)
    if name == "auto":
        return _preset(env, table) if env in known else NONE
    if name not in known:
        raise ConfigError(f"{name} is not a preset of {algo}. {nearest(name, [*known, 'auto', 'none'])}")
    return _preset(name, table)


def _from_file(file: Path, algo: str, env: str) -> Preset:
    """Return the environment's preset in a user's file, such as `minerva tune` writes."""
    try:
        table = tomllib.loads(read_text(file))
        check_plain(table)
        made_for, known = table["algo"], _names(table)
        found = _preset(env, table) if env in known else None
    except (OSError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{file} cannot be read as a preset ({error}): give a file as minerva tune writes it."
        ) from None
    if made_for != algo:
        raise ConfigError(f"{file} is a preset of {made_for}, not of {algo}: use minerva train {made_for}.")
    if found is None:
        raise ConfigError(f"{file} has no settings for {env}, only for {', '.join(known)}.")
    return found


def _names(table: dict[str, Any]) -> list[str]:
    return [name for name in table if name not in RESERVED]


def _preset(name: str, table: dict[str, Any]) -> Preset:
    """Return a preset of a file; a setting is written `name = [value, "key of its source"]`, None as "none"."""
    settings = _settings(name, table)
    values = {setting: None if value == "none" else value for setting, (value, _) in settings.items()}
    return Preset(name, values, {setting: table["sources"][key] for setting, (_, key) in settings.items()})


def _settings(name: str, table: dict[str, Any], heirs: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a block's settings, over those of the block that it is `like`; `heirs` are the blocks like this one."""
    blocks = table.get("shared", {}) | {preset: table[preset] for preset in _names(table)}
    if name not in blocks:
        raise ConfigError(f"{heirs[-1]} is like {name}, which its file does not have. {nearest(str(name), blocks)}")
    if name in heirs:
        raise ConfigError(f"{' is like '.join([*heirs, name])}: one of them must state its settings without `like`.")
    own = dict(blocks[name])
    like = own.pop("like", None)
    return own if like is None else _settings(like, table, (*heirs, name)) | own
