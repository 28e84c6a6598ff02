"""The optimisers against torch.optim, step by step."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from minerva.formulas.optimizers import adam, clip_by_norm, decayed, sgd

STEPS, SIZE = 50, 20

Step = Callable[[Tensor, Tensor, dict[str, Tensor], Tensor], tuple[Tensor, dict[str, Tensor]]]


def heavy_ball(parameters: Tensor, gradient: Tensor, moments: dict[str, Tensor], learning_rate: Tensor):  # type: ignore[no-untyped-def]
    return sgd(parameters, gradient, moments, learning_rate, 0.9)


def adam_with_decay(parameters: Tensor, gradient: Tensor, moments: dict[str, Tensor], learning_rate: Tensor):  # type: ignore[no-untyped-def]
    moved, moments = adam(parameters, gradient, moments, learning_rate)
    return decayed(moved, parameters, torch.full_like(parameters, 0.3), learning_rate), moments


def make_adam_with_decay(groups: list[dict[str, object]]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, eps=1e-5, weight_decay=0.3)


def make_adam(groups: list[dict[str, object]]) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, eps=1e-5)


def make_sgd(groups: list[dict[str, object]]) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, momentum=0.9)


BOTH = pytest.mark.parametrize(
    ("step", "make"),
    [(adam, make_adam), (heavy_ball, make_sgd), (adam_with_decay, make_adam_with_decay)],
    ids=["adam", "sgd", "adamw"],
)


def gradients() -> Tensor:
    """Gradients of very different size, with a parameter that has none and one that is rarely touched."""
    draw = torch.randn(STEPS, SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    draw *= torch.logspace(-6, 2, SIZE, dtype=torch.float64)
    draw[:, 0] = 0
    draw[:, 1] *= torch.arange(STEPS) % 10 == 0
    return draw


def zero_moments() -> dict[str, Tensor]:
    return {
        "step": torch.zeros((), dtype=torch.float64),
        "first": torch.zeros(SIZE, dtype=torch.float64),
        "second": torch.zeros(SIZE, dtype=torch.float64),
    }


@BOTH
def test_fifty_steps_are_those_of_torch(step: Step, make: Callable[..., torch.optim.Optimizer]) -> None:
    theirs = torch.linspace(-1, 1, SIZE, dtype=torch.float64).requires_grad_()
    ours, moments = theirs.detach().clone(), zero_moments()
    optimizer = make([{"params": [theirs], "lr": 0.01}])
    for gradient in gradients():
        theirs.grad = gradient.clone()
        optimizer.step()
        ours, moments = step(ours, gradient, moments, torch.tensor(0.01, dtype=torch.float64))
        torch.testing.assert_close(ours, theirs.detach(), rtol=0, atol=1e-12)
    assert moments["step"].item() == STEPS


@BOTH
def test_a_vector_of_rates_gives_each_parameter_its_own(step: Step, make: Callable[..., torch.optim.Optimizer]) -> None:
    half = SIZE // 2
    first, second = (torch.ones(half, dtype=torch.float64, requires_grad=True) for _ in range(2))
    optimizer = make([{"params": [first], "lr": 0.01}, {"params": [second], "lr": 0.3}])
    rates = torch.tensor([0.01] * half + [0.3] * half, dtype=torch.float64)
    ours, moments = torch.ones(SIZE, dtype=torch.float64), zero_moments()
    for gradient in gradients():
        first.grad, second.grad = gradient[:half].clone(), gradient[half:].clone()
        optimizer.step()
        ours, moments = step(ours, gradient, moments, rates)
    torch.testing.assert_close(ours, torch.cat([first, second]).detach(), rtol=1e-12, atol=1e-12)


@BOTH
def test_a_step_leaves_its_inputs_alone(step: Step, make: Callable[..., torch.optim.Optimizer]) -> None:
    parameters, gradient, moments = torch.ones(SIZE).double(), torch.ones(SIZE).double(), zero_moments()
    step(parameters, gradient, moments, torch.tensor(0.1))
    assert torch.equal(parameters, torch.ones(SIZE).double())
    assert torch.equal(gradient, torch.ones(SIZE).double())
    assert not any(moment.any() for moment in moments.values())


def test_adams_first_step_has_the_length_of_the_learning_rate() -> None:
    gradient = torch.tensor([1e3, -1.0], dtype=torch.float64)
    moments = {name: moment[..., :2] if moment.ndim else moment for name, moment in zero_moments().items()}
    moved, _ = adam(torch.zeros(2).double(), gradient, moments, torch.tensor(0.25).double())
    torch.testing.assert_close(moved, torch.tensor([-0.25, 0.25]).double(), rtol=1.1e-5, atol=0)


@pytest.mark.parametrize("max_norm", [1e-3, 0.5, 3.0, 1e6, float("inf")])
def test_clipping_is_that_of_torch(max_norm: float) -> None:
    for gradient in gradients():
        parameter = torch.zeros(SIZE, dtype=torch.float64, requires_grad=True)
        parameter.grad = gradient.clone()
        torch.nn.utils.clip_grad_norm_([parameter], max_norm)
        found = clip_by_norm(gradient, torch.tensor(max_norm, dtype=torch.float64))
        torch.testing.assert_close(found, parameter.grad, rtol=1e-12, atol=0)


def test_clipping_bounds_the_length_and_keeps_the_direction() -> None:
    gradient = torch.tensor([30.0, -40.0], dtype=torch.float64)
    clipped = clip_by_norm(gradient, torch.tensor(5.0, dtype=torch.float64))
    torch.testing.assert_close(clipped, torch.tensor([3.0, -4.0], dtype=torch.float64), rtol=1e-7, atol=0)


def test_a_zero_gradient_stays_zero() -> None:
    assert not clip_by_norm(torch.zeros(3), torch.tensor(0.5)).any()
