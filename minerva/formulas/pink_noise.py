"""Pink noise: a sum of processes that forget at different rates."""

import math

import torch
from torch import Tensor

DECAYS = (0.0, *(math.exp(-1 / 4**k) for k in range(5)))
"""Share of each component of pink noise that is left after a step: white noise, and time constants of 1 to 256 steps.

With constants a factor of four apart, the power of their sum is within a fifth of one that falls as 1 / frequency,
over periods from 6 to 800 steps.
"""


def next_components(before: Tensor, white: Tensor, decays: Tensor) -> Tensor:
    """Return the components of pink noise one step later; each keeps a variance of one.

    `white` is standard-normal noise, `decays` the share of each that is left.

    [..., K, E, D] twice, [..., K, 1, 1] -> [..., K, E, D]
    """
    # LaTeX: x_k = \phi_k x'_k + \sqrt{1 - \phi_k^2} \xi_k
    components = decays * before + torch.sqrt(1 - decays**2) * white
    return components


def pink_noise(components: Tensor) -> Tensor:
    """Return pink noise, whose variance is one, from its components.  [..., K, E, D] -> [..., E, D]"""
    # LaTeX: \zeta = \frac{1}{\sqrt{K}} \sum_k x_k
    noise = components.sum(-3) / math.sqrt(components.shape[-3])
    return noise
