"""Environments of gymnasium, stepped one after another in the caller's thread."""

import traceback
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from gymnasium.spaces import flatdim

from minerva.envs.ids import EnvLike, env_name, factory
from minerva.envs.mujoco_log import route_warnings
from minerva.envs.snapshot import Snapshot, Snapshots
from minerva.envs.spaces import prepared
from minerva.errors import EnvError, EnvStepError
from minerva.spec import Array


class GymnasiumEngine:
    """Environments of gymnasium, stepped one after another in the caller's thread.

    gymnasium's own vector environment does the same and more: what it adds to a step takes as long as the simulator of
    HalfCheetah does.
    """

    name: Final = "gymnasium"

    def __init__(self, env: EnvLike, num_envs: int, first: int = 0) -> None:
        """`first` is the number of the first one, where several engines have a share each."""
        self._env_name, self._first, make = env_name(env), first, factory(env)
        route_warnings()
        self.envs = [prepared(make(), self._env_name) for _ in range(num_envs)]
        self._snapshots = [Snapshots(one) for one in self.envs]
        self.num_envs = num_envs
        observations, actions = self.envs[0].observation_space, self.envs[0].action_space
        if any(one.observation_space != observations or one.action_space != actions for one in self.envs):
            raise EnvError(f"Two {self._env_name} have different spaces: each call must make the same environment.")
        self.obs_dim: int = flatdim(observations)
        self._action_dtype = actions.dtype
        self.action_low, self.action_high = actions.low.astype(np.float64), actions.high.astype(np.float64)  # type: ignore[attr-defined]
        self._obs: Array = np.zeros((num_envs, self.obs_dim), np.float32)

    def reset(self, seeds: Sequence[int | None], mask: Array | None = None) -> Array:
        """See `Engine`."""
        obs = self._obs.copy()  # rows that were handed out stay as they are
        for i, (one, seed) in enumerate(zip(self.envs, seeds, strict=True)):
            if seed is not None:  # an environment may draw from its spaces
                one.action_space.seed(seed)
                one.observation_space.seed(seed)
            if mask is None or mask[i]:
                try:
                    row, _ = one.reset(seed=seed)
                except Exception as error:
                    raise self._failed("reset", i, error) from error
                obs[i] = self._shaped(row, i)
        self._obs = obs
        return obs

    def send(self, actions: Array) -> None:
        """See `Engine`. Nothing happens before `recv`."""
        self._actions = actions.astype(self._action_dtype)

    def recv(self) -> tuple[Array, Array, Array, Array]:
        """See `Engine`."""
        obs, rewards = np.empty_like(self._obs), np.empty(self.num_envs)
        terminated, truncated = np.empty(self.num_envs, np.bool_), np.empty(self.num_envs, np.bool_)
        for i, one in enumerate(self.envs):
            try:
                row, rewards[i], terminated[i], truncated[i], _ = one.step(self._actions[i])
            except Exception as error:
                raise self._failed("step", i, error) from error
            obs[i] = self._shaped(row, i)
        self._obs = obs
        return obs, rewards, terminated, truncated

    def snapshots(self, part: slice = slice(None)) -> list[Snapshot]:
        """The state of every environment, or NoSnapshotError. Engines that cannot do this do not have the method."""
        return [one.take() for one in self._snapshots[part]]

    def restore(self, snapshots: Sequence[Snapshot], part: slice = slice(None)) -> None:
        """Put every environment into a state that it, or one made in the same way, was in."""
        for keeper, snapshot in zip(self._snapshots[part], snapshots, strict=True):
            keeper.env.reset(seed=0)  # an environment may make its parts at its first reset
            keeper.restore(snapshot)

    def close(self) -> None:
        """See `Engine`."""
        for one in self.envs:
            one.close()

    def _shaped(self, row: Any, index: int) -> Any:
        if np.shape(row) != (self.obs_dim,):
            raise EnvStepError(
                f"{self._env_name} gave an observation of shape {np.shape(row)} in environment {index}, and its space "
                f"says ({self.obs_dim},). Mend the environment."
            )
        return row

    def _failed(self, call: str, index: int, error: Exception) -> EnvStepError:
        """The error that names the environment."""
        place = traceback.extract_tb(error.__traceback__)[-1]
        return EnvStepError(
            f"{self._env_name} raised {type(error).__name__} in {call} of environment {self._first + index}: {error} "
            f"({place.filename}, line {place.lineno}). Mend the environment; the last checkpoint is as it was."
        )
