"""What MPO's losses must obey, whatever the numbers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from minerva.distributions import Gaussian
from minerva.formulas.gaussian import gaussian_kl_mean, gaussian_kl_std, sampled_actions
from minerva.formulas.lagrange import solved_temperature
from minerva.formulas.statistics import effective_samples
from minerva.formulas.trust_region import multiplier_loss, penalties
from minerva.trainers.mpo.losses import (
    dual_residual,
    out_of_bounds_scores,
    temperature_loss,
    weighted_nll,
    weights,
    weights_entropy,
    weights_kl,
)

N, B, D = 7, 5, 3


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def double(number: float) -> Tensor:
    return torch.tensor(number, dtype=torch.float64)


# --- E-step -----------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(-1e6, 1e6), st.integers(0, 1000))
def test_weights_add_up_to_one_and_only_differences_count(eta: float, shift: float, seed: int) -> None:
    q = normal(N, B, seed=seed)
    psi = weights(q, double(eta))
    torch.testing.assert_close(psi.sum(0), torch.ones(B, dtype=torch.float64))
    torch.testing.assert_close(weights(q + shift, double(eta)), psi, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("eta", [0.05, 0.3, 2.0, 50.0])
def test_the_slope_of_the_temperatures_loss_is_bound_minus_kl(eta: float) -> None:
    q, temperature = normal(N, B), double(eta).requires_grad_()
    (slope,) = torch.autograd.grad(temperature_loss(q, temperature, double(0.1)), temperature)
    torch.testing.assert_close(slope, 0.1 - weights_kl(weights(q, double(eta))))


@pytest.mark.parametrize("scale", [1e-2, 1.0, 300.0])
def test_the_solved_temperature_meets_the_bound(scale: float) -> None:
    q, bound = scale * normal(N, B), double(0.1)
    eta = solved_temperature(lambda temperature: weights_kl(weights(q, temperature)), bound)
    torch.testing.assert_close(weights_kl(weights(q, eta)), bound, rtol=1e-6, atol=0)
    at, below, above = (temperature_loss(q, eta * factor, bound) for factor in (1.0, 0.9, 1.1))
    assert at < below
    assert at < above


def test_no_temperature_makes_equal_scores_unequal() -> None:
    q = torch.full((N, B), 3.0, dtype=torch.float64)
    eta = solved_temperature(lambda temperature: weights_kl(weights(q, temperature)), double(0.1))
    assert weights_kl(weights(q, eta)).item() == pytest.approx(0, abs=1e-12)


def test_equal_and_one_sided_weights_are_the_ends_of_each_diagnostic() -> None:
    equal = torch.full((N, B), 1 / N, dtype=torch.float64)
    one = torch.zeros(N, B, dtype=torch.float64)
    one[2] = 1
    for psi, kl, entropy, samples in ((equal, 0, math.log(N), N), (one, math.log(N), 0, 1)):
        found = (weights_kl(psi).item(), weights_entropy(psi).item(), effective_samples(psi).mean().item())
        assert found == pytest.approx((kl, entropy, samples), abs=1e-12)


def test_distances_are_measured_in_half_widths() -> None:
    """The same action relative to its bounds costs the same, however wide they are."""
    unit = out_of_bounds_scores(torch.tensor([[[1.3, 0.5, -1.4]]]), -torch.ones(3), torch.ones(3))
    low, high = torch.tensor([-0.4, 0.0, 10.0]), torch.tensor([0.4, 1.0, 30.0])
    middle, half = (low + high) / 2, (high - low) / 2
    scaled = out_of_bounds_scores(middle + half * torch.tensor([[[1.3, 0.5, -1.4]]]), low, high)
    torch.testing.assert_close(unit, torch.tensor([[-0.5]]))
    torch.testing.assert_close(scaled, unit, rtol=1e-5, atol=0)


# --- M-step -----------------------------------------------------------------------------------------------------


def samples() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights, actions, old mean, old log standard deviation."""
    mean, log_std = normal(B, D, seed=1), 0.3 * normal(B, D, seed=2)
    actions = sampled_actions(mean, log_std, normal(N, B, D, seed=3))
    return weights(normal(N, B, seed=4), double(1.0)), actions, mean, log_std


def test_samples_are_shifted_and_scaled_noise() -> None:
    mean, log_std = normal(B, D, seed=1), normal(B, D, seed=2)
    actions = sampled_actions(mean, log_std, normal(4000, B, D))
    torch.testing.assert_close(actions.mean(0), mean, rtol=0, atol=0.5)
    torch.testing.assert_close(actions.std(0).log(), log_std, rtol=0, atol=0.05)


