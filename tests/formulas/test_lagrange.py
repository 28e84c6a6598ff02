"""Multipliers and the temperature's dual: inverses, gradients, and scipy's minimum of the same dual."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from torch import Tensor

from minerva.formulas.lagrange import (
    FLOOR,
    TEMPERATURE_MIN,
    floored,
    positive,
    solved_temperature,
    unconstrained,
)
from minerva.formulas.trust_region import multiplier_loss, penalties

STATES, ACTIONS = 16, 20


@pytest.mark.parametrize("multiplier", [1e-6, 0.1, 1.0, 10.0, 1e3])
def test_unconstrained_inverts_positive(multiplier: float) -> None:
    parameter = torch.tensor(unconstrained(multiplier), dtype=torch.float64)
    assert positive(parameter).item() == pytest.approx(multiplier + 1e-8, rel=1e-9)


def test_multipliers_are_positive_and_rise_with_their_parameter() -> None:
    multipliers = positive(torch.linspace(-100, 100, 401))
    assert (multipliers > 0).all()
    assert (multipliers.diff() >= 0).all()


def test_floor_holds_what_would_sink_and_leaves_the_rest() -> None:
    parameters = torch.tensor([-1e3, FLOOR - 1, FLOOR, -17.0, 0.0, 50.0])
    assert floored(parameters).tolist() == [-18, -18, -18, -17, 0, 50]


def test_at_the_floor_a_multiplier_can_still_rise() -> None:
    parameter = torch.tensor(FLOOR, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(positive(parameter), parameter)
    assert slope.item() == pytest.approx(math.exp(FLOOR), rel=1e-6)


def test_penalty_weighs_each_dimension_by_its_own_multiplier() -> None:
    multipliers, kls = torch.tensor([2.0, 3.0]), torch.tensor([0.5, 4.0], requires_grad=True)
    cost = penalties(multipliers, kls).sum()
    (slope,) = torch.autograd.grad(cost, kls)
    assert cost.item() == 13
    assert torch.equal(slope, multipliers)


def test_a_multipliers_slope_is_the_bound_minus_its_kl() -> None:
    multipliers = torch.tensor([0.3, 1.0, 8.0], dtype=torch.float64, requires_grad=True)
    kls, bound = torch.tensor([0.2, 0.1, 0.0], dtype=torch.float64), torch.tensor(0.1, dtype=torch.float64)
    (slope,) = torch.autograd.grad(multiplier_loss(multipliers, kls, bound), multipliers)
    torch.testing.assert_close(slope, bound - kls, rtol=0, atol=1e-16)
    assert slope[0] < 0, "descent must raise the multiplier whose KL is over the bound"
    assert slope[2] > 0, "and lower the one that is under"


def mean_kl(scores: Tensor) -> Callable[[Tensor], Tensor]:
    """KL of softmax(scores / temperature) from uniform, mean over states: what MPO's E-step bounds."""

    def kl(temperature: Tensor) -> Tensor:
        log_weights = torch.log_softmax(scores / temperature, -1)
        return (log_weights.exp() * (log_weights + math.log(scores.shape[-1]))).sum(-1).mean()

    return kl


def random_scores(seed: int, scale: float) -> Tensor:
    return scale * torch.randn(STATES, ACTIONS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


CASES = pytest.mark.parametrize(("scale", "bound"), [(1.0, 0.1), (1.0, 0.01), (100.0, 0.5), (1e-3, 0.1), (1.0, 1e-4)])


@CASES
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_kl_at_the_solved_temperature_is_the_bound(seed: int, scale: float, bound: float) -> None:
    kl = mean_kl(random_scores(seed, scale))
    temperature = solved_temperature(kl, torch.tensor(bound, dtype=torch.float64))
    assert kl(temperature).item() == pytest.approx(bound, rel=1e-6)


@CASES
def test_the_solved_temperature_minimises_the_dual(scale: float, bound: float) -> None:
    scores = random_scores(5, scale)

    def dual(log_temperature: float) -> float:
        temperature = math.exp(log_temperature)
        soft_maximum = logsumexp(scores.numpy() / temperature, axis=-1) - math.log(ACTIONS)
        return float(temperature * (bound + np.mean(soft_maximum)))

    found = solved_temperature(mean_kl(scores), torch.tensor(bound, dtype=torch.float64)).item()
    minimum = minimize_scalar(dual, bounds=(math.log(1e-5), math.log(1e5)), method="bounded", options={"xatol": 1e-10})
    assert dual(math.log(found)) <= minimum.fun + 1e-12 * abs(minimum.fun)
    assert math.log(found) == pytest.approx(minimum.x, abs=1e-4)


def test_scores_that_cannot_reach_the_bound_get_the_lowest_temperature() -> None:
    bound = torch.tensor(0.1, dtype=torch.float64)
    constant = torch.full((STATES, ACTIONS), 3.0, dtype=torch.float64)
    assert solved_temperature(mean_kl(constant), bound).item() == pytest.approx(TEMPERATURE_MIN, rel=1e-6)
    beyond = torch.tensor(math.log(ACTIONS) + 1, dtype=torch.float64)
    assert solved_temperature(mean_kl(random_scores(0, 1.0)), beyond).item() == pytest.approx(TEMPERATURE_MIN, rel=1e-6)


def test_in_single_precision_the_bound_is_met_to_single_precision() -> None:
    kl = mean_kl(random_scores(3, 1.0).float())
    temperature = solved_temperature(kl, torch.tensor(0.1))
    assert temperature.dtype == torch.float32
    assert kl(temperature).item() == pytest.approx(0.1, rel=1e-4)


def test_stacked_bounds_are_solved_one_by_one() -> None:
    bounds = torch.tensor([0.01, 0.1, 0.5], dtype=torch.float64)
    kl = mean_kl(random_scores(4, 1.0))
    together = torch.func.vmap(lambda bound: solved_temperature(kl, bound))(bounds)
    alone = torch.stack([solved_temperature(kl, bound) for bound in bounds])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=0)
