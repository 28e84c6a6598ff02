"""The engine `gymnasium`: environments stepped one after another in the caller's thread."""

import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from minerva.envs.engines.host import Arrays, HostEngine
from minerva.envs.ids import EnvLike, env_name, factory
from minerva.envs.mujoco_log import route_warnings
from minerva.envs.snapshot import Snapshot, Snapshots
from minerva.envs.spaces import prepared, specs
from minerva.errors import EnvError, EnvStepError
from minerva.spec import Array


class GymnasiumEngine(HostEngine):
    """gymnasium environments, stepped one after another in the caller's thread.

    gymnasium's own vector environment does this and more, at an overhead per step equal to HalfCheetah's simulation.
    """

    name = "gymnasium"
    episodes_of_gymnasium = True

    def __init__(self, env: EnvLike, num_envs: int, first: int = 0) -> None:
        """Make the environments; `first` is the number of the first one if several engines each step a part."""
        self._first, make = first, factory(env)
        route_warnings()
        self.envs = [prepared(make(), env_name(env)) for _ in range(num_envs)]
        self._snapshots = [Snapshots(one) for one in self.envs]
        observations, actions = self.envs[0].observation_space, self.envs[0].action_space
        if any(one.observation_space != observations or one.action_space != actions for one in self.envs):
            raise EnvError(f"Two {env_name(env)} have different spaces: each call must make the same environment.")
        self._action_dtype = actions.dtype
        super().__init__(env_name(env), num_envs, *specs(self.envs[0]))

    @classmethod
    def make(cls, env: EnvLike, num_envs: int, share: int, device: torch.device) -> "GymnasiumEngine":
        """Make `num_envs` copies of an environment."""
        return cls(env, num_envs)

    def reset_arrays(self, mask: Array, seeds: Sequence[int] | None = None) -> Array:
        """Reset the environments of `mask`, one after another, and return their observations."""
        for i, seed in enumerate(seeds or ()):  # an environment may sample from its spaces
            self.envs[i].action_space.seed(seed)
            self.envs[i].observation_space.seed(seed)
        which = np.flatnonzero(mask).tolist()
        obs = np.empty((len(which), *self.observation.shape), self.observation.dtype)
        for row, i in zip(obs, which, strict=True):
            try:
                first, _ = self.envs[i].reset(seed=None if seeds is None else seeds[i])
            except Exception as error:
                raise self._failed("reset", i, error) from error
            row[:] = self._shaped(first, i)
        return obs

    def send_arrays(self, actions: Array) -> None:
        """Keep the actions for `recv_arrays`."""
        self._actions = actions.astype(self._action_dtype)

    def recv_arrays(self) -> Arrays:
        """Step the environments, one after another, and return the arrays."""
        obs, rewards = np.empty_like(self._obs), np.empty(self.num_envs)
        terminated, truncated = np.empty(self.num_envs, np.bool_), np.empty(self.num_envs, np.bool_)
        for i, one in enumerate(self.envs):
            try:
                row, rewards[i], terminated[i], truncated[i], _ = one.step(self._actions[i])
            except Exception as error:
                raise self._failed("step", i, error) from error
            obs[i] = self._shaped(row, i)
        return obs, rewards, terminated, truncated

    def snapshots(self, part: slice = slice(None)) -> list[Snapshot]:
        """Return a snapshot of every environment of `part`; raise NoSnapshotError if one has none."""
        return [one.take() for one in self._snapshots[part]]

    def restore(self, snapshots: Sequence[Snapshot], part: slice = slice(None)) -> None:
        """Restore every environment from a snapshot of it, or of one made in the same way."""
        for keeper, snapshot in zip(self._snapshots[part], snapshots, strict=True):
            keeper.env.reset(seed=0)  # an environment may create its parts at its first reset
            keeper.restore(snapshot)

    def close(self) -> None:
        """Close every environment."""
        for one in self.envs:
            one.close()

    def _shaped(self, row: Any, index: int) -> Any:
        if np.shape(row) != self.observation.shape:
            raise EnvStepError(
                f"{self.env_name} gave an observation of shape {np.shape(row)} in environment {index}, but its space "
                f"says {self.observation.shape}. Fix the environment."
            )
        return row

    def _failed(self, call: str, index: int, error: Exception) -> EnvStepError:
        """Return an EnvStepError that names the environment and the line that raised."""
        place = traceback.extract_tb(error.__traceback__)[-1]
        return EnvStepError(
            f"{self.env_name} raised {type(error).__name__} in {call} of environment {self._first + index}: {error} "
            f"({place.filename}, line {place.lineno}). Fix the environment; the last checkpoint is unchanged."
        )
