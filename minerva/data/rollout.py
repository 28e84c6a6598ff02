"""A rollout: T steps of E environments in preallocated tensors. Every row is data; there are no reset rows."""

import numpy as np
import torch
from torch import Tensor

from minerva.utils.tree import Tree

FIELDS = ("obs", "actions", "next_obs", "rewards", "terminated", "dones")


class Rollout:
    """Filled row by row while collecting, then read as a dict of [T, E, ...] tensors on the learner's device."""

    def __init__(self, steps: int, num_envs: int, obs_dim: int, act_dim: int, device: torch.device) -> None:
        self.device = device
        self.steps = steps
        self.filled = 0
        self.obs = torch.zeros(steps, num_envs, obs_dim)
        self.actions = torch.zeros(steps, num_envs, act_dim)
        self.next_obs = torch.zeros(steps, num_envs, obs_dim)
        self.rewards = torch.zeros(steps, num_envs)
        self.terminated = torch.zeros(steps, num_envs)
        self.dones = torch.zeros(steps, num_envs)

    @property
    def full(self) -> bool:
        """Whether every row is written."""
        return self.filled == self.steps

    def write(
        self,
        t: int,
        obs: np.ndarray,
        actions: Tensor,
        next_obs: np.ndarray,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> None:
        """Keep step t of all environments. `next_obs` is the true next observation, also at an episode's end."""
        self.obs[t] = torch.from_numpy(obs)
        self.actions[t] = actions
        self.next_obs[t] = torch.from_numpy(next_obs)
        self.rewards[t] = torch.from_numpy(rewards)
        self.terminated[t] = torch.from_numpy(terminated)
        self.dones[t] = torch.from_numpy(terminated | truncated)

    def tensors(self) -> dict[str, Tensor]:
        """All fields by name."""
        return {name: getattr(self, name).to(self.device) for name in FIELDS}

    def state_dict(self) -> Tree:
        """The rows of a rollout that is filled in part; a full one has been learned from."""
        filled = 0 if self.full else self.filled
        return {name: getattr(self, name)[:filled] for name in FIELDS}

    def load_state_dict(self, state: Tree) -> None:
        """Take over a state made by `state_dict`."""
        self.filled = len(state["rewards"])
        for name in FIELDS:
            getattr(self, name)[: self.filled] = state[name]
