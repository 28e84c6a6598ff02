"""Gradients of pure functions."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from minerva.compute.torch_private import inside_function_transform
from minerva.compute.tree import Tree, detached

Loss = Callable[..., tuple[Tensor, Tree]]
GradientOf = Callable[..., tuple[Tensor, Tree]]


def transformed() -> bool:
    """Return whether this code runs inside torch.compile, vmap or another function transform."""
    return torch.compiler.is_compiling() or inside_function_transform()


def gradient(loss: Loss, parameters: Tensor, *inputs: Any) -> tuple[Tensor, Tree]:
    """Return the gradient of `loss(parameters, *inputs) -> (scalar, metrics)` and those metrics.

    Compiling and stacking need torch.func; without them, plain autograd gives the same numbers 2.4 times faster
    (1.3 ms instead of 3.1 ms for a PPO minibatch).
    """
    if transformed():
        return torch.func.grad(loss, has_aux=True)(parameters, *inputs)
    with torch.enable_grad():
        leaf = parameters.detach().requires_grad_()
        value, metrics = loss(leaf, *inputs)
        (result,) = torch.autograd.grad(value, leaf)
    return result, detached(metrics)


def outputs_and_gradient(
    function: Callable[..., tuple[Tree, Tree]], parameters: Tensor, *inputs: Any
) -> tuple[Tree, Tree, GradientOf]:
    """Return the outputs and metrics of `function(parameters, *inputs)` as constants, and a function `gradient_of`.

    `gradient_of(loss, *constants)` returns the gradient with respect to the parameters of `loss(outputs, *constants) ->
    (scalar, metrics)`, and those metrics. So a loss can use values computed from the outputs, with one forward pass.
    """
    if transformed():
        # torch.func.vjp's annotation lacks the output that `has_aux` adds
        found: Any = torch.func.vjp(lambda point: function(point, *inputs), parameters, has_aux=True)
        outputs, pull_back, metrics = found
        return outputs, metrics, functools.partial(_pulled_back, outputs, pull_back)
    with torch.enable_grad():
        leaf = parameters.detach().requires_grad_()
        attached, metrics = function(leaf, *inputs)
    return detached(attached), detached(metrics), functools.partial(_through_graph, attached, leaf)


def _pulled_back(outputs: Tree, pull_back: Callable[..., Any], loss: Loss, *constants: Any) -> tuple[Tensor, Tree]:
    """Return the gradient and metrics of a loss of the outputs, by the vector-Jacobian product `pull_back`."""
    by_output, metrics = torch.func.grad(loss, has_aux=True)(outputs, *constants)
    return pull_back(by_output)[0], metrics


def _through_graph(attached: Tree, leaf: Tensor, loss: Loss, *constants: Any) -> tuple[Tensor, Tree]:
    """Return the gradient and metrics of a loss of outputs that are attached to an autograd graph."""
    with torch.enable_grad():
        value, metrics = loss(attached, *constants)
    return torch.autograd.grad(value, leaf)[0], detached(metrics)
