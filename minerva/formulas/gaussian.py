"""Diagonal Gaussians. Shapes: D is the last axis, one entry per action dimension."""

import math

import torch
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)


def gaussian_log_prob(mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
    """Log-density of a diagonal Gaussian.  [..., D] -> [...]"""
    # LaTeX: \sigma_j = \exp(\log\sigma_j)
    std = torch.exp(log_std)
    # LaTeX: z_j = \frac{a_j - \mu_j}{\sigma_j}
    standardized = (actions - mean) / std
    # LaTeX: \log\pi(a|s) = -\sum_j (\frac{1}{2} z_j^2 + \log\sigma_j + \frac{1}{2} \log 2\pi)
    log_prob = -(0.5 * standardized**2 + log_std + 0.5 * LOG_2PI).sum(-1)
    return log_prob


def gaussian_entropy(log_std: Tensor) -> Tensor:
    """Entropy of a diagonal Gaussian.  [..., D] -> [...]"""
    # LaTeX: \mathcal{H} = \sum_j (\log\sigma_j + \frac{1}{2} (1 + \log 2\pi))
    entropy = (log_std + 0.5 * (1 + LOG_2PI)).sum(-1)
    return entropy


def gaussian_kl_mean(mean: Tensor, old_mean: Tensor, old_log_std: Tensor) -> Tensor:
    """KL(old || new) of Gaussians that differ in their means alone, per dimension.  [..., D] -> [..., D]"""
    # LaTeX: \sigma'_j = \exp(\log\sigma'_j)
    old_std = torch.exp(old_log_std)
    # LaTeX: D_{\mu,j} = \frac{(\mu_j - \mu'_j)^2}{2 {\sigma'_j}^2}
    kl = (mean - old_mean) ** 2 / (2 * old_std**2)
    return kl


def gaussian_kl_std(log_std: Tensor, old_log_std: Tensor) -> Tensor:
    """KL(old || new) of Gaussians that differ in their spreads alone, per dimension.  [..., D] -> [..., D]"""
    # LaTeX: \ell_j = \log\sigma_j - \log\sigma'_j
    log_ratio = log_std - old_log_std
    # LaTeX: D_{\sigma,j} = \frac{1}{2} (\exp(-2 \ell_j) - 1 + 2 \ell_j)
    kl = 0.5 * (torch.exp(-2 * log_ratio) - 1 + 2 * log_ratio)
    return kl


def tanh_log_slope(raw: Tensor) -> Tensor:
    """log(1 - tanh(x)^2), exact also where tanh(x) rounds to 1.  [...] -> [...]"""
    # LaTeX: \log(1 - \tanh^2 x) = 2 (\log 2 - x - \operatorname{softplus}(-2 x))
    log_slope = 2 * (math.log(2) - raw - torch.nn.functional.softplus(-2 * raw))
    return log_slope
