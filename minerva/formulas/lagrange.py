"""Dual variables: temperatures and multipliers, stored unconstrained and mapped to positive values on use.

How the multipliers enter the losses is in `trust_region`.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

EPS_0 = 1e-8
"""Lower limit of a temperature or multiplier."""
FLOOR = -18.0
"""Lower limit of an unconstrained parameter."""

TEMPERATURE_MIN, TEMPERATURE_MAX = 1e-6, 1e6
"""Range in which `solved_temperature` searches."""
SECTIONS, ROUNDS = 8, 11
"""Sections per search round, and number of rounds: together they resolve a temperature to a relative 3e-9."""


def positive(unconstrained: Tensor) -> Tensor:
    """Return the temperature or multiplier that an unconstrained parameter stands for."""
    # LaTeX: \eta = \operatorname{softplus}(\tilde\eta) + \varepsilon_0
    multiplier = softplus(unconstrained) + EPS_0
    return multiplier


def unconstrained(multiplier: float) -> float:
    """Return the initial unconstrained parameter of a multiplier: the inverse of softplus."""
    return multiplier + math.log(-math.expm1(-multiplier))


def inverse_positive(multiplier: Tensor) -> Tensor:
    """Return the unconstrained parameter of a multiplier: the inverse of `positive`."""
    # LaTeX: x = \eta - \varepsilon_0
    softplus_part = multiplier - EPS_0
    # LaTeX: \tilde\eta = x + \log(1 - \exp(-x))
    parameter = softplus_part + torch.log(-torch.expm1(-softplus_part))
    return parameter


def floored(parameter: Tensor) -> Tensor:
    """Clamp an unconstrained parameter from below, so that it cannot drift to where softplus has no gradient."""
    # LaTeX: \tilde\eta' = \max(\tilde\eta, -18)
    kept = torch.clamp(parameter, min=FLOOR)
    return kept


def solved_temperature(kl: Callable[[Tensor], Tensor], bound: Tensor) -> Tensor:
    """Return the temperature at which the E-step's KL equals its bound, by a section search on a logarithmic scale.

    `kl(temperature)` must fall as the temperature rises. The dual's derivative is `bound - kl`, so the result minimises
    the dual. The number of rounds is fixed, so the host never waits for the device. Each round evaluates the KL at
    several temperatures at once and keeps the section in which it crosses the bound: a few such rounds compile far
    faster than sixty bisections. If the bound cannot be reached (equal scores have a KL of zero at any temperature),
    return the lowest temperature.
    """
    inner = torch.arange(1, SECTIONS, dtype=bound.dtype, device=bound.device) / SECTIONS
    low = torch.full_like(bound, math.log(TEMPERATURE_MIN))
    width = torch.full_like(bound, math.log(TEMPERATURE_MAX / TEMPERATURE_MIN))
    for _ in range(ROUNDS):
        # LaTeX: \eta_k = \exp(\ell' + w' x_k)
        temperatures = torch.exp(low + width * inner)
        kls = torch.func.vmap(kl)(temperatures)
        # LaTeX: o_k = \mathbf{1}[D_k > \epsilon]
        over = kls > bound
        # LaTeX: w = \frac{w'}{8}
        width = width / SECTIONS
        # LaTeX: \ell = \ell' + w \sum_k o_k
        low = low + width * over.sum(0)
    return torch.exp(low + 0.5 * width)
