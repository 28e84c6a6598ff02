"""The algorithms, one line each. Everything else that names one reads it here; each is imported when it is asked for.

A line is all that an algorithm needs outside its folder, its preset file and its page: `CONTRIBUTING.md` says what the
folder has to hold.
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minerva.config import Config, nearest
from minerva.errors import ConfigError
from minerva.metrics import Metric


class Algorithm(NamedTuple):
    """How an algorithm is called."""

    name: str
    """On the command line; also its folder in `minerva/trainers` and its file in `minerva/presets`."""
    prefix: str
    """What its classes begin with: <prefix>Config, <prefix>Agent, <prefix>Trainer."""
    title: str
    """In tables and charts."""
    long_title: str


ALGORITHMS = {
    line[0]: Algorithm(*line)
    for line in (
        ("ppo", "PPO", "PPO", "Proximal Policy Optimisation"),
        ("mpo", "MPO", "MPO", "Maximum a posteriori Policy Optimisation"),
        ("vmpo", "VMPO", "V-MPO", "on-policy Maximum a posteriori Policy Optimisation"),
    )
}


def title(name: str) -> str:
    """Return what tables and charts call an algorithm; one that is unknown keeps its name."""
    return ALGORITHMS[name].title if name in ALGORITHMS else name


def class_homes() -> dict[str, str]:
    """Return the module of every algorithm's config, agent and trainer, by class name."""
    return {
        f"{algorithm.prefix}{part.capitalize()}": f"minerva.trainers.{algorithm.name}.{part}"
        for algorithm in ALGORITHMS.values()
        for part in ("agent", "config", "trainer")
    }


def config_class(name: str) -> type[Config]:
    """Return the config of the algorithm called `name`."""
    config: type[Config] = _class(name, "config")
    return config


def agent_class(name: str) -> Any:
    """Return the algorithm's agent; nothing of the environments is imported."""
    return _class(name, "agent")


def trainer_class(name: str) -> Any:
    """Return the algorithm's trainer."""
    return _class(name, "trainer")


def metrics_of(name: str) -> Sequence[Metric]:
    """Return what the algorithm's updates report; nothing for an algorithm that is unknown, as in old result files."""
    if name not in ALGORITHMS:
        return ()
    metrics: Sequence[Metric] = importlib.import_module(f"minerva.trainers.{name}.metrics").METRICS
    return metrics


def published_as(name: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return whose published figures a result with these settings is compared with, the closest first."""
    own = config_class(name).published_as(settings) if name in ALGORITHMS else ()
    return own or (title(name),)


def _class(name: str, part: str) -> Any:
    if name not in ALGORITHMS:
        raise ConfigError(f"{name} is not an algorithm of Minerva. {nearest(name, ALGORITHMS)}")
    module = importlib.import_module(f"minerva.trainers.{name}.{part}")
    return getattr(module, ALGORITHMS[name].prefix + part.capitalize())
