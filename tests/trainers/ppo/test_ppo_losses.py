"""PPO's loss terms at points where their value and slope are known."""

import math

import pytest
import torch

from minerva.formulas.returns import value_loss
from minerva.trainers.ppo.losses import (
    approximate_kl,
    clip_fraction,
    clipped_surrogate,
    clipped_value_loss,
    log_ratio,
)

CLIP = torch.tensor(0.2, dtype=torch.float64)


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.1, 2.0, -2.2, -2.0),
        (1.5, 2.0, -2.4, 0.0),  # no gain from going further
        (0.5, 2.0, -1.0, -2.0),  # but all of it for coming back
        (0.5, -2.0, 1.6, 0.0),
        (1.5, -2.0, 3.0, 2.0),
        (0.9, -2.0, 1.8, 2.0),
    ],
)
def test_the_surrogate_pays_for_nothing_outside_the_clip_range(
    ratio: float, advantage: float, loss: float, slope: float
) -> None:
    """The six cases of Huang et al. (2022), and the start."""
    at = vector(ratio).requires_grad_()
    found = clipped_surrogate(at, vector(advantage), CLIP)
    assert found.item() == pytest.approx(loss, abs=1e-14)
    assert torch.autograd.grad(found, at)[0].item() == pytest.approx(slope, abs=1e-14)


def test_at_ratio_one_the_surrogates_gradient_is_the_policy_gradient() -> None:
    log_prob = vector(-1.0, -2.0, 0.5).requires_grad_()
    advantages = vector(1.0, -3.0, 2.0)
    ratio = torch.exp(log_ratio(log_prob, log_prob.detach()))
    (slope,) = torch.autograd.grad(clipped_surrogate(ratio, advantages, CLIP), log_prob)
    torch.testing.assert_close(slope, -advantages / 3)


def test_log_ratio_is_how_much_likelier_the_action_became() -> None:
    assert log_ratio(vector(math.log(0.3)), vector(math.log(0.1))).exp().item() == pytest.approx(3)


def test_value_loss_is_half_the_mean_squared_error() -> None:
    values, returns = vector(1.0, 2.0, -4.0).requires_grad_(), vector(0.0, 4.0, -4.0)
    loss = value_loss(values, returns)
    assert loss.item() == pytest.approx(0.5 * (1 + 4 + 0) / 3)
    torch.testing.assert_close(torch.autograd.grad(loss, values)[0], vector(1, -2, 0) / 3)


@pytest.mark.parametrize(
    ("value", "target", "loss", "slope"),
    [
        (0.1, 1.0, 0.405, -0.9),  # inside the range: the plain loss
        (0.5, 1.0, 0.32, 0.0),  # moved far enough towards the return: clipped at 0.2, no slope
        (0.5, -1.0, 1.125, 1.5),  # moved away from it: all of the slope
        (-0.5, -1.0, 0.32, 0.0),
        (2.0, 0.0, 2.0, 2.0),
    ],
)
def test_clipped_value_loss_is_the_worse_of_the_two(value: float, target: float, loss: float, slope: float) -> None:
    at = vector(value).requires_grad_()
    found = clipped_value_loss(at, vector(0.0), vector(target), CLIP)
    assert found.item() == pytest.approx(loss, abs=1e-14)
    assert torch.autograd.grad(found, at)[0].item() == pytest.approx(slope, abs=1e-14)


def test_a_wide_clip_range_changes_no_value_loss() -> None:
    values, old, returns = torch.randn(3, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(clipped_value_loss(values, old, returns, vector(100)[0]), value_loss(values, returns))


def test_the_kl_estimate_of_many_samples_is_the_kl() -> None:
    """Between N(0, 1) and N(0.3, 1) the KL is 0.3² / 2."""
    actions = torch.randn(400_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ratio_log = 0.3 * actions - 0.3**2 / 2
    assert approximate_kl(ratio_log.exp(), ratio_log).item() == pytest.approx(0.045, rel=0.02)


def test_the_kl_estimate_is_zero_at_ratio_one_and_positive_elsewhere() -> None:
    ratio = torch.linspace(0.01, 5, 500, dtype=torch.float64)
    estimates = torch.stack([approximate_kl(r, r.log()) for r in ratio])
    assert (estimates[(ratio - 1).abs() > 1e-9] > 0).all()
    assert approximate_kl(vector(1), vector(0)).item() == 0


def test_clip_fraction_counts_both_sides() -> None:
    assert clip_fraction(vector(0.5, 0.79, 0.81, 1.0, 1.19, 1.21, 3.0, 1.0), CLIP).item() == 0.5
