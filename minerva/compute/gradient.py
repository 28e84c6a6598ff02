"""Gradients of pure functions."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from minerva.compute.torch_private import inside_function_transform
from minerva.compute.tree import Tree, detached

Loss = Callable[..., tuple[Tensor, Tree]]


def transformed() -> bool:
    """Return whether this code runs inside torch.compile, vmap or another function transform."""
    return torch.compiler.is_compiling() or inside_function_transform()


def gradient(loss: Loss, parameters: Tensor, *inputs: Any) -> tuple[Tensor, Tree]:
    """Return the gradient of `loss(parameters, *inputs) -> (scalar, metrics)` and those metrics.

    torch.func is what compiling and stacking need; plain autograd gives the same numbers 2.4 times faster
    when neither is at work (3.1 against 1.3 ms for a PPO minibatch).
    """
    if transformed():
        return torch.func.grad(loss, has_aux=True)(parameters, *inputs)
    with torch.enable_grad():
        leaf = parameters.detach().requires_grad_()
        value, metrics = loss(leaf, *inputs)
        (result,) = torch.autograd.grad(value, leaf)
    return result, detached(metrics)
