"""A rollout: T steps of E environments in preallocated memory. Every row is data; there are no reset rows."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


class Rollout:
    """Filled row by row on the host while collecting, then sent as [T, E, ...] tensors to the learner's device."""

    def __init__(self, steps: int, num_envs: int, obs_dim: int, act_dim: int, device: torch.device) -> None:
        self.steps, self.device = steps, device
        widths = {"obs": (obs_dim,), "actions": (act_dim,), "next_obs": (obs_dim,)}
        shapes = {**widths, "rewards": (), "terminated": (), "dones": ()}
        pinned = device.type == "cuda"
        self.fields = {name: torch.zeros(steps, num_envs, *shape, pin_memory=pinned) for name, shape in shapes.items()}
        self._rows = {name: field.numpy() for name, field in self.fields.items()}

    def observe(self, t: int, obs: Array) -> Tensor:
        """Keep what the agents see at step t; it is returned as a tensor."""
        self._rows["obs"][t] = obs
        return self.fields["obs"][t]

    def write(
        self, t: int, actions: Array, next_obs: Array, rewards: Array, terminated: Array, truncated: Array
    ) -> None:
        """Keep what came of step t. `next_obs` is the true next observation, also at an episode's end."""
        rows = self._rows
        rows["actions"][t] = actions
        rows["next_obs"][t] = next_obs
        rows["rewards"][t] = rewards
        rows["terminated"][t] = terminated
        rows["dones"][t] = terminated | truncated

    def tensors(self) -> dict[str, Tensor]:
        """All fields by name, on the learner's device."""
        return {name: field.to(self.device, non_blocking=True) for name, field in self.fields.items()}
