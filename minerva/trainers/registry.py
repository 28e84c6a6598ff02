"""The algorithms by name. Each is imported when it is asked for."""

import importlib
from typing import Any

from minerva.config import Config, nearest
from minerva.errors import ConfigError

PREFIXES = {"ppo": "PPO", "mpo": "MPO", "vmpo": "VMPO"}


def config_class(name: str) -> type[Config]:
    """The config of the algorithm called `name`."""
    config: type[Config] = _member(name, "config", "Config")
    return config


def agent_class(name: str) -> Any:
    """Its agent; nothing of the environments is imported."""
    return _member(name, "agent", "Agent")


def trainer_class(name: str) -> Any:
    """Its trainer."""
    return _member(name, "trainer", "Trainer")


def _member(name: str, module: str, suffix: str) -> Any:
    if name not in PREFIXES:
        raise ConfigError(f"{name} is not an algorithm of Minerva. {nearest(name, PREFIXES)}")
    return getattr(importlib.import_module(f"minerva.trainers.{name}.{module}"), PREFIXES[name] + suffix)
