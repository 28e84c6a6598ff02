"""The interface of engines, which step many environments together.

A step returns the *true* next observation of every environment. Environments whose episode ended are reset at once, and
the observation to act on next is `obs`. So every row is data: the reset row that gymnasium and EnvPool insert after an
episode, in which the action is ignored and the reward is 0, never leaves an engine.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from minerva.envs.ids import EnvLike
from minerva.errors import EnvError
from minerva.spec import ActionSpec, ObservationSpec


class Episode(NamedTuple):
    """Return and length of a finished episode, in unscaled rewards."""

    env: int
    episode_return: float
    length: int
    info: Mapping[str, float] = {}
    """The numbers in the `info` of its last step."""


def numbers_in(info: Any) -> dict[str, float]:
    """Return the entries of an environment's `info` that are single finite numbers or flags, as floats."""
    if not isinstance(info, Mapping):
        return {}
    singles = {
        str(name): value.item() if isinstance(value, (np.ndarray, np.generic)) and value.size == 1 else value
        for name, value in info.items()
    }
    numbers = {name: float(value) for name, value in singles.items() if isinstance(value, Real)}
    return {name: number for name, number in numbers.items() if np.isfinite(number)}


class Transition(NamedTuple):
    """One step of E environments, as tensors on the engine's device."""

    next_obs: Tensor
    """The true next observation, also at an episode's end.  [E, *observation.shape]"""
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor


class Engine(ABC):
    """E environments that take actions in [-1, 1], or choices, and return observations, as tensors on `device`.

    A step has two halves, `send` and `recv`, so that the caller can work while environments step. On a GPU no step
    synchronises with the host: finished episodes and faults are read by `take_episodes`.
    """

    name: ClassVar[str]
    """Name in the registry of engines."""
    resumes_exactly: ClassVar[bool] = True
    """Whether its simulators can be saved and restored, as far as the environments support it."""

    evaluated_with: ClassVar[str | None] = None
    """Engine that steps evaluations of what this one trains; None: this one."""

    episodes_of_gymnasium: ClassVar[bool] = False
    """Whether a seed gives the same episodes as with the engine gymnasium."""

    time_limited: bool = True
    """Whether every episode ends in any case, by a time limit that the environment states."""

    env_name: str
    num_envs: int
    device: torch.device
    observation: ObservationSpec
    action: ActionSpec
    obs: Tensor
    """Observations to act on next.  [E, *observation.shape]"""

    @classmethod
    def unavailable_reason(cls, env: EnvLike) -> str | None:
        """Return why this engine cannot step `env` here, with the fix if there is one; None if it can."""
        return None

    @classmethod
    def inexact_reason(cls, device: torch.device) -> str:
        """Return why runs on `device` are not repeated bit for bit although simulators are restored; "": they are."""
        return ""

    @classmethod
    @abstractmethod
    def make(cls, env: EnvLike, num_envs: int, share: int, device: torch.device) -> "Engine":
        """Make `num_envs` copies of an environment; `share` engines share the machine's cores.

        `device` is the learner's: an engine that can simulate on it does, others step on the CPU.
        """

    @abstractmethod
    def reset(self, seeds: Sequence[int]) -> Tensor:
        """Reset every environment, environment i with `seeds[i]`, and return `obs`; a step in progress is dropped."""

    def step(self, actions: Tensor) -> Transition:
        """Step every environment. Where an episode ended, `obs` is already the first observation of the next one."""
        self.send(actions)
        return self.recv()

    @abstractmethod
    def send(self, actions: Tensor) -> None:
        """Start a step with actions in [-1, 1], or with choices counted from 0.  [E, D]"""

    @abstractmethod
    def recv(self) -> Transition:
        """Finish the step that `send` started and return its transition."""

    @abstractmethod
    def take_episodes(self) -> list[Episode]:
        """Return the episodes that ended since the last call; raise EnvStepError if a value was not finite."""

    @abstractmethod
    def under_way(self) -> list[tuple[float, int]]:
        """Return the return and the length, so far, of each environment's current episode."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the simulators and the unfinished episodes as tensors and plain values.

        The entry `unavailable_reason` is empty, or says why the simulators could not be saved.
        """

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> str:
        """Restore a state of `state_dict`; return "", or why that is impossible: then reset the environments."""

    @classmethod
    @abstractmethod
    def joined(cls, engines: Sequence[Self]) -> "Engine":
        """Return one engine for the environments of several engines of one shape, engine by engine."""

    @abstractmethod
    def close(self) -> None:
        """Release the environments' resources."""

    def _check_order(self, sending: bool, under_way: bool) -> None:
        """Raise EnvError for a second `send` before `recv`, or a `recv` without `send`."""
        if sending and under_way:
            raise EnvError(f"{self.env_name} was sent actions twice: call recv for the step under way first.")
        if not sending and not under_way:
            raise EnvError(f"{self.env_name} has no step under way: call send first.")
