"""Modules as functions of their parameters, a step down a gradient, and losses of what was decided from outputs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from minerva.compute.functional import FunctionalModule, descend
from minerva.compute.gradient import gradient, outputs_and_gradient
from minerva.compute.optim import Optimizer

PARAMETERS = torch.linspace(-1, 2, 5, dtype=torch.float64)
SGD = Optimizer("sgd", 0.0)


class Scaled(nn.Module):
    """A module with a submodule's buffer and two methods."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(3, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's outputs."""
        outputs: Tensor = self.layer(x)
        return outputs

    def shifted(self, x: Tensor) -> Tensor:
        """Return the layer's outputs of what is above the buffer."""
        return self(x - self.norm.running_mean)


def test_a_module_is_called_with_other_parameters_and_buffers_and_keeps_its_own() -> None:
    module = Scaled()
    function, x = FunctionalModule(module, "shifted"), torch.randn(4, 3)
    before = module(x).detach().clone()
    doubled = function(2 * function.flat.vector, x)
    torch.testing.assert_close(doubled, 2 * before)
    named = function.flat.by_name(function.flat.vector)
    shift = {"norm": {"running_mean": torch.ones(3)}}
    found = function.with_tensors(named, x, buffers=shift, method="shifted")
    torch.testing.assert_close(found, module(x - 1))
    torch.testing.assert_close(module(x).detach(), before, rtol=0, atol=0)


def square(parameters: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    loss = ((parameters - target) ** 2).sum()
    return loss, {"loss": loss}


@pytest.mark.parametrize("max_norm", [None, 0.5, 100.0])
def test_a_step_is_the_rate_times_the_gradient_no_longer_than_allowed(max_norm: float | None) -> None:
    target = torch.zeros_like(PARAMETERS)
    limit = None if max_norm is None else torch.tensor(max_norm, dtype=torch.float64)
    rate = torch.tensor(0.1, dtype=torch.float64)
    moments = SGD.initial_moments(PARAMETERS)
    after, moved, metrics = descend(
        square, PARAMETERS, moments, target, optimizer=SGD, learning_rate=rate, max_norm=limit
    )
    length = (2 * PARAMETERS).norm()
    shortened = 1.0 if limit is None else min(1.0, (limit / length).item())
    torch.testing.assert_close(after, PARAMETERS - 0.2 * shortened * PARAMETERS, rtol=1e-6, atol=1e-8)
    assert metrics["loss"].item() == pytest.approx((PARAMETERS**2).sum().item())
    assert moved["step"] == 1


def network(parameters: Tensor, inputs: Tensor) -> tuple[dict[str, Any], dict[str, Tensor]]:
    outputs = torch.sin(parameters * inputs)
    return {"parts": {"first": outputs}, "sum": outputs.sum()}, {"largest": outputs.max()}


def loss_of(outputs: dict[str, Any], weight: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    loss = weight * (outputs["parts"]["first"] ** 2).sum() + outputs["sum"]
    return loss, {"loss": loss}


def in_one(parameters: Tensor, inputs: Tensor, weight: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    return loss_of(network(parameters, inputs)[0], weight)


def decided(parameters: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A weight that depends on the outputs, and is a constant to the gradient."""
    outputs, metrics, gradient_of = outputs_and_gradient(network, parameters, inputs)
    weight = 1 + outputs["sum"] ** 2
    grads, _ = gradient_of(loss_of, weight)
    return grads, weight, metrics["largest"]


WAYS: dict[str, Callable[..., Any]] = {
    "plain": decided,
    "mapped": lambda parameters, inputs: tuple(
        part[1] for part in torch.func.vmap(decided, (0, None))(torch.stack([2 * parameters, parameters]), inputs)
    ),
    "compiled": lambda parameters, inputs: torch.compile(decided, fullgraph=True, backend="aot_eager")(
        parameters, inputs
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_loss_of_outputs_has_the_gradient_of_the_whole_with_what_was_decided_held_constant(way: str) -> None:
    inputs = torch.linspace(0.5, 2, 5, dtype=torch.float64)
    with torch.no_grad():
        grads, weight, largest = WAYS[way](PARAMETERS, inputs)
        expected, _ = gradient(in_one, PARAMETERS, inputs, weight)
    torch.testing.assert_close(grads, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(largest, torch.sin(PARAMETERS * inputs).max())
