"""The trust region of MPO and V-MPO: KL constraints enforced by Lagrange multipliers.

Shapes: K constraints. MPO has one for each action dimension, V-MPO one for the mean and one for the standard
deviation. Multipliers are positive here; `lagrange` maps them from the unconstrained parameters that are stored.
"""

import torch
from torch import Tensor

MULTIPLIER_MIN, MULTIPLIER_MAX = 1e-6, 1e6
"""Range of multipliers that are updated multiplicatively."""


def penalties(multipliers: Tensor, kls: Tensor) -> Tensor:
    """Return the policy's penalty for each KL, with the multipliers held constant.  [K], [K] -> [K]"""
    # LaTeX: P_j = \operatorname{sg}(\alpha_j) D_j
    costs = multipliers.detach() * kls
    return costs


def multiplier_loss(multipliers: Tensor, kls: Tensor, bounds: Tensor) -> Tensor:
    """Return the multipliers' loss, with the KLs held constant.  [K], [K], [K] -> []

    Descending it raises a multiplier whose KL is above its bound and lowers one whose KL is below. A scalar bound
    applies to all constraints.
    """
    # LaTeX: \mathcal{L}_\alpha = \sum_j \alpha_j (\epsilon_j - \operatorname{sg}(D_j))
    loss = (multipliers * (bounds - kls.detach())).sum()
    return loss


def least_multipliers(e_step_bound: Tensor, bounds: Tensor, shares: Tensor) -> Tensor:
    """Return the lowest multipliers with centered weights; those with a share of 0 have no limit of their own.  -> [K]

    Centered weights sum to zero: without a penalty their likelihood has no maximum. A policy that could fit each row by
    itself would move by a KL of the E-step's bound over the squared multiplier, so by a constraint's bound at the root
    of their ratio. A network, which fits only what rows share, needs a share of it, and less the more of the weights
    is noise. A multiplier that fell on and on would take it to its bound by noise alone; and where it cannot reach its
    bound at all, because choices are nearly certain, would later let one update pass far beyond the bound.
    """
    # LaTeX: \alpha^{min}_j = \max(c_j \sqrt{\frac{\epsilon_\eta}{\epsilon_j}}, 10^{-6})
    least = torch.clamp(shares * torch.sqrt(e_step_bound / bounds), min=MULTIPLIER_MIN)
    return least


def scaled_multipliers(multipliers: Tensor, kls: Tensor, bounds: Tensor, rate: Tensor, least: Tensor) -> Tensor:
    """Return multipliers after a multiplicative update: up if a KL is above its bound, down if below.  [K] each

    Where a multiplier has fallen far, or its bound is small, a gradient step hardly moves it; a factor always does.
    """
    # LaTeX: v_j = \operatorname{clip}(\frac{D_j}{\epsilon_j} - 1, -1, 1)
    violations = torch.clamp(kls / bounds - 1, -1, 1)
    # LaTeX: \alpha^*_j = \min(\alpha'_j \exp(\beta_\alpha v_j), 10^6)
    scaled = torch.clamp(multipliers * torch.exp(rate * violations), max=MULTIPLIER_MAX)
    # LaTeX: \alpha_j = \max(\alpha^*_j, \alpha^{min}_j)
    kept = torch.maximum(scaled, least)
    return kept
