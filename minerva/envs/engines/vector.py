"""The engine `vector`: a vector environment that the user has made, stepped as it is.

gymnasium's vector environments reset an ended environment by themselves, in the same step or in the next one. Here the
row of a reset never becomes data: what is reset in the next step is reset before it, with `reset_mask`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from minerva.envs.engine import numbers_in
from minerva.envs.engines.host import Arrays, HostEngine
from minerva.envs.ids import EnvFactory, EnvLike, VectorEnv, env_name
from minerva.envs.spaces import prepared, specs
from minerva.errors import EnvError
from minerva.layout import Array


class VectorEngine(HostEngine):
    """Any `gymnasium.vector.VectorEnv`, such as SyncVectorEnv, AsyncVectorEnv, EnvPool's or one in wrappers."""

    name = "vector"
    resumes_exactly = False

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self.env, name = env, env_name(env)
        super().__init__(name, env.num_envs, *specs(prepared(_Single(env), name)))
        self._same_step = env.metadata.get("autoreset_mode") == AutoresetMode.SAME_STEP
        self._infos: dict[int, dict[str, float]] = {}
        self._first_obs: Array = self._obs  # of the episodes that began in the same step

    @classmethod
    def unavailable_reason(cls, env: EnvLike) -> str | None:
        """Return None for a vector environment."""
        return None if isinstance(env, VectorEnv) else f"{env_name(env)} is no vector environment"

    @classmethod
    def make(cls, env: EnvLike, num_envs: int, share: int, device: torch.device) -> "VectorEngine":
        """Step a vector environment of `num_envs` environments."""
        if not isinstance(env, VectorEnv):
            raise EnvError(f"The engine vector steps a gymnasium.vector.VectorEnv, and {env_name(env)} is none.")
        if env.num_envs != num_envs:
            raise EnvError(f"{env_name(env)} has {env.num_envs} environments: set num_envs to {env.num_envs}.")
        return cls(env)

    def reset_arrays(self, mask: Array, seeds: Sequence[int] | None = None) -> Array:
        """Reset the environments of `mask`; those of an environment that resets in the same step have begun already."""
        if seeds is None and self._same_step:
            return self._first_obs[mask]
        obs, _ = self.env.reset(options={"reset_mask": mask}) if seeds is None else self._reset_all(seeds)
        rows = self._flat(obs)
        if len(rows) == mask.sum():  # EnvPool returns those that were reset
            return rows
        if not np.array_equal(rows[~mask], self._obs[~mask]):
            raise EnvError(
                f"{self.env_name} begins every episode anew where options={{'reset_mask': ...}} names one, so that the "
                "others would break off unseen: let its reset heed the mask, let it reset in the same step "
                "(AutoresetMode.SAME_STEP), or give the id or a function that makes one environment."
            )
        return rows[mask]

    def _reset_all(self, seeds: Sequence[int]) -> tuple[Any, Any]:
        """Reset every environment, each with its own seed, or all with the first where one number is taken."""
        each: Any = [int(seed) for seed in seeds]
        try:
            return self.env.reset(seed=each)
        except (gym.error.Error, TypeError, ValueError):  # one generator for all, as gymnasium's CartPoleVectorEnv has
            return self.env.reset(seed=each[0])

    def send_arrays(self, actions: Array) -> None:
        """Keep the actions for `recv_arrays`."""
        choices = bool(self.action.counts)
        self._actions = self.action.native(actions) if choices else actions.astype(self.env.single_action_space.dtype)

    def recv_arrays(self) -> Arrays:
        """Step the environments and return the arrays, with the true next observation where an episode ended."""
        obs, rewards, terminated, truncated, infos = self.env.step(self._actions)
        next_obs = self._flat(obs)
        ended = np.flatnonzero(np.asarray(terminated) | np.asarray(truncated)).tolist()
        if self._same_step and ended:
            self._first_obs = next_obs.copy()
            for i in ended:
                next_obs[i] = self._flat(infos["final_obs"][i])
            infos = infos.get("final_info", infos)
        self._infos = {i: _info(infos, i) for i in ended}
        flags = (np.array(flag, np.bool_) for flag in (terminated, truncated))
        return next_obs, np.array(rewards, np.float64), *flags  # type: ignore[return-value]

    def ended_infos(self) -> Mapping[int, Mapping[str, float]]:
        """Return the numbers in the `info` of each environment whose episode ended in the last step."""
        return self._infos

    def close(self) -> None:
        """Leave the environments open: they are the user's."""

    def _flat(self, obs: Any) -> Array:
        """Return observations as new rows.  -> [E, O], or [O] for a single one"""
        return np.array(self.observation.flatten(obs), self.observation.dtype)


class _Single(gym.Env[Any, Any]):
    """The spaces of one environment of a vector environment."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space


def _info(infos: Mapping[str, Any], i: int) -> dict[str, float]:
    """Return the numbers of environment i in the infos of a vector environment, which marks who has them by `_name`."""
    every = np.ones(i + 1, np.bool_)
    arrays = {name: values for name, values in infos.items() if isinstance(values, np.ndarray) and values.ndim == 1}
    held = {name for name in arrays if not name.startswith("_") and arrays.get(f"_{name}", every)[i]}
    return numbers_in({name: arrays[name][i] for name in held})


def single_env(env: VectorEnv[Any, Any, Any]) -> EnvFactory:
    """Return a function that makes one environment as those of a vector environment are, for evaluation."""
    functions = getattr(env, "env_fns", None)
    if functions:
        made: EnvFactory = functions[0]
        return made
    raise EnvError(
        f"{env_name(env)} does not tell how one of its environments is made, and evaluation steps its own: give "
        "eval_env, an id or a function that makes one."
    )
