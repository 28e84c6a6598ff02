"""Tuned settings per environment. Every number names where it comes from."""

import functools
import tomllib
from importlib import resources
from typing import Any, NamedTuple

from minerva.config import nearest
from minerva.errors import ConfigError


class Preset(NamedTuple):
    """Settings that differ from the defaults, and the source of each."""

    name: str
    values: dict[str, Any]
    sources: dict[str, str]


NONE = Preset("none", {}, {})


def presets(algo: str) -> dict[str, Preset]:
    """All presets of an algorithm, by environment id or, for those that reproduce a peer, by name."""
    table = _table(algo)
    return {name: _preset(name, settings, table) for name, settings in table.items() if name != "sources"}


@functools.cache
def _table(algo: str) -> dict[str, Any]:
    """The file as it is. A grid asks for it once per cell, and reading it takes longer than all the rest."""
    file = resources.files("minerva.presets") / f"{algo}.toml"
    return tomllib.loads(file.read_text()) if file.is_file() else {}


def preset_for(algo: str, env: str, name: str = "auto") -> Preset:
    """The preset called `name`; "auto" is the environment's own if it has one, "none" is no preset."""
    known = presets(algo)
    if name == "none":
        return NONE
    if name == "auto":
        return known.get(env, NONE)
    if name not in known:
        raise ConfigError(f"{name} is not a preset of {algo}. {nearest(name, [*known, 'auto', 'none'])}")
    return known[name]


def _preset(name: str, settings: dict[str, Any], table: dict[str, Any]) -> Preset:
    """A setting is written `name = [value, "key of its source"]`."""
    values = {setting: value for setting, (value, _) in settings.items()}
    return Preset(name, values, {setting: table["sources"][key] for setting, (_, key) in settings.items()})
