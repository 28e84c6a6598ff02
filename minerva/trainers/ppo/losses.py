"""PPO's losses (Schulman et al. 2017).

Shapes: B rows of a minibatch; every argument and result is [B] unless stated otherwise.
"""

import torch
from torch import Tensor


def log_ratio(log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """Return the log of the probability ratio of the current policy to the old one (section 3)."""
    # LaTeX: \ell_t = \log\pi_\theta(a_t|s_t) - \log\pi_{old}(a_t|s_t)
    ratio_log = log_prob - old_log_prob
    return ratio_log


def clipped_surrogate(ratio: Tensor, advantages: Tensor, clip_ratio: Tensor) -> Tensor:
    """Return the clipped surrogate loss (Schulman et al. 2017, eq. 7).  -> []

    A ratio that leaves the clip range in the advantageous direction has no gradient.
    """
    # LaTeX: \mathcal{L}_t^{(1)} = -\hat{A}_t \rho_t
    unclipped = -advantages * ratio
    # LaTeX: \mathcal{L}_t^{(2)} = -\hat{A}_t \operatorname{clip}(\rho_t, 1 - \epsilon_{clip}, 1 + \epsilon_{clip})
    clipped = -advantages * torch.clamp(ratio, 1 - clip_ratio, 1 + clip_ratio)
    # LaTeX: \mathcal{L}_{pg} = \mathbb{E}_t[\max(\mathcal{L}_t^{(1)}, \mathcal{L}_t^{(2)})]
    loss = torch.maximum(unclipped, clipped).mean()
    return loss


def clipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip_ratio: Tensor) -> Tensor:
    """Return the value loss, per row the larger of the unclipped and the clipped value's squared error.  -> []"""
    # LaTeX: V_t^{clip} = V_{old}(s_t) + \operatorname{clip}(V_\theta(s_t) - V_{old}(s_t), -\epsilon_{clip}, \epsilon_{clip})
    clipped = old_values + torch.clamp(values - old_values, -clip_ratio, clip_ratio)
    # LaTeX: \mathcal{L}_V = \frac{1}{2} \mathbb{E}_t[\max((V_\theta(s_t) - G_t)^2, (V_t^{clip} - G_t)^2)]
    loss = 0.5 * torch.maximum((values - returns) ** 2, (clipped - returns) ** 2).mean()
    return loss


def approximate_kl(ratio: Tensor, ratio_log: Tensor) -> Tensor:
    """Return a never negative estimate of KL(old || new) from the old policy's samples (Schulman 2020).  -> []"""
    # LaTeX: \widehat{D}_{KL} = \mathbb{E}_t[\rho_t - 1 - \ell_t]
    kl = (ratio - 1 - ratio_log).mean()
    return kl


def clip_fraction(ratio: Tensor, clip_ratio: Tensor) -> Tensor:
    """Return the share of rows whose ratio is outside the clip range.  -> []"""
    # LaTeX: f_{clip} = \mathbb{E}_t[\mathbf{1}[|\rho_t - 1| > \epsilon_{clip}]]
    fraction = (torch.abs(ratio - 1) > clip_ratio).to(ratio.dtype).mean()
    return fraction
