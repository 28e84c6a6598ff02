"""Nested dicts of tensors: what an agent's state is made of."""

from typing import Any

import torch
from torch import Tensor

Tree = dict[str, Any]
"""A dict whose leaves are tensors and whose other values are such dicts again."""


def select(condition: Tensor, chosen: Tree, other: Tree) -> Tree:
    """`chosen` where the scalar `condition` holds, else `other`: a choice that stays on the device."""
    return {
        key: select(condition, value, other[key])
        if isinstance(value, dict)
        else torch.where(condition, value, other[key])
        for key, value in chosen.items()
    }


def copy_(target: Tree, source: Tree) -> None:
    """Write every tensor of `source` into its place in `target`, so that all who hold it see the change."""
    for key, value in source.items():
        if isinstance(value, dict):
            copy_(target[key], value)
        else:
            target[key].copy_(value)


def detached(tree: Tree) -> Tree:
    """The same tensors, without the graph that made them."""
    return {key: detached(value) if isinstance(value, dict) else value.detach() for key, value in tree.items()}


def take(batch: dict[str, Tensor], index: Tensor) -> dict[str, Tensor]:
    """The same rows of every tensor."""
    return {key: value[index] for key, value in batch.items()}
