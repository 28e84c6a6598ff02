"""PPO's loss. Shapes: B rows of a minibatch; every argument and result is [B] unless it says otherwise."""

import torch
from torch import Tensor


def log_ratio(log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """How much likelier each action has become, as a logarithm."""
    # LaTeX: \ell_t = \log\pi_\theta(a_t|s_t) - \log\pi_{old}(a_t|s_t)
    ratio_log = log_prob - old_log_prob
    return ratio_log


def clipped_surrogate(ratio: Tensor, advantages: Tensor, clip_ratio: Tensor) -> Tensor:
    """The policy's loss (Schulman et al. 2017, eq. 7): no gain from moving the ratio out of the clip range.  []"""
    # LaTeX: \mathcal{L}_t^{(1)} = -\hat{A}_t \rho_t
    unclipped = -advantages * ratio
    # LaTeX: \mathcal{L}_t^{(2)} = -\hat{A}_t \operatorname{clip}(\rho_t, 1 - \epsilon_{clip}, 1 + \epsilon_{clip})
    clipped = -advantages * torch.clamp(ratio, 1 - clip_ratio, 1 + clip_ratio)
    # LaTeX: \mathcal{L}_{pg} = \mathbb{E}_t[\max(\mathcal{L}_t^{(1)}, \mathcal{L}_t^{(2)})]
    loss = torch.maximum(unclipped, clipped).mean()
    return loss


def clipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip_ratio: Tensor) -> Tensor:
    """The worse of the value and of its change clipped to the clip range.  []"""
    # LaTeX: V_t^{clip} = V_{old}(s_t) + \operatorname{clip}(V_\theta(s_t) - V_{old}(s_t), -\epsilon_{clip}, \epsilon_{clip})
    clipped = old_values + torch.clamp(values - old_values, -clip_ratio, clip_ratio)
    # LaTeX: \mathcal{L}_V = \frac{1}{2} \mathbb{E}_t[\max((V_\theta(s_t) - G_t)^2, (V_t^{clip} - G_t)^2)]
    loss = 0.5 * torch.maximum((values - returns) ** 2, (clipped - returns) ** 2).mean()
    return loss


def approximate_kl(ratio: Tensor, ratio_log: Tensor) -> Tensor:
    """KL(old || new) estimated from the old policy's samples; never negative (Schulman 2020).  []"""
    # LaTeX: \widehat{D}_{KL} = \mathbb{E}_t[\rho_t - 1 - \ell_t]
    kl = (ratio - 1 - ratio_log).mean()
    return kl


def clip_fraction(ratio: Tensor, clip_ratio: Tensor) -> Tensor:
    """Share of rows whose ratio left the clip range.  []"""
    # LaTeX: f_{clip} = \mathbb{E}_t[\mathbf{1}[|\rho_t - 1| > \epsilon_{clip}]]
    fraction = (torch.abs(ratio - 1) > clip_ratio).to(ratio.dtype).mean()
    return fraction
