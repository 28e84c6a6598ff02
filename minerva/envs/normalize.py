"""Reward normalisation of the training environments."""

import torch
from torch import Tensor

from minerva.formulas.returns import discounted_sums
from minerva.utils.processes import ALONE, Processes
from minerva.utils.running_norm import refreshed
from minerva.utils.tree import Tree, copy_

CLIP = 10.0
EPS = 1e-8


class RewardNorm:
    """Divides rewards by the running standard deviation of the discounted return, then clips to ±10.

    Works on whole rollouts. The running return starts anew after every episode, also one cut by a time limit.
    """

    def __init__(self, num_envs: int, gamma: float, device: torch.device | None = None) -> None:
        self.state = {
            "running": torch.zeros(num_envs, dtype=torch.float64, device=device),
            "mean": torch.zeros((), dtype=torch.float64, device=device),
            "var": torch.ones((), dtype=torch.float64, device=device),
            "count": torch.zeros((), dtype=torch.float64, device=device),
            "gamma": torch.tensor(gamma, dtype=torch.float64, device=device),
        }

    def __call__(self, rewards: Tensor, dones: Tensor) -> Tensor:
        """Learn from a rollout's rewards [T, E] and return them scaled."""
        state, scaled = self.scaled(self.state, rewards, dones)
        copy_(self.state, state)
        return scaled

    @staticmethod
    def scaled(state: Tree, rewards: Tensor, dones: Tensor, processes: Processes = ALONE) -> tuple[Tree, Tensor]:
        """The state after learning from the rewards [T, E] of all processes' rollouts, and the own ones scaled."""
        sums, running = discounted_sums(rewards.double(), dones.double(), state["running"], state["gamma"])
        before = {name: state[name] for name in ("mean", "var", "count")}
        statistics = refreshed(before, sums.reshape(-1), processes)
        variance = statistics["var"]
        # LaTeX: \tilde{r}_t = \operatorname{clip}(\frac{r_t}{\sqrt{v + \varepsilon_0}}, -c, c)
        scaled = torch.clamp(rewards / torch.sqrt(variance + EPS), -CLIP, CLIP)
        return {**state, **statistics, "running": running}, scaled.to(rewards.dtype)

    def move(self, state: Tree) -> None:
        """Keep the state in these tensors, which hold the same numbers, from now on."""
        self.state = state

    def state_dict(self) -> Tree:
        """Statistics and the returns under way."""
        return {name: value for name, value in self.state.items() if name != "gamma"}

    def load_state_dict(self, state: Tree) -> None:
        """Take over a state made by `state_dict`."""
        copy_(self.state, state)
