"""Tuned settings per environment. Every number names where it comes from."""

import functools
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from minerva.config import nearest
from minerva.errors import ConfigError


class Preset(NamedTuple):
    """Settings that differ from the defaults, and the source of each."""

    name: str
    values: dict[str, Any]
    sources: dict[str, str]


NONE = Preset("none", {}, {})

NO_PRESETS = ("algo", "sources", "shared")
"""What else a file holds: whose presets they are, the sources by key, and the settings that presets share."""


def presets(algo: str) -> dict[str, Preset]:
    """All presets of an algorithm, by environment id or, for those that reproduce a peer, by name."""
    table = _table(algo)
    return {name: _preset(name, table) for name in _names(table)}


@functools.cache
def _table(algo: str) -> dict[str, Any]:
    """The file as it is. A grid asks for it once per cell, and reading it takes longer than all the rest."""
    file = resources.files("minerva.presets") / f"{algo}.toml"
    return tomllib.loads(file.read_text()) if file.is_file() else {}


def preset_for(algo: str, env: str, name: str = "auto") -> Preset:
    """The preset called `name`, or in that .toml file; "auto" is the environment's own, if it has one; "none": none."""
    known = presets(algo)
    if name == "none":
        return NONE
    if name.endswith(".toml"):
        return _from_file(Path(name), algo, env)
    if name == "auto":
        return known.get(env, NONE)
    if name not in known:
        raise ConfigError(f"{name} is not a preset of {algo}. {nearest(name, [*known, 'auto', 'none'])}")
    return known[name]


def _from_file(file: Path, algo: str, env: str) -> Preset:
    """The environment's preset in a file of the user's own, such as `minerva tune` writes."""
    try:
        table = tomllib.loads(file.read_text())
        made_for, known = table["algo"], _names(table)
        found = _preset(env, table) if env in known else None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{file} cannot be read as a preset ({error}): give a file as minerva tune writes it."
        ) from None
    if made_for != algo:
        raise ConfigError(f"{file} is a preset of {made_for}, not of {algo}: use minerva train {made_for}.")
    if found is None:
        raise ConfigError(f"{file} has no settings for {env}, only for {', '.join(known)}.")
    return found


def _names(table: dict[str, Any]) -> list[str]:
    return [name for name in table if name not in NO_PRESETS]


def _preset(name: str, table: dict[str, Any]) -> Preset:
    """A setting is written `name = [value, "key of its source"]`."""
    settings = _settings(name, table)
    values = {setting: value for setting, (value, _) in settings.items()}
    return Preset(name, values, {setting: table["sources"][key] for setting, (_, key) in settings.items()})


def _settings(name: str, table: dict[str, Any], heirs: tuple[str, ...] = ()) -> dict[str, Any]:
    """A block's settings over those of the block that it is `like`; `heirs` are the blocks that start from this one."""
    blocks = table.get("shared", {}) | {preset: table[preset] for preset in _names(table)}
    if name not in blocks:
        raise ConfigError(f"{heirs[-1]} is like {name}, which its file does not have. {nearest(str(name), blocks)}")
    if name in heirs:
        raise ConfigError(f"{' is like '.join([*heirs, name])}: one of them must state its settings without `like`.")
    own = dict(blocks[name])
    like = own.pop("like", None)
    return own if like is None else _settings(like, table, (*heirs, name)) | own
