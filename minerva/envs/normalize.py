"""Reward normalisation of the training environments."""

from typing import Any

import torch
from torch import Tensor

from minerva.formulas.returns import discounted_sums
from minerva.formulas.statistics import combine_moments

CLIP = 10.0
EPS = 1e-8


class RewardNorm:
    """Divides rewards by the running standard deviation of the discounted return, then clips to ±10.

    Works on whole rollouts. The running return starts anew after every episode, also one cut by a time limit.
    """

    def __init__(self, num_envs: int, gamma: float) -> None:
        self.gamma = torch.tensor(gamma, dtype=torch.float64)
        self.running = torch.zeros(num_envs, dtype=torch.float64)
        self.mean = torch.zeros((), dtype=torch.float64)
        self.var = torch.ones((), dtype=torch.float64)
        self.count = torch.zeros((), dtype=torch.float64)

    def __call__(self, rewards: Tensor, dones: Tensor) -> Tensor:
        """Learn from a rollout's rewards [T, E] and return them scaled."""
        sums, self.running = discounted_sums(rewards.double(), dones.double(), self.running, self.gamma)
        self.mean, self.var, self.count = combine_moments(self.mean, self.var, self.count, sums.reshape(-1))
        # LaTeX: \tilde{r}_t = \operatorname{clip}(\frac{r_t}{\sqrt{v + \varepsilon_0}}, -c, c)
        scaled = torch.clamp(rewards / torch.sqrt(self.var + EPS), -CLIP, CLIP)
        return scaled.to(rewards.dtype)

    def state_dict(self) -> dict[str, Any]:
        """Statistics and the returns under way."""
        return {name: getattr(self, name) for name in ("running", "mean", "var", "count")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state made by `state_dict`."""
        for name, value in state.items():
            setattr(self, name, value.clone())
