"""Masks of the possible choices among discrete actions, which follow the numbers of an observation."""

import torch
from torch import Tensor

IMPOSSIBLE = -1e8
"""Logit of a choice that is not possible: finite, so that 0 times its log-probability is 0."""


def without_mask(obs: Tensor, mask_size: int) -> tuple[Tensor, Tensor | None]:
    """Split the numbers of observations from the masks that follow, if any.  [..., O + C] -> [..., O], [..., C]"""
    return (obs[..., :-mask_size], obs[..., -mask_size:]) if mask_size else (obs, None)


def masked(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return logits whose impossible choices, with 0 in the mask, have probability 0.  [..., C] -> [..., C]"""
    return logits if mask is None else torch.where(mask > 0, logits, IMPOSSIBLE)
