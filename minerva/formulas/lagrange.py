"""Dual variables: temperatures and multipliers are kept as unconstrained numbers and made positive where they are used.

What the multipliers do is in `trust_region`.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

EPS_0 = 1e-8
FLOOR = -18.0
"""Unconstrained multipliers never fall below this."""

LOWEST, HIGHEST = 1e-6, 1e6
SECTIONS, ROUNDS = 8, 11
"""Sections per round of a search, and rounds: together they resolve a temperature to 3e-9 of its value."""


def positive(unconstrained: Tensor) -> Tensor:
    """A multiplier from its unconstrained parameter."""
    # LaTeX: \eta = \operatorname{softplus}(\tilde\eta) + \varepsilon_0
    multiplier = softplus(unconstrained) + EPS_0
    return multiplier


def unconstrained(multiplier: float) -> float:
    """The inverse of softplus: the parameter at which a multiplier has this value."""
    return multiplier + math.log(-math.expm1(-multiplier))


def inverse_positive(multiplier: Tensor) -> Tensor:
    """The inverse of `positive`: where a solved multiplier is stored."""
    # LaTeX: x = \eta - \varepsilon_0
    softplus_part = multiplier - EPS_0
    # LaTeX: \tilde\eta = x + \log(1 - \exp(-x))
    parameter = softplus_part + torch.log(-torch.expm1(-softplus_part))
    return parameter


def floored(parameter: Tensor) -> Tensor:
    """The unconstrained parameter, kept from drifting where softplus has no slope left."""
    # LaTeX: \tilde\eta' = \max(\tilde\eta, -18)
    kept = torch.clamp(parameter, min=FLOOR)
    return kept


def solved_temperature(kl: Callable[[Tensor], Tensor], bound: Tensor) -> Tensor:
    """The temperature at which the E-step's KL meets its bound, by sectioning on a logarithmic scale.

    `kl(temperature)` falls as the temperature rises. The dual's slope is `bound - kl`, so this is its minimum. The
    number of rounds is fixed: nothing is decided on the host. In each the KL is taken at several temperatures at once
    and the section kept in which it crosses the bound: a few rounds compile far faster than sixty bisections. Where
    the bound cannot be reached (equal scores give no KL at any temperature) the lowest temperature is returned.
    """
    inner = torch.arange(1, SECTIONS, dtype=bound.dtype, device=bound.device) / SECTIONS
    low = torch.full_like(bound, math.log(LOWEST))
    width = torch.full_like(bound, math.log(HIGHEST / LOWEST))
    for _ in range(ROUNDS):
        over = torch.func.vmap(kl)(torch.exp(low + width * inner)) > bound
        width = width / SECTIONS
        low = low + width * over.sum(0)
    return torch.exp(low + 0.5 * width)
