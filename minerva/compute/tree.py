"""Nested dicts of tensors, such as an agent's state, and functions on them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Tree = dict[str, Any]
"""A nested dict whose leaves are tensors."""


def select(condition: Tensor, chosen: Tree, other: Tree) -> Tree:
    """Return `chosen` where `condition` holds, else `other`, without a transfer to the host.

    The condition is a scalar, or has one entry per agent of a stack, which is the tensors' leading axis.
    """
    return {
        key: select(condition, value, other[key])
        if isinstance(value, dict)
        else torch.where(_with_trailing_axes(condition, value), value, other[key])
        for key, value in chosen.items()
    }


def _with_trailing_axes(condition: Tensor, value: Tensor) -> Tensor:
    """Return the condition with as many axes as `value`, to broadcast along the leading ones."""
    return condition.reshape(condition.shape + (1,) * (value.ndim - condition.ndim))


def copy_(target: Tree, source: Tree) -> None:
    """Copy every tensor of `source` into the tensor of `target` at the same place, in place: views see the change."""
    for key, value in source.items():
        if isinstance(value, dict):
            copy_(target[key], value)
        else:
            target[key].copy_(value)


def leaves(tree: Any) -> list[Tensor]:
    """Return the tensors of a tree, or of a sequence of trees, in the order of their keys."""
    if isinstance(tree, Tensor):
        return [tree]
    parts = tree.values() if isinstance(tree, dict) else tree
    return [leaf for part in parts for leaf in leaves(part)]


def mapped(function: Callable[..., Tensor], *trees: Any) -> Any:
    """Apply `function` to the tensors at the same place of each tree and return the tree of results."""
    first = trees[0]
    if isinstance(first, Tensor):
        return function(*trees)
    if isinstance(first, dict):
        return {key: mapped(function, *(tree[key] for tree in trees)) for key in first}
    return tuple(mapped(function, *parts) for parts in zip(*trees, strict=True))


def stacked(trees: Sequence[Any]) -> Any:
    """Return one tree whose tensors are those of `trees`, stacked along a new leading axis."""
    return mapped(lambda *tensors: torch.stack(tensors), *trees)


def detached(tree: Tree) -> Tree:
    """Return the tree with every tensor detached from the autograd graph."""
    return {key: detached(value) if isinstance(value, dict) else value.detach() for key, value in tree.items()}


def take(batch: Tree, index: Tensor) -> Tree:
    """Return the rows at `index` of every tensor."""
    taken: Tree = mapped(lambda rows: rows[index], batch)
    return taken
