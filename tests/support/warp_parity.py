"""One step of a task from the same states, in MuJoCo Warp and in gymnasium or dm_control on the CPU."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch

from minerva.compute.tree import copy_
from minerva.envs.engines.warp import WarpEngine
from minerva.envs.ids import factory
from minerva.envs.spaces import prepared

WORLDS, BEFORE = 50, 15


class Compared(NamedTuple):
    """Errors of each world's observation and reward, and both terminations.  [E] each"""

    obs: Any
    rewards: Any
    terminated: Any
    expected: Any


def compared(env_id: str) -> Compared:
    """Step 50 worlds once from states that random actions led to, and the same states in the task's own simulator."""
    engine = WarpEngine(env_id, WORLDS, torch.device("cpu"))
    engine.reset(range(WORLDS))
    source = torch.Generator().manual_seed(0)
    for _ in range(BEFORE):
        actions = 2 * torch.rand(WORLDS, engine.action.size, generator=source) - 1
        engine.step(actions)
    data = engine.state["simulation"]["data"]
    states = {name: values.clone() for name, values in data.items()}
    states["qacc_warmstart"].zero_()
    copy_(data, states)
    engine.observed_starts()
    actions = 2 * torch.rand(WORLDS, engine.action.size, generator=source) - 1
    step = engine.step(actions)
    native = engine.in_units(actions).double().numpy()
    env = prepared(factory(env_id)(), env_id)
    env.reset(seed=0)
    truth = [
        _one(env, {name: rows[i].double().numpy() for name, rows in states.items()}, native[i]) for i in range(WORLDS)
    ]
    obs, rewards, terminated = (np.array(part) for part in zip(*truth, strict=True))
    env.close()
    rewards = error(step.rewards.numpy()[:, None], rewards[:, None])
    return Compared(error(step.next_obs.numpy(), obs), rewards, step.terminated.numpy(), terminated)


def error(values: Any, truth: Any) -> Any:
    """The largest error of a world's numbers, relative to the largest of them if that is above 1.  [E, n] -> [E]"""
    return np.abs(values - truth).max(1) / np.maximum(1, np.abs(truth).max(1))


def _one(env: gym.Env[Any, Any], state: dict[str, Any], action: Any) -> tuple[Any, float, bool]:
    """One step from a state: (observation, reward, terminated)."""
    inner: Any = env.unwrapped
    env.reset()
    if hasattr(inner, "set_state"):
        inner.set_state(state["qpos"], state["qvel"])
    else:
        physics = inner._env.physics
        with physics.reset_context():
            for name, values in state.items():
                if name != "qacc_warmstart":
                    owner = (
                        physics.model
                        if hasattr(physics.model, name) and not hasattr(physics.data, name)
                        else physics.data
                    )
                    getattr(owner, name)[:] = values
    obs, reward, terminated, _, _ = env.step(action)
    return obs, float(reward), terminated
