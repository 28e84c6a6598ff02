"""Trees of tensors as tests look at them: leaf by leaf, and those of several agents as one."""

import torch
from torch import Tensor

from minerva.compute.tree import Tree


def leaves(tree: Tree, path: str = "") -> dict[str, Tensor]:
    """Every tensor of a tree by its path, as a copy."""
    found: dict[str, Tensor] = {}
    for key, value in tree.items():
        found |= leaves(value, f"{path}{key}/") if isinstance(value, dict) else {f"{path}{key}": value.clone()}
    return found


def stacked(trees: list[Tree]) -> Tree:
    """Trees of one form as one, with an axis before the others."""
    return {
        key: stacked([tree[key] for tree in trees])
        if isinstance(value, dict)
        else torch.stack([tree[key] for tree in trees])
        for key, value in trees[0].items()
    }
