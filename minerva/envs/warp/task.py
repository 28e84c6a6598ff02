"""A task as functions of tensors: how an episode starts, what is observed, what a step is worth and when it ends.

The tensors have a leading axis of worlds, and the same functions serve one world of C MuJoCo and thousands on a GPU.
"""

from abc import ABC, abstractmethod
from typing import Any, Literal

from torch import Tensor

from minerva.spec import ActionSpec, ObservationSpec

Refresh = Literal["", "kinematics", "forward"]
"""What of a simulation is computed anew at an episode's start: nothing, poses and velocities, or everything."""

Judgement = tuple[Tensor, Tensor]
"""Rewards and whether the task ended.  [E], [E]"""


class Task(ABC):
    """A MuJoCo model with what makes a task of it.

    The functions are captured in CUDA graphs, so they make no tensors of constants: those are made with the task.

    `data` gives the arrays of MuJoCo's mjData under their names, `data.qpos` or `data.xpos`, as float32 tensors with a
    leading axis of worlds. They hold what mjData holds after the last substep: poses lag positions by one substep
    unless `up_to_date`.
    """

    model: Any
    """The mjModel."""
    frame_skip: int
    """Steps of the simulator in one step of the task."""
    time_limit: int
    """Steps after which an episode is truncated."""
    observation: ObservationSpec
    action: ActionSpec
    start_numbers: int
    """Uniform random numbers that the start of an episode needs."""
    refresh: Refresh = ""
    """What `observe` and `remember` need at an episode's start beyond `qpos` and `qvel`."""
    up_to_date: bool = False
    """Whether poses, velocities and their sensors are those of the new positions after a step, as in dm_control."""
    contact_forces: bool = False
    """Whether `cfrc_ext` is computed after a step, as gymnasium does."""
    varied: tuple[str, ...] = ()
    """Arrays of the model that `start` sets for each world."""
    contacts: int = 16
    """Most contacts of a world, on the average of all worlds."""
    constraints: int = 64
    """Most rows of constraints of a world."""

    @abstractmethod
    def start(self, uniform: Tensor) -> dict[str, Tensor]:
        """Return `qpos` and `qvel`, and any `varied`, at an episode's start.  [E, start_numbers] -> [E, ...] by name"""

    @abstractmethod
    def observe(self, data: Any) -> Tensor:
        """Return the observation of each world.  -> [E, O]"""

    def remember(self, data: Any) -> dict[str, Tensor]:
        """Return what `judge` needs of the state before the step, such as a position.  -> [E, ...] by name"""
        return {}

    @abstractmethod
    def judge(self, before: dict[str, Tensor], data: Any, actions: Tensor) -> Judgement:
        """Return (rewards, terminated) of a step; `before` is what `remember` returned before it."""
