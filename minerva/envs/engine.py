"""Many environments stepped together: what every engine offers, under one rule.

A step returns the *true* next observation of every environment; those whose episode ended are reset at once, and the
observation to act on next is `obs`. So every row is data: the reset row that gymnasium and EnvPool insert after an
episode, on which the action is ignored and the reward is 0, never leaves an engine.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from minerva.envs.ids import EnvLike
from minerva.errors import EnvError
from minerva.spec import ActionSpec, ObservationSpec


class Episode(NamedTuple):
    """A finished episode, in the environment's own rewards."""

    env: int
    episode_return: float
    length: int


class Transition(NamedTuple):
    """What one step of E environments gave, on the engine's device."""

    next_obs: Tensor
    """The true next observation, also at an episode's end.  [E, *observation.shape]"""
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor


class Engine(ABC):
    """E environments, acted on with actions in [-1, 1]. Takes and gives tensors on its `device`.

    A step has two halves, `send` and `recv`, so that the caller may work while environments step. Nothing that an
    engine on a GPU does in a step waits for the GPU: episodes and faults are read out by `take_episodes`.
    """

    name: ClassVar[str]
    """Under which it can be asked for."""
    resumes_exactly: ClassVar[bool] = True
    """Whether its simulators can be saved and restored, as far as their environments allow it."""

    episodes_of_gymnasium: ClassVar[bool] = False
    """Whether a seed begins the same episodes as with the engine gymnasium."""

    env_name: str
    num_envs: int
    device: torch.device
    observation: ObservationSpec
    action: ActionSpec
    obs: Tensor
    """What to act on next.  [E, *observation.shape]"""

    @classmethod
    def unavailable_reason(cls, env: EnvLike) -> str | None:
        """Say why this engine cannot step `env` here, with the fix if there is one; None if it can."""
        return None

    @classmethod
    @abstractmethod
    def make(cls, env: EnvLike, num_envs: int, share: int, device: torch.device) -> "Engine":
        """Make `num_envs` copies of an environment; `share` engines divide the machine's cores among them.

        `device` is the learner's: an engine that can simulate there does so, others step on the CPU.
        """

    @abstractmethod
    def reset(self, seeds: Sequence[int]) -> Tensor:
        """Start a new episode everywhere, environment i seeded with `seeds[i]`; a step under way is dropped."""

    def step(self, actions: Tensor) -> Transition:
        """Take one environment step each. Where an episode ended, `obs` is already the next episode's first."""
        self.send(actions)
        return self.recv()

    @abstractmethod
    def send(self, actions: Tensor) -> None:
        """Begin a step with actions in [-1, 1].  [E, D]"""

    @abstractmethod
    def recv(self) -> Transition:
        """Finish the step that `send` began."""

    @abstractmethod
    def take_episodes(self) -> list[Episode]:
        """Return the episodes that ended since the last call; an EnvStepError if a value was not finite."""

    @abstractmethod
    def under_way(self) -> list[tuple[float, int]]:
        """Return and length, so far, of each environment's current episode."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return simulators and episodes under way as tensors and plain values.

        `obstacle` says why the simulators are missing, or is empty.
        """

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> str:
        """Go on where `state_dict` was made. Return why that cannot be done, if so: then reset the environments."""

    @classmethod
    @abstractmethod
    def joined(cls, engines: Sequence[Self]) -> "Engine":
        """Return engines of one shape as one, whose environments are theirs one after another."""

    @abstractmethod
    def close(self) -> None:
        """Free what the environments hold."""

    def _check_order(self, sending: bool, under_way: bool) -> None:
        """Refuse a second `send` before `recv`, and a `recv` without `send`."""
        if sending and under_way:
            raise EnvError(f"{self.env_name} was sent actions twice: call recv for the step under way first.")
        if not sending and not under_way:
            raise EnvError(f"{self.env_name} has no step under way: call send first.")
