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
