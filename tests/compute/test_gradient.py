"""One gradient, three ways of taking it: plain autograd, torch.func under vmap, and under torch.compile."""

import pytest
import torch
from torch import Tensor

from minerva.compute.gradient import gradient, transformed
from minerva.compute.tree import Tree

PARAMETERS = torch.linspace(-1, 1, 7, dtype=torch.float64)
INPUTS = torch.linspace(0.5, 2, 7, dtype=torch.float64)


def loss(parameters: Tensor, inputs: Tensor) -> tuple[Tensor, Tree]:
    """Its gradient is x cos(x theta)."""
    waves = torch.sin(parameters * inputs)
    return waves.sum(), {"mean": waves.mean(), "largest": waves.max()}


EXPECTED = INPUTS * torch.cos(INPUTS * PARAMETERS)


def assert_right(slope: Tensor, metrics: Tree) -> None:
    torch.testing.assert_close(slope, EXPECTED, rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(metrics["mean"], torch.sin(PARAMETERS * INPUTS).mean(), rtol=1e-14, atol=1e-16)
    torch.testing.assert_close(metrics["largest"], torch.sin(PARAMETERS * INPUTS).max(), rtol=1e-14, atol=0)


def test_plain() -> None:
    slope, metrics = gradient(loss, PARAMETERS, INPUTS)
    assert_right(slope, metrics)
    assert not slope.requires_grad
    assert not any(metric.requires_grad for metric in metrics.values())


def test_where_gradients_are_switched_off() -> None:
    with torch.no_grad():
        assert_right(*gradient(loss, PARAMETERS, INPUTS))


def test_under_vmap_each_agent_gets_its_own() -> None:
    shifts = torch.tensor([0.0, 0.3, -2.0], dtype=torch.float64)
    with torch.no_grad():
        slopes, metrics = torch.func.vmap(lambda theta: gradient(loss, theta, INPUTS))(PARAMETERS + shifts[:, None])
    assert_right(slopes[0], {name: metric[0] for name, metric in metrics.items()})
    alone = torch.stack([gradient(loss, PARAMETERS + shift, INPUTS)[0] for shift in shifts])
    torch.testing.assert_close(slopes, alone, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("grad_mode", [True, False])
def test_under_compile(grad_mode: bool) -> None:
    call = torch.compile(lambda theta, x: gradient(loss, theta, x), fullgraph=True, backend="aot_eager")
    with torch.set_grad_enabled(grad_mode):
        assert_right(*call(PARAMETERS, INPUTS))


def test_the_parameters_are_not_marked_for_gradients() -> None:
    gradient(loss, PARAMETERS, INPUTS)
    assert not PARAMETERS.requires_grad
    assert PARAMETERS.grad is None


def test_transformed_notices_function_transforms() -> None:
    seen: list[bool] = []

    def note(x: Tensor) -> Tensor:
        seen.append(transformed())
        return x.sum()

    note(INPUTS)
    torch.func.vmap(note)(INPUTS[:, None])
    torch.func.grad(note)(INPUTS)
    note(INPUTS)
    assert seen == [False, True, True, False]


def test_transformed_notices_compiling() -> None:
    call = torch.compile(lambda x: x + 1 if transformed() else x - 1, backend="eager", fullgraph=True)
    assert call(torch.tensor(1.0)).item() == 2
