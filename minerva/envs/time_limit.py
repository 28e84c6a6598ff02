"""Find out whether the episodes of an environment end in any case."""

import math
from collections.abc import Iterator
from typing import Any

import gymnasium as gym

NAMES = ("_max_episode_steps", "max_episode_steps", "_step_limit")
"""Where gymnasium's TimeLimit, many environments of users, and dm_control keep their limits."""


def has_time_limit(env: gym.Env[Any, Any]) -> bool:
    """Return whether an environment or a wrapper of it has a time limit; one that only its code knows is not found."""
    found = (getattr(layer, name, None) for layer in _layers(env) for name in NAMES)
    return any(isinstance(limit, (int, float)) and math.isfinite(limit) for limit in found)


def _layers(env: Any) -> Iterator[Any]:
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env
    yield env
    yield getattr(env, "_env", None)  # dm_control's environment, inside its adapter
