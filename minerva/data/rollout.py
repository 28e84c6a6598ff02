"""A rollout: T steps of E environments in preallocated memory. Every row is data; there are no reset rows."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minerva.compute.tree import Tree

Array = np.ndarray[Any, np.dtype[Any]]


class Rollout:
    """Filled row by row on the host while collecting, then sent as [T, E, ...] tensors to the learner's device."""

    def __init__(self, steps: int, num_envs: int, obs_dim: int, act_dim: int, device: torch.device) -> None:
        self.steps, self.num_envs, self.device = steps, num_envs, device
        self.filled = 0
        self.noise: Tensor | None = None
        """Of the actions of all its steps, drawn when it is begun.  [T, E, D]"""
        widths = {"obs": (obs_dim,), "actions_raw": (act_dim,), "next_obs": (obs_dim,)}
        shapes = {**widths, "rewards": (), "terminated": (), "ended": ()}
        pinned = device.type == "cuda"
        self.fields = {name: torch.zeros(steps, num_envs, *shape, pin_memory=pinned) for name, shape in shapes.items()}
        self._rows = {name: field.numpy() for name, field in self.fields.items()}

    @property
    def full(self) -> bool:
        """Whether every row is written."""
        return self.filled == self.steps

    def begin(self, draw: Callable[[tuple[int, ...]], Tensor]) -> None:
        """Start anew with noise for all steps, unless it was begun and is not full: then it goes on."""
        if self.full or self.noise is None:
            self.filled = 0
            self.noise = draw((self.steps, self.num_envs))

    def clear(self) -> None:
        """Forget what was begun."""
        self.filled, self.noise = 0, None

    def write(
        self, obs: Array, actions: Array, next_obs: Array, rewards: Array, terminated: Array, truncated: Array
    ) -> None:
        """Keep the next step. `next_obs` is the true next observation, also at an episode's end."""
        rows, t = self._rows, self.filled
        rows["obs"][t] = obs
        rows["actions_raw"][t] = actions
        rows["next_obs"][t] = next_obs
        rows["rewards"][t] = rewards
        rows["terminated"][t] = terminated
        rows["ended"][t] = terminated | truncated
        self.filled += 1

    def fill(self, fields: Mapping[str, Array]) -> None:
        """Keep all steps at once, [T, E, ...] by field."""
        for name, rows in self._rows.items():
            rows[:] = fields["terminated"] | fields["truncated"] if name == "ended" else fields[name]
        self.filled = self.steps

    def tensors(self) -> dict[str, Tensor]:
        """All fields by name, on the learner's device."""
        return {name: field.to(self.device, non_blocking=True) for name, field in self.fields.items()}

    def state_dict(self) -> Tree:
        """What there is of a rollout that was begun, be it the noise alone; a full one has been learned from."""
        filled = 0 if self.full else self.filled
        return {
            **{name: field[:filled] for name, field in self.fields.items()},
            "noise": None if self.full else self.noise,
        }

    def load_state_dict(self, state: Tree) -> None:
        """Take over a state made by `state_dict`."""
        self.filled = len(state["rewards"])
        self.noise = state["noise"] if state["noise"] is None else state["noise"].to(self.device)
        for name, field in self.fields.items():
            field[: self.filled] = state[name]
