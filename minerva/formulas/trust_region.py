"""The trust region of MPO and V-MPO: KLs held under bounds by Lagrange multipliers.

Shapes: K constraints. MPO has one for each action dimension, V-MPO one for the mean and one for the standard
deviation. Multipliers are positive here; how they are stored is in `lagrange`.
"""

import torch
from torch import Tensor

LOWEST, HIGHEST = 1e-6, 1e6
"""Range of multipliers that are changed by a factor."""


def penalties(multipliers: Tensor, kls: Tensor) -> Tensor:
    """What each constraint costs the policy, which does not learn through the multipliers.  [K], [K] -> [K]"""
    # LaTeX: P_j = \operatorname{sg}(\alpha_j) D_j
    costs = multipliers.detach() * kls
    return costs


def multiplier_loss(multipliers: Tensor, kls: Tensor, bounds: Tensor) -> Tensor:
    """Its gradient raises a multiplier whose KL is over its bound and lowers one that is under.  [K], [K], [K] -> []

    A single bound [] is that of all.
    """
    # LaTeX: \mathcal{L}_\alpha = \sum_j \alpha_j (\epsilon_j - \operatorname{sg}(D_j))
    loss = (multipliers * (bounds - kls.detach())).sum()
    return loss


def scaled_multipliers(multipliers: Tensor, kls: Tensor, bounds: Tensor, rate: Tensor) -> Tensor:
    """Multipliers raised by a factor while their KL is over its bound and lowered while it is under.  [K] each

    Where a multiplier has fallen far, or its bound is small, a gradient step hardly moves it; a factor always does.
    """
    # LaTeX: v_j = \operatorname{clip}(\frac{D_j}{\epsilon_j} - 1, -1, 1)
    violations = torch.clamp(kls / bounds - 1, -1, 1)
    # LaTeX: \alpha_j = \operatorname{clip}(\alpha'_j \exp(\beta_\alpha v_j), 10^{-6}, 10^6)
    scaled = torch.clamp(multipliers * torch.exp(rate * violations), LOWEST, HIGHEST)
    return scaled
