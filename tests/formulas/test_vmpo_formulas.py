"""The formulas that V-MPO brings: squashing and its inverse, biased normalisation, the inverse of a multiplier."""

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from minerva.formulas.gaussian import squash_log_det, squashed, unsquashed
from minerva.formulas.lagrange import inverse_positive, positive, solved_temperature
from minerva.formulas.returns import normalize
from minerva.formulas.trust_region import least_multipliers, scaled_multipliers

LOW, HIGH = torch.tensor([-0.5, -2.0], dtype=torch.float64), torch.tensor([0.75, 1.0], dtype=torch.float64)


def test_squashing_maps_the_line_onto_the_bounds_and_its_middle_onto_zero() -> None:
    far = torch.tensor([[-50.0, -50.0], [50.0, 50.0]], dtype=torch.float64)
    torch.testing.assert_close(squashed(far, LOW, HIGH), torch.stack([LOW, HIGH]))
    torch.testing.assert_close(squashed(torch.zeros(2, dtype=torch.float64), LOW, HIGH), (LOW + HIGH) / 2)


def test_unsquashing_inverts_squashing() -> None:
    raw = torch.linspace(-7, 7, 57, dtype=torch.float64).unsqueeze(-1).expand(-1, 2)
    torch.testing.assert_close(unsquashed(squashed(raw, LOW, HIGH), LOW, HIGH), raw, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("distance", [1e-7, 1e-5, 1e-3, 0.5])
@pytest.mark.parametrize("sign", [-1, 1])
def test_unsquashing_is_exact_beside_a_bound_in_single_precision(distance: float, sign: int) -> None:
    action = torch.tensor(sign * (1 - distance), dtype=torch.float32)
    exact = float(mpmath.atanh(mpmath.mpf(action.item())))
    one = torch.tensor(1.0)
    assert unsquashed(action, -one, one).item() == pytest.approx(exact, rel=3e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_action_on_its_bound_has_a_finite_and_far_out_sample(dtype: torch.dtype) -> None:
    low, high = LOW.to(dtype), HIGH.to(dtype)
    below, above = unsquashed(low, low, high), unsquashed(high, low, high)
    assert torch.isfinite(torch.stack([below, above])).all()
    just_inside = torch.nextafter(high, low)
    assert (above > unsquashed(just_inside, low, high)).all()
    torch.testing.assert_close(below, -above, rtol=1e-5, atol=0)


def test_squash_log_slope_is_the_log_of_the_jacobians_determinant() -> None:
    raw = torch.tensor([0.3, -1.2], dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda u: squashed(u, LOW, HIGH), raw)
    torch.testing.assert_close(squash_log_det(raw, LOW, HIGH), torch.logdet(jacobian))


def test_standardized_advantages_have_the_biased_moments() -> None:
    advantages = 4 + 3 * torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    standardized = normalize(advantages, correction=0).numpy()
    assert np.mean(standardized) == pytest.approx(0, abs=1e-9)
    assert np.std(standardized) == pytest.approx(1, abs=1e-7)
    np.testing.assert_allclose(standardized, normalize(advantages, correction=1) * (7 / 6) ** 0.5, rtol=1e-7)


def test_advantages_without_spread_are_standardized_to_zero() -> None:
    assert normalize(torch.full((5,), 2.0), correction=0).tolist() == [0.0] * 5


@pytest.mark.parametrize("multiplier", [1e-6, 1e-3, 0.5, 1.0, 30.0, 1e6])
def test_inverse_positive_inverts_positive(multiplier: float) -> None:
    value = torch.tensor(multiplier, dtype=torch.float64)
    torch.testing.assert_close(positive(inverse_positive(value)), value, rtol=1e-10, atol=0)


NO_LIMIT = torch.tensor(0.0)


def test_scaled_multipliers_rise_over_the_bound_fall_under_it_and_rest_on_it() -> None:
    alpha, bounds, rate = torch.tensor([2.0, 2.0, 2.0]), torch.tensor([1e-2, 1e-4, 1e-6]), torch.tensor(0.1)
    moved = scaled_multipliers(alpha, bounds * torch.tensor([1.5, 1.0, 0.0]), bounds, rate, NO_LIMIT)
    np.testing.assert_allclose(moved / alpha, np.exp([0.05, 0.0, -0.1]), rtol=1e-6)


def test_scaled_multipliers_come_back_from_as_low_as_they_went() -> None:
    """Unlike softplus's: its slope is gone down there, and a gradient step with it."""
    alpha, bound, rate = torch.tensor([1.0]), torch.tensor([1e-4]), torch.tensor(0.1)
    for _ in range(100):
        alpha = scaled_multipliers(alpha, torch.zeros(1), bound, rate, NO_LIMIT)
    low = alpha.clone()
    for _ in range(100):
        alpha = scaled_multipliers(alpha, 50 * bound, bound, rate, NO_LIMIT)
    assert low.item() == pytest.approx(np.exp(-10), rel=1e-4)
    assert alpha.item() == pytest.approx(1, rel=1e-4)


def test_scaled_multipliers_stay_within_their_limits() -> None:
    extremes, least = torch.tensor([1e6, 1e-6, 0.3]), torch.tensor([1e-6, 1e-6, 0.3])
    moved = scaled_multipliers(
        extremes, torch.tensor([1.0, 0.0, 0.0]), torch.full((3,), 1e-2), torch.tensor(0.5), least
    )
    torch.testing.assert_close(moved, extremes)


def test_a_policy_without_a_network_moves_by_its_bound_at_the_least_multiplier_with_a_share_of_one() -> None:
    """Choices with a probability of their own each: the best fit of centered weights has a KL of the bound."""
    source = torch.Generator().manual_seed(0)
    old = torch.softmax(torch.randn(200, generator=source, dtype=torch.float64), 0)
    advantages = torch.randn(200, generator=source, dtype=torch.float64)
    e_step_bound, bound = torch.tensor(1e-4, dtype=torch.float64), torch.tensor([3e-3, 0.02], dtype=torch.float64)

    def log_weights(temperature: Tensor) -> Tensor:
        return torch.log_softmax(torch.log(old) + advantages / temperature, 0)

    def kl(temperature: Tensor) -> Tensor:
        return (log_weights(temperature).exp() * (log_weights(temperature) - torch.log(old))).sum()

    psi = log_weights(solved_temperature(kl, e_step_bound)).exp()
    whole = least_multipliers(e_step_bound, bound, torch.ones(2))
    for alpha, limit in zip(whole, bound, strict=True):
        fitted = old + (psi - old) / alpha  # where the gradient of -(psi - old) log p + alpha KL(old || p) is zero
        assert fitted.sum().item() == pytest.approx(1)
        assert (old * (old / fitted).log()).sum().item() == pytest.approx(limit.item(), rel=0.2)
