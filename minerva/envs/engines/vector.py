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
from minerva.errors import EnvError, EnvStepError
from minerva.layout import Array


class VectorEngine(HostEngine):
    """Any `gymnasium.vector.VectorEnv`, such as SyncVectorEnv, AsyncVectorEnv, EnvPool's or one in wrappers."""

    name = "vector"
    resumes_exactly = False

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self.env, name = env, env_name(env)
        super().__init__(name, env.num_envs, *specs(prepared(_Single(env), name)))
        self._masks = np.ones((env.num_envs, self.action.mask_size), np.bool_)
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
        obs, infos = self.env.reset(options={"reset_mask": mask}) if seeds is None else self._reset_all(seeds)
        rows = self._rows(obs, self._set_masks(infos, mask))
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
        over = np.asarray(terminated) | np.asarray(truncated)
        ended, every = np.flatnonzero(over).tolist(), np.ones_like(over)
        next_obs = self._rows(obs, self._set_masks(infos, every, every if self._same_step else ~over))
        if self._same_step and ended:
            self._first_obs = next_obs.copy()
            final = infos.get("final_info", infos)
            masks = self._given_masks(final)
            for i in ended:
                next_obs[i] = self._rows(infos["final_obs"][i], masks[i])
            infos = final
        self._infos = {i: _info(infos, i) for i in ended}
        flags = (np.array(flag, np.bool_) for flag in (terminated, truncated))
        return next_obs, np.array(rewards, np.float64), *flags  # type: ignore[return-value]

    def ended_infos(self) -> Mapping[int, Mapping[str, float]]:
        """Return the numbers in the `info` of each environment whose episode ended in the last step."""
        return self._infos

    def close(self) -> None:
        """Leave the environments open: they are the user's."""

    def _rows(self, obs: Any, masks: Array) -> Array:
        """Return observations with their masks as new rows.  -> [E, O], or [O] for a single one"""
        try:
            rows = self.observation.flatten(obs, masks if self.action.masked else None)
        except ValueError as error:
            raise self._odd(error) from None
        return np.array(rows, self.observation.dtype)

    def _set_masks(self, infos: Mapping[str, Any], which: Array, chosen: Array | None = None) -> Array:
        """Set the masks of the environments of `which`, by which those of `chosen`, or of `which`, choose next."""
        self._masks = np.where(which[:, None], self._given_masks(infos), self._masks)
        if self.action.masked:
            try:
                self.action.checked_mask(self._masks[which if chosen is None else chosen])
            except ValueError as error:
                raise self._odd(error) from None
        return self._masks

    def _given_masks(self, infos: Mapping[str, Any]) -> Array:
        """Return the masks in the infos, in which `_action_mask` marks who gave one; all is possible for others."""
        masks = np.ones_like(self._masks)
        given, named = infos.get("action_mask"), infos.get("_action_mask", np.ones(self.num_envs, np.bool_))
        if not self.action.masked or given is None:
            return masks
        try:
            for i in np.flatnonzero(named).tolist():
                masks[i] = self.action.checked_mask(self.action.flat_mask(_entry(given, i)).ravel(), chosen=False)
        except ValueError as error:
            raise self._odd(error) from None
        return masks

    def _odd(self, error: ValueError) -> EnvStepError:
        return EnvStepError(
            f"{self.env_name} gave an odd observation: {error}. Fix the environment; the last checkpoint is unchanged."
        )


class _Single(gym.Env[Any, Any]):
    """The spaces of one environment of a vector environment, and the first infos of all, which tell of masks."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        self.vector = env

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all environments."""
        return self.vector.reset(seed=seed, options=options)


def _entry(values: Any, i: int) -> Any:
    """Return what environment i gave, of an array, or of a mapping of arrays."""
    return {name: _entry(part, i) for name, part in values.items()} if isinstance(values, Mapping) else values[i]


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
