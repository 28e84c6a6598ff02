"""Diagonal Gaussians. Shapes: D is the last axis, one entry per action dimension."""

import math

import torch
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)
EPS = 1e-8


def sampled_actions(mean: Tensor, log_std: Tensor, noise: Tensor) -> Tensor:
    """Sample actions from standard-normal noise, one or more per state.  2 [B, D], [..., B, D] -> [..., B, D]"""
    # LaTeX: \sigma_j = \exp(\log\sigma_j)
    std = torch.exp(log_std)
    # LaTeX: a_j = \mu_j + \sigma_j \xi_j
    actions = mean + std * noise
    return actions


def mirrored(noise: Tensor, samples: int) -> Tensor:
    """Return noise for N samples, the second half opposite the first; if N is odd, one has no counterpart.

    The mean square over the samples is one, as that of the normal distribution: of one pair that leaves the signs.
    [(N + 1) // 2, B, D], N -> [N, B, D]
    """
    # LaTeX: \bar{\xi}_{i,b,j} = -\xi_{i,b,j}
    opposite = -noise
    both = torch.cat((noise, opposite))[:samples]
    # LaTeX: v_{b,j} = \frac{1}{N} \sum_i {\xi'_{i,b,j}}^2
    mean_square = (both**2).mean(0)
    # LaTeX: \hat{\xi}_{i,b,j} = \frac{\xi'_{i,b,j}}{\sqrt{\max(v_{b,j}, \varepsilon_0)}}
    scaled = both / torch.sqrt(torch.clamp(mean_square, min=EPS))
    return scaled


def gaussian_log_prob(mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
    """Return the log-density of actions under a diagonal Gaussian.  [..., D] -> [...]"""
    # LaTeX: \sigma_j = \exp(\log\sigma_j)
    std = torch.exp(log_std)
    # LaTeX: z_j = \frac{a_j - \mu_j}{\sigma_j}
    standardized = (actions - mean) / std
    # LaTeX: \log\pi(a|s) = -\sum_j (\frac{1}{2} z_j^2 + \log\sigma_j + \frac{1}{2} \log(2 \pi))
    log_prob = -(0.5 * standardized**2 + log_std + 0.5 * LOG_2PI).sum(-1)
    return log_prob


def gaussian_entropy(log_std: Tensor) -> Tensor:
    """Return the entropy of a diagonal Gaussian.  [..., D] -> [...]"""
    # LaTeX: \mathcal{H} = \sum_j (\log\sigma_j + \frac{1}{2} (1 + \log(2 \pi)))
    entropy = (log_std + 0.5 * (1 + LOG_2PI)).sum(-1)
    return entropy


def gaussian_kl_mean(mean: Tensor, old_mean: Tensor, old_log_std: Tensor) -> Tensor:
    """Return KL(old || new) of Gaussians that differ only in their means, per dimension.  [..., D] -> [..., D]"""
    # LaTeX: \sigma'_j = \exp(\log\sigma'_j)
    old_std = torch.exp(old_log_std)
    # LaTeX: D_{\mu,j} = \frac{(\mu_j - \mu'_j)^2}{2 {\sigma'_j}^2}
    kl = (mean - old_mean) ** 2 / (2 * old_std**2)
    return kl


def gaussian_kl_std(log_std: Tensor, old_log_std: Tensor) -> Tensor:
    """Return KL(old || new) of Gaussians that differ only in their stds, per dimension.  [..., D] -> [..., D]"""
    # LaTeX: \ell_j = \log\sigma_j - \log\sigma'_j
    log_ratio = log_std - old_log_std
    # expm1: KL bounds are often 1e-6, where exp(x) - 1 loses the significant digits in single precision
    # LaTeX: D_{\sigma,j} = \frac{1}{2} (\exp(-2 \ell_j) - 1 + 2 \ell_j)
    kl = 0.5 * (torch.expm1(-2 * log_ratio) + 2 * log_ratio)
    return kl


def uniform_actions(uniform: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return actions spread uniformly between their bounds, from numbers in [0, 1).  [..., D], [D], [D] -> [..., D]"""
    # LaTeX: a_j = a_j^{low} + x_j (a_j^{high} - a_j^{low})
    actions = low + uniform * (high - low)
    return actions


def tanh_log_det(raw: Tensor) -> Tensor:
    """Return log(1 - tanh(x)^2), accurate also where tanh(x) rounds to 1.  [...] -> [...]"""
    # LaTeX: \log(1 - \tanh^2 x) = 2 (\log 2 - x - \operatorname{softplus}(-2 x))
    log_det = 2 * (math.log(2) - raw - torch.nn.functional.softplus(-2 * raw))
    return log_det


def squashed(raw: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Squash a Gaussian sample by tanh into the action bounds.  [..., D] -> [..., D]"""
    # LaTeX: a_j = a_j^{low} + \frac{1}{2} (\tanh(u_j) + 1) (a_j^{high} - a_j^{low})
    actions = low + 0.5 * (torch.tanh(raw) + 1) * (high - low)
    return actions


def unsquashed(actions: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the sample that `squashed` maps to an action.  [..., D] -> [..., D]

    An action on a bound is first moved inside by a rounding error. The distances to both bounds are computed from the
    action directly, not from its rescaled value, so no precision is lost near the bounds.
    """
    closest = 0.0625 * torch.finfo(actions.dtype).eps * (high - low)
    # LaTeX: u_j = \frac{1}{2} (\log\max(a_j - a_j^{low}, c_j) - \log\max(a_j^{high} - a_j, c_j))
    raw = 0.5 * (torch.log(torch.maximum(actions - low, closest)) - torch.log(torch.maximum(high - actions, closest)))
    return raw


# LaTeX: \log|\frac{da}{du}| = \sum_j (\log(1 - \tanh^2 u_j) + \log(\frac{1}{2} (a_j^{high} - a_j^{low})))
def squash_log_det(raw: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the log-determinant of `squashed`, to subtract from the sample's log-density.  [..., D] -> [...]"""
    return (tanh_log_det(raw) + torch.log(0.5 * (high - low))).sum(-1)
