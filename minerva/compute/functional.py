"""A module as a function of its parameters, and one step of gradient descent: the parts of every update."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

from minerva.compute.flat import FlatParameters
from minerva.compute.gradient import Loss, gradient
from minerva.compute.optim import Moments, Optimizer
from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.tree import Tree
from minerva.formulas.optimizers import clip_by_norm

Buffers = Mapping[str, Mapping[str, Tensor]]
"""Buffers by submodule and name."""


class FunctionalModule:
    """A module as a function of one flat vector of parameters, `flat.vector`, and of buffers.

    The module stays an ordinary module: its parameters are views of the vector.
    """

    def __init__(self, module: nn.Module, *methods: str) -> None:
        """List the `methods` to be called beside `forward`."""
        self.module = module
        self.flat = FlatParameters(module)
        self._methods = {method: _MethodAsForward(module, method) for method in methods if method != "forward"}

    def __call__(self, parameters: Tensor, *inputs: Tensor, buffers: Buffers | None = None) -> Any:
        """Call the module's `forward` with these parameters and buffers instead of the module's."""
        return self.with_tensors(self.flat.by_name(parameters), *inputs, buffers=buffers)

    def with_tensors(
        self, named: Mapping[str, Tensor], *inputs: Tensor, buffers: Buffers | None = None, method: str = "forward"
    ) -> Any:
        """Call a method of the module with tensors by name instead of the module's parameters and buffers."""
        tensors = dict(named)
        for submodule, by_name in (buffers or {}).items():
            tensors |= {f"{submodule}.{name}": tensor for name, tensor in by_name.items()}
        if method == "forward":
            return functional_call(self.module, tensors, inputs)
        return functional_call(
            self._methods[method], {f"module.{name}": tensor for name, tensor in tensors.items()}, inputs
        )


class _MethodAsForward(nn.Module):
    """A module whose `forward` calls a method of another, because `functional_call` calls nothing but `forward`."""

    def __init__(self, module: nn.Module, method: str) -> None:
        super().__init__()
        self.module = module
        self.method = method

    def forward(self, *inputs: Tensor) -> Any:
        """Call the method."""
        return getattr(self.module, self.method)(*inputs)


def stepped(
    parameters: Tensor,
    grads: Tensor,
    moments: Moments,
    optimizer: Optimizer,
    learning_rate: Tensor,
    max_norm: Tensor | None = None,
    ranks: Ranks = SINGLE,
) -> tuple[Tensor, Moments]:
    """Return parameters and moments after one step on the mean gradient of all ranks, clipped to `max_norm`."""
    grads = ranks.mean(grads)
    if max_norm is not None:
        grads = clip_by_norm(grads, max_norm)
    return optimizer.step(parameters, grads, moments, learning_rate)


def descend(
    loss: Loss,
    parameters: Tensor,
    moments: Moments,
    *inputs: Any,
    optimizer: Optimizer,
    learning_rate: Tensor,
    max_norm: Tensor | None = None,
    ranks: Ranks = SINGLE,
) -> tuple[Tensor, Moments, Tree]:
    """Take one step down the gradient of `loss(parameters, *inputs) -> (scalar, metrics)`.

    In order: gradient, mean over ranks, clipping by norm (None: no clipping), optimiser. Return parameters, moments and
    metrics.
    """
    grads, metrics = gradient(loss, parameters, *inputs)
    parameters, moments = stepped(parameters, grads, moments, optimizer, learning_rate, max_norm, ranks)
    return parameters, moments, metrics
