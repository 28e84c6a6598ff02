"""The engine `gymnasium`: environments stepped one after another in the caller's thread."""

import reprlib
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from minerva.envs.engine import numbers_in
from minerva.envs.engines.host import Arrays, HostEngine
from minerva.envs.ids import EnvLike, env_name, factory
from minerva.envs.mujoco_log import route_warnings
from minerva.envs.old_interface import ADVICE, of_old_interface
from minerva.envs.rehearsal import rehearse
from minerva.envs.snapshot import NoSnapshotError, Snapshot, Snapshots
from minerva.envs.spaces import OddObservationError, prepared, specs
from minerva.envs.time_limit import has_time_limit
from minerva.errors import EnvError, EnvStepError
from minerva.layout import Array

FLAGS, NUMBERS = frozenset((bool, np.bool_)), frozenset((float, np.float64, np.float32))
"""Types of almost every flag and reward: looked up, because the others take longer to examine."""


class GymnasiumEngine(HostEngine):
    """gymnasium environments, stepped one after another in the caller's thread.

    gymnasium's own vector environment does this and more, at an overhead per step equal to HalfCheetah's simulation.
    """

    name = "gymnasium"
    episodes_of_gymnasium = True
    generators_saved = True
    """Whether a checkpoint holds the process-wide generators of the environments' process."""

    def __init__(self, env: EnvLike, num_envs: int, first: int = 0) -> None:
        """Make the environments; `first` is the number of the first one if several engines each step a part."""
        self._first, make = first, factory(env)
        self._make_another = lambda: prepared(make(), env_name(env))
        route_warnings()
        self.envs = [self._make_another() for _ in range(num_envs)]
        self._snapshots = [Snapshots(one) for one in self.envs]
        observations, actions = self.envs[0].observation_space, self.envs[0].action_space
        if any(one.observation_space != observations or one.action_space != actions for one in self.envs):
            raise EnvError(f"Two {env_name(env)} have different spaces: each call must make the same environment.")
        self._action_dtype = actions.dtype
        self._inexact_reason: str | None = None
        self._infos: dict[int, dict[str, float]] = {}
        self.time_limited = has_time_limit(self.envs[0])
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
                answer = self.envs[i].reset(seed=None if seeds is None else seeds[i])
                first, _ = answer if isinstance(answer, tuple) else (answer,)  # an array of two is no pair
            except Exception as error:
                raise self._failed("reset", i, error) from error
            row[:] = self._shaped(first, i)
        return obs

    def send_arrays(self, actions: Array) -> None:
        """Keep the actions for `recv_arrays`, as the environments take them."""
        if self.action.kind == "continuous":
            self._actions: Any = actions.astype(self._action_dtype)
        else:
            self._actions = [self.action.native(row) for row in actions]

    def recv_arrays(self) -> Arrays:
        """Step the environments, one after another, and return the arrays."""
        self._infos = {}
        obs, rewards = np.empty_like(self._obs), np.empty(self.num_envs)
        terminated, truncated = np.empty(self.num_envs, np.bool_), np.empty(self.num_envs, np.bool_)
        for i, one in enumerate(self.envs):
            try:
                row, reward, over, cut, info = one.step(self._actions[i])
            except Exception as error:
                raise self._failed("step", i, error) from error
            obs[i] = self._shaped(row, i)
            rewards[i] = reward if type(reward) in NUMBERS else self._single("reward", reward, "float", i)
            terminated[i] = over if type(over) in FLAGS else self._single("terminated", over, "bool", i)
            truncated[i] = cut if type(cut) in FLAGS else self._single("truncated", cut, "bool", i)
            if terminated[i] or truncated[i]:
                self._infos[i] = numbers_in(info)
        return obs, rewards, terminated, truncated

    def ended_infos(self) -> Mapping[int, Mapping[str, float]]:
        """Return the numbers in the `info` of each environment whose episode ended in the last step."""
        return self._infos

    def snapshots(self, part: slice = slice(None)) -> list[Snapshot]:
        """Return a snapshot of every environment of `part`; raise NoSnapshotError if one has none, or not of all."""
        taken = [one.take() for one in self._snapshots[part]]
        if self._inexact_reason is None:  # once: how an environment is written decides it
            self._inexact_reason = rehearse(self._snapshots, self._make_another, self.generators_saved)
        if self._inexact_reason:
            raise NoSnapshotError(self._inexact_reason)
        return taken

    def restore(self, snapshots: Sequence[Snapshot], part: slice = slice(None)) -> None:
        """Restore every environment from a snapshot of it, or of one made in the same way."""
        for keeper, snapshot in zip(self._snapshots[part], snapshots, strict=True):
            keeper.env.reset(seed=0)  # an environment may create its parts at its first reset
            keeper.restore(snapshot)

    def close(self) -> None:
        """Close every environment."""
        for one in self.envs:
            one.close()

    def _shaped(self, row: Any, index: int) -> Array:
        """Return an observation as an array; raise EnvStepError if it is not one of numbers in the space's shape."""
        values = _as_array(row)
        if values.dtype.kind not in "fiub":
            raise self._odd("observation", row, "an array of floats", index)
        if values.shape != self.observation.shape:
            raise EnvStepError(
                f"{self.env_name} gave an observation of shape {values.shape} in environment {self._first + index}, "
                f"but its space says {self.observation.shape}. Fix the environment."
            )
        return values

    def _single(self, what: str, value: Any, expected: str, index: int) -> Any:
        """Return a float or a bool that comes in another form, such as an array of one; else raise EnvStepError."""
        array = _as_array(value)
        if array.size != 1 or array.dtype.kind not in ("b" if expected == "bool" else "fiub"):
            raise self._odd(what, value, f"a {expected}", index)
        return array.item()

    def _odd(self, what: str, value: Any, expected: str, index: int) -> EnvStepError:
        """Return an EnvStepError that names the environment, the value and the type that was expected."""
        shown = reprlib.repr(value)
        return EnvStepError(
            f"{self.env_name} gave the {what} {shown} (a {type(value).__name__}) in environment {self._first + index}, "
            f"where {expected} is expected. Fix the environment; the last checkpoint is unchanged."
        )

    def _failed(self, call: str, index: int, error: Exception) -> EnvStepError:
        """Return an EnvStepError that names the environment and the line that raised."""
        if isinstance(error, OddObservationError):
            return EnvStepError(
                f"{self.env_name} gave an odd observation in {call} of environment {self._first + index}: {error}. Fix "
                "the environment; the last checkpoint is unchanged."
            )
        place = traceback.extract_tb(error.__traceback__)[-1]
        if of_old_interface(error, place):
            return EnvStepError(f"{self.env_name} has the old interface of gym in {call} ({error}): {ADVICE}")
        return EnvStepError(
            f"{self.env_name} raised {type(error).__name__} in {call} of environment {self._first + index}: {error} "
            f"({place.filename}, line {place.lineno}). Fix the environment; the last checkpoint is unchanged."
        )


def _as_array(value: Any) -> Array:
    """Return a value as an array; one of dtype object if it cannot be one, such as a list of unequal lists."""
    try:
        return np.asarray(value)
    except Exception:  # whatever the environment's own kind of array raises
        return np.asarray(None)
