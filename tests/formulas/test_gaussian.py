"""Diagonal Gaussians against torch.distributions and fifty-digit arithmetic."""

import mpmath
import pytest
import torch
from torch import Tensor
from torch.distributions import Independent, Normal, kl_divergence

from minerva.formulas.gaussian import (
    gaussian_entropy,
    gaussian_kl_mean,
    gaussian_kl_std,
    gaussian_log_prob,
    tanh_log_det,
)

ROWS, DIMS = 32, 5


@pytest.fixture
def pair() -> dict[str, Tensor]:
    """An old and a new policy, far apart, and actions near neither."""
    source = torch.Generator().manual_seed(0)
    shapes = {"mean": 2.0, "log_std": 1.0, "old_mean": 2.0, "old_log_std": 1.0, "actions": 3.0}
    draw = {
        name: scale * torch.randn(ROWS, DIMS, generator=source, dtype=torch.float64) for name, scale in shapes.items()
    }
    return draw


def test_log_density_is_that_of_torch_distributions(pair: dict[str, Tensor]) -> None:
    expected = Independent(Normal(pair["mean"], pair["log_std"].exp()), 1).log_prob(pair["actions"])
    torch.testing.assert_close(
        gaussian_log_prob(pair["mean"], pair["log_std"], pair["actions"]), expected, rtol=1e-13, atol=0
    )


@pytest.mark.parametrize("distance", [0.0, 1.0, 40.0, 1e4])
def test_log_density_is_exact_also_where_the_density_underflows(distance: float) -> None:
    log_std, action = -0.7, 0.3 + distance
    with mpmath.workdps(50):
        deviation = mpmath.exp(mpmath.mpf(log_std))
        expected = mpmath.log(mpmath.npdf(mpmath.mpf(action), mpmath.mpf(0.3), deviation))
    found = gaussian_log_prob(*(torch.tensor([x], dtype=torch.float64) for x in (0.3, log_std, action)))
    assert found.item() == pytest.approx(float(expected), rel=1e-14)


def test_density_integrates_to_one() -> None:
    grid = torch.linspace(-12, 12, 20_001, dtype=torch.float64)
    mean, log_std = torch.tensor([0.4], dtype=torch.float64), torch.tensor([0.2], dtype=torch.float64)
    density = gaussian_log_prob(mean, log_std, grid[:, None]).exp()
    assert torch.trapezoid(density, grid).item() == pytest.approx(1, abs=1e-12)


def test_entropy_is_that_of_torch_distributions(pair: dict[str, Tensor]) -> None:
    expected = Independent(Normal(pair["mean"], pair["log_std"].exp()), 1).entropy()
    torch.testing.assert_close(gaussian_entropy(pair["log_std"]), expected, rtol=1e-13, atol=1e-14)


def test_entropy_is_half_of_log_two_pi_e_for_unit_spread() -> None:
    with mpmath.workdps(50):
        expected = mpmath.log(2 * mpmath.pi * mpmath.e) / 2
    assert gaussian_entropy(torch.zeros(1, dtype=torch.float64)).item() == pytest.approx(float(expected), rel=1e-15)


def test_kl_of_the_means_is_the_kl_to_a_policy_with_the_old_spread(pair: dict[str, Tensor]) -> None:
    old_std = pair["old_log_std"].exp()
    expected = kl_divergence(Normal(pair["old_mean"], old_std), Normal(pair["mean"], old_std))
    found = gaussian_kl_mean(pair["mean"], pair["old_mean"], pair["old_log_std"])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_kl_of_the_spreads_is_the_kl_to_a_policy_with_the_old_mean(pair: dict[str, Tensor]) -> None:
    old = Normal(pair["old_mean"], pair["old_log_std"].exp())
    expected = kl_divergence(old, Normal(pair["old_mean"], pair["log_std"].exp()))
    torch.testing.assert_close(gaussian_kl_std(pair["log_std"], pair["old_log_std"]), expected, rtol=1e-12, atol=1e-14)


def test_equal_policies_have_no_kl_and_no_slope(pair: dict[str, Tensor]) -> None:
    mean, log_std = pair["mean"].clone().requires_grad_(), pair["log_std"].clone().requires_grad_()
    of_means = gaussian_kl_mean(mean, pair["mean"], pair["log_std"])
    of_spreads = gaussian_kl_std(log_std, pair["log_std"])
    slopes = torch.autograd.grad(of_means.sum() + of_spreads.sum(), (mean, log_std))
    for zero in (of_means, of_spreads, *slopes):
        assert torch.equal(zero, torch.zeros_like(zero))


def test_kls_are_positive_wherever_policies_differ(pair: dict[str, Tensor]) -> None:
    assert (gaussian_kl_mean(pair["mean"], pair["old_mean"], pair["old_log_std"]) > 0).all()
    assert (gaussian_kl_std(pair["log_std"], pair["old_log_std"]) > 0).all()


@pytest.mark.parametrize("change", [-1e-2, -7e-4, 1e-4, 7e-4, 1e-2])
def test_small_kls_keep_their_digits_in_single_precision(change: float) -> None:
    """MPO bounds the spread's KL by 1e-6, which is a change of 7e-4 in log sigma."""
    log_std = torch.tensor(change, dtype=torch.float32)
    with mpmath.workdps(50):
        moved = mpmath.mpf(log_std.item())
        expected = (mpmath.exp(-2 * moved) - 1 + 2 * moved) / 2
    assert gaussian_kl_std(log_std, torch.tensor(0.0)).item() == pytest.approx(float(expected), rel=1e-3)


def exact_log_slope(raw: float) -> float:
    with mpmath.workdps(60):
        return float(-2 * mpmath.log(mpmath.cosh(mpmath.mpf(raw))))


@pytest.mark.parametrize("gap", [1e-1, 1e-3, 1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("sign", [1, -1])
def test_tanh_log_slope_is_exact_where_tanh_is_close_to_one(gap: float, sign: int) -> None:
    with mpmath.workdps(60):
        raw = sign * float(mpmath.atanh(1 - mpmath.mpf(gap)))
    found = tanh_log_det(torch.tensor(raw, dtype=torch.float64)).item()
    assert found == pytest.approx(exact_log_slope(raw), rel=1e-9)  # torch's softplus is linear beyond 20


@pytest.mark.parametrize("raw", [-1e6, -300.0, -20.0, -1.0, -1e-4, 0.0, 1e-4, 1.0, 20.0, 300.0, 1e6])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_tanh_log_slope_is_exact_for_any_input(raw: float, dtype: torch.dtype, tolerance: float) -> None:
    found = tanh_log_det(torch.tensor(raw, dtype=dtype))
    exact = exact_log_slope(torch.tensor(raw, dtype=dtype).item())
    assert found.item() == pytest.approx(exact, rel=tolerance, abs=tolerance)


def test_tanh_log_slope_has_the_slope_minus_two_tanh_and_stays_finite() -> None:
    raw = torch.tensor([-500.0, -9.0, -0.3, 0.0, 0.3, 9.0, 500.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(tanh_log_det(raw).sum(), raw)
    torch.testing.assert_close(slope, -2 * torch.tanh(raw).detach(), rtol=1e-8, atol=1e-15)
