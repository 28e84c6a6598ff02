"""The optimiser a config names."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from minerva.compute.optim import Optimizer
from minerva.config import OptimizerType

THEIRS: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.05, eps=1e-5),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.6),
}


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_minimises_as_torchs_optimiser_of_that_name_does(kind: OptimizerType) -> None:
    """Descent on sum cosh(x_k k): gradients come from where the optimiser went, so errors would add up."""
    widths = torch.arange(1, 6, dtype=torch.float64)
    theirs = torch.full((5,), 0.5, dtype=torch.float64, requires_grad=True)
    optimizer = THEIRS[kind]([theirs])
    ours = Optimizer(kind, sgd_momentum=0.6)
    parameters = theirs.detach().clone()
    moments = ours.initial_moments(parameters)
    for _ in range(50):
        theirs.grad = (widths * torch.sinh(widths * theirs)).detach().clamp(-10, 10)
        optimizer.step()
        slope = (widths * torch.sinh(widths * parameters)).clamp(-10, 10)
        parameters, moments = ours.step(parameters, slope, moments, torch.tensor(0.05, dtype=torch.float64))
    torch.testing.assert_close(parameters, theirs.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("kind", "names"), [("adam", {"step", "first", "second"}), ("sgd", {"step", "first"})])
def test_moments_start_at_zero_and_keep_their_shape_and_names(kind: OptimizerType, names: set[str]) -> None:
    optimizer = Optimizer(kind, sgd_momentum=0.9)
    parameters = torch.ones(4, dtype=torch.float64)
    before = optimizer.initial_moments(parameters)
    _, after = optimizer.step(parameters, torch.ones_like(parameters), before, torch.tensor(0.1, dtype=torch.float64))
    assert set(before) == set(after) == names
    assert not any(moment.any() for moment in before.values())
    assert {name: (m.shape, m.dtype) for name, m in before.items()} == {
        name: (m.shape, m.dtype) for name, m in after.items()
    }


def test_without_momentum_sgd_goes_straight_down_the_gradient() -> None:
    optimizer = Optimizer("sgd", sgd_momentum=0.0)
    parameters, slope = torch.tensor([1.0, 2.0]), torch.tensor([10.0, -10.0])
    moments = optimizer.initial_moments(parameters)
    for _ in range(3):
        parameters, moments = optimizer.step(parameters, slope, moments, torch.tensor(0.1))
    torch.testing.assert_close(parameters, torch.tensor([-2.0, 5.0]))
