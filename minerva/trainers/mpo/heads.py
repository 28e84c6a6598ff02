"""What the critic predicts, and how its target is coded: a value, or a distribution of the return over atoms.

Targets are either built from the outputs at the next state (`td_target`) or given as returns (`encoded`, for
Retrace). A return is a single number, so for Retrace a distribution is coded as two-hot or as a histogram around it.
"""

import torch
from torch import Tensor

from minerva.formulas.categorical import cross_entropy, expected_value, gaussian_histogram, projection
from minerva.formulas.returns import bootstrapped
from minerva.trainers.mpo.config import MPOConfig
from minerva.trainers.mpo.losses import critic_loss


class ScalarHead:
    """One output: the value itself."""

    outputs = 1

    def values(self, outputs: Tensor) -> Tensor:
        """Q from the critic's outputs.  [..., 1] -> [...]"""
        return outputs.squeeze(-1)

    def td_target(self, rewards: Tensor, discount: Tensor, terminated: Tensor, next_outputs: Tensor) -> Tensor:
        """Target from the target critic's outputs for N actions in the next state.  [B] thrice, [N, B, A] -> target"""
        next_q = self.values(next_outputs)
        # LaTeX: V(s'_b) = \frac{1}{N} \sum_i Q'(s'_b, a'_{b,i})
        next_values = next_q.mean(0)
        return self.encoded(bootstrapped(rewards, discount, next_values, terminated))

    def encoded(self, returns: Tensor) -> Tensor:
        """Target from a return.  [B] -> target"""
        return returns

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Distance of the outputs from the target.  [B, A], target -> []"""
        return critic_loss(self.values(outputs), target)


class HistogramHead(ScalarHead):
    """Logits over atoms; the target is the expected return, smoothed by a Gaussian (HL-Gauss)."""

    def __init__(self, atoms: Tensor) -> None:
        self.atoms = atoms
        self.outputs = atoms.shape[0]

    def values(self, outputs: Tensor) -> Tensor:
        """Mean of the distribution.  [..., A] -> [...]"""
        return expected_value(outputs, self.atoms)

    def encoded(self, returns: Tensor) -> Tensor:
        """[B] -> [B, A]"""
        return gaussian_histogram(returns, self.atoms)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy.  [B, A], [B, A] -> []"""
        return cross_entropy(outputs, target)


class CategoricalHead(HistogramHead):
    """Logits over atoms; the target is the whole distribution of the next state, shifted and projected (C51, DMPO)."""

    def td_target(self, rewards: Tensor, discount: Tensor, terminated: Tensor, next_outputs: Tensor) -> Tensor:
        """The mixture over the N next actions, each atom moved as a value would be.  -> [B, A]"""
        mixture = torch.softmax(next_outputs, -1).mean(0)
        rewards, discount, terminated = (part.unsqueeze(-1) for part in (rewards, discount, terminated))
        positions = bootstrapped(rewards, discount, self.atoms, terminated)
        return projection(positions, mixture, self.atoms)

    def encoded(self, returns: Tensor) -> Tensor:
        """[B] -> [B, A]"""
        return projection(returns.unsqueeze(-1), torch.ones_like(returns).unsqueeze(-1), self.atoms)


def make_head(config: MPOConfig, device: torch.device) -> ScalarHead:
    """The head that the config names."""
    if config.critic == "scalar":
        return ScalarHead()
    atoms = torch.linspace(-config.critic_range, config.critic_range, config.critic_atoms, device=device)
    return HistogramHead(atoms) if config.critic == "hl_gauss" else CategoricalHead(atoms)
