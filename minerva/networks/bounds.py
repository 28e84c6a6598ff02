"""Action bounds and limits of the policy's log standard deviation, for all networks."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from minerva.errors import ConfigError

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
"""Limits to which a policy's log standard deviation is clamped."""

Bound = float | Sequence[float] | np.ndarray | Tensor
"""An action bound: one number for all dimensions, or one for each."""


def action_bounds(low: Bound | None, high: Bound | None, act_dim: int) -> tuple[Tensor, Tensor]:
    """Return both bounds as vectors [D]; None means -1 and 1. Raise ConfigError unless high - low is finite and > 0."""
    ends = []
    for name, bound, default in (("action_low", low, -1.0), ("action_high", high, 1.0)):
        end = torch.as_tensor(default if bound is None else bound, dtype=torch.get_default_dtype(), device="cpu")
        if end.shape not in ((), (act_dim,)):
            raise ConfigError(
                f"{name} has shape {tuple(end.shape)}: give one number, or one for each of {act_dim} actions."
            )
        ends.append(end * torch.ones(act_dim, device="cpu"))
    if not bool(torch.isfinite(ends[1] - ends[0]).all() and (ends[0] < ends[1]).all()):
        raise ConfigError(f"action_low {ends[0].tolist()} must be finite and below action_high {ends[1].tolist()}.")
    return ends[0], ends[1]