def fit_loss(psi: Tensor, actions: Tensor, mean: Tensor, log_std: Tensor, region: str) -> Tensor:
    """The M-step's likelihood of one trust region; what the other bounds is that of the old policy."""
    bounds = torch.ones(mean.shape[-1], dtype=mean.dtype)
    gaussian = Gaussian(-bounds, bounds)
    new = gaussian.params(mean, log_std)
    constant = {"mean": "log_std", "std": "mean"}[region]
    old = {name: part if name == constant else torch.full_like(part, torch.nan) for name, part in new.items()}
    return weighted_nll(psi, gaussian.log_prob(gaussian.decoupled(old, new)[region], actions))


def test_the_mean_that_fits_best_is_the_weighted_mean() -> None:
    psi, actions, _, log_std = samples()
    best = (psi.unsqueeze(-1) * actions).sum(0).requires_grad_()
    (slope,) = torch.autograd.grad(fit_loss(psi, actions, best, log_std, "mean"), best)
    torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-12)


def test_the_spread_that_fits_best_is_the_weighted_one_around_the_old_mean() -> None:
    psi, actions, mean, _ = samples()
    variance = (psi.unsqueeze(-1) * (actions - mean) ** 2).sum(0)
    best = (0.5 * torch.log(variance)).requires_grad_()
    (slope,) = torch.autograd.grad(fit_loss(psi, actions, mean, best, "std"), best)
    torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-12)


def test_the_loss_is_a_sum_over_samples_and_a_mean_over_states() -> None:
    """Dividing by N as well, a known slip, would make the constraints N times as heavy."""
    psi, actions, mean, log_std = samples()
    twice = [torch.cat((part, part)) for part in (0.5 * psi, actions)]
    torch.testing.assert_close(fit_loss(*twice, mean, log_std, "mean"), fit_loss(psi, actions, mean, log_std, "mean"))
    wider = [torch.cat((part, part), 1) for part in (psi, actions)] + [
        torch.cat((part, part)) for part in (mean, log_std)
    ]
    torch.testing.assert_close(fit_loss(*wider, "std"), fit_loss(psi, actions, mean, log_std, "std"))
    torch.testing.assert_close(
        fit_loss(2 * psi, actions, mean, log_std, "mean"), 2 * fit_loss(psi, actions, mean, log_std, "mean")
    )


def test_the_split_kls_are_those_of_torchs_distributions() -> None:
    """Variance where the standard deviation belongs, a known slip, would show here."""
    old = torch.distributions.Normal(normal(B, D, seed=1), torch.exp(normal(B, D, seed=2)))
    mean, log_std = normal(B, D, seed=3), normal(B, D, seed=4)
    old_log_std = torch.log(old.scale)
    expected = torch.distributions.kl_divergence(old, torch.distributions.Normal(mean, old.scale))
    torch.testing.assert_close(gaussian_kl_mean(mean, old.loc, old_log_std), expected)
    expected = torch.distributions.kl_divergence(old, torch.distributions.Normal(old.loc, torch.exp(log_std)))
    torch.testing.assert_close(gaussian_kl_std(log_std, old_log_std), expected)


def test_equal_policies_pay_nothing_and_are_not_pushed() -> None:
    mean, log_std = normal(B, D, seed=1).requires_grad_(), normal(B, D, seed=2).requires_grad_()
    kls = (
        gaussian_kl_mean(mean, mean.detach(), log_std.detach()).mean(0),
        gaussian_kl_std(log_std, log_std.detach()).mean(0),
    )
    cost = sum(penalties(torch.full((D,), 1000.0, dtype=torch.float64), kl).sum() for kl in kls)
    slopes = torch.autograd.grad(cost, (mean, log_std))
    assert cost.item() == 0
    assert all(slope.abs().max() == 0 for slope in slopes)


def test_a_multiplier_rises_where_its_own_kl_is_over_the_bound() -> None:
    alphas = torch.ones(3, dtype=torch.float64, requires_grad=True)
    kls = torch.tensor([0.02, 0.01, 0.0], dtype=torch.float64)
    (slope,) = torch.autograd.grad(multiplier_loss(alphas, kls, double(0.01)), alphas)
    torch.testing.assert_close(-slope, kls - 0.01)


def test_the_residual_forgives_an_idle_constraint_only_at_the_floor() -> None:
    bound = double(0.1)
    kls = torch.tensor([0.1, 0.05], dtype=torch.float64)
    assert dual_residual(kls, bound, torch.tensor([1.0, 1e-8])).item() == pytest.approx(0)
    assert dual_residual(kls, bound, torch.tensor([1.0, 1.0])).item() == pytest.approx(0.5)
    assert dual_residual(3 * kls, bound, torch.tensor([1e-8, 1e-8])).item() == pytest.approx(2)
