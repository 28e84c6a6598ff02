"""Registry of the algorithms, one line each. Their modules are imported on first use.

An algorithm is its folder, its preset file, its page and its line here; `CONTRIBUTING.md` says what the folder has to
contain.
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minerva.config import Config, nearest
from minerva.errors import ConfigError
from minerva.metrics import Metric


class Algorithm(NamedTuple):
    """The names of an algorithm."""

    name: str
    """Name on the command line, of its folder in `minerva/trainers` and of its file in `minerva/presets`."""
    prefix: str
    """Prefix of its classes: <prefix>Config, <prefix>Agent, <prefix>Trainer."""
    title: str
    """Name in tables and charts."""
    long_title: str
    """Name in full."""


ALGORITHMS = {
    line[0]: Algorithm(*line)
    for line in (
        ("ppo", "PPO", "PPO", "Proximal Policy Optimisation"),
        ("mpo", "MPO", "MPO", "Maximum a posteriori Policy Optimisation"),
        ("vmpo", "VMPO", "V-MPO", "on-policy Maximum a posteriori Policy Optimisation"),
        ("sac", "SAC", "SAC", "Soft Actor-Critic"),
    )
}


def title(name: str) -> str:
    """Return an algorithm's name for tables and charts; an unknown algorithm keeps its own name."""
    return ALGORITHMS[name].title if name in ALGORITHMS else name


def class_homes() -> dict[str, str]:
    """Return the module path of every algorithm's config, agent and trainer class, by class name."""
    return {
        f"{algorithm.prefix}{part.capitalize()}": f"minerva.trainers.{algorithm.name}.{part}"
        for algorithm in ALGORITHMS.values()
        for part in ("agent", "config", "trainer")
    }


def config_class(name: str) -> type[Config]:
    """Return the config class of the algorithm `name`. Raise ConfigError for an unknown one."""
    config: type[Config] = _class(name, "config")
    return config


def agent_class(name: str) -> Any:
    """Return the agent class of the algorithm `name`, without importing anything of the environments."""
    return _class(name, "agent")


def trainer_class(name: str) -> Any:
    """Return the trainer class of the algorithm `name`."""
    return _class(name, "trainer")


def metrics_of(name: str) -> Sequence[Metric]:
    """Return the metrics that an algorithm's updates report; none if it is unknown, as in old result files."""
    if name not in ALGORITHMS:
        return ()
    metrics: Sequence[Metric] = importlib.import_module(f"minerva.trainers.{name}.metrics").METRICS
    return metrics


def published_as(name: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the algorithms whose published figures a result with these settings is compared with, closest first."""
    names = config_class(name).published_as(settings) if name in ALGORITHMS else ()
    return names or (title(name),)


def _class(name: str, part: str) -> Any:
    if name not in ALGORITHMS:
        raise ConfigError(f"{name} is not an algorithm of Minerva. {nearest(name, ALGORITHMS)}")
    module = importlib.import_module(f"minerva.trainers.{name}.{part}")
    return getattr(module, ALGORITHMS[name].prefix + part.capitalize())
