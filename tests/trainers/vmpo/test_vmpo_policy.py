"""The squashed Gaussian: its density against 50-digit arithmetic and against its own integral; its parts."""

from typing import Any

import mpmath
import numpy as np
import pytest
import torch

from minerva.errors import ConfigError
from minerva.trainers.vmpo.gaussian_mlp_policy import SquashedGaussianPolicy

LOW, HIGH = -0.5, 0.75
NEAR_BOUNDS = [sign * (1 - distance) for sign in (-1, 1) for distance in (1e-7, 1e-6, 1e-4, 0.1, 1.0)]


def make(**settings: Any) -> SquashedGaussianPolicy:
    torch.manual_seed(0)
    return SquashedGaussianPolicy(3, 2, (8, 8), (8,), **settings)


def exact_log_density(action: float, mean: float, log_std: float, low: float, high: float) -> float:
    """Of one dimension, by the change of variables, with 50 digits."""
    with mpmath.workdps(50):
        action, mean, log_std, low, high = map(mpmath.mpf, (action, mean, log_std, low, high))
        half = (high - low) / 2
        unit = (action - low) / half - 1
        z = (mpmath.atanh(unit) - mean) / mpmath.exp(log_std)
        gaussian = -z * z / 2 - log_std - mpmath.log(2 * mpmath.pi) / 2
        return float(gaussian - mpmath.log(1 - unit**2) - mpmath.log(half))


@pytest.mark.parametrize("unit", NEAR_BOUNDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-13)])
def test_log_density_of_executed_actions_is_exact_up_to_the_bounds(
    unit: float, dtype: torch.dtype, tolerance: float
) -> None:
    policy = SquashedGaussianPolicy(3, 1, action_low=[-1.0], action_high=[1.0])
    action, mean, log_std = (torch.tensor([[number]], dtype=dtype) for number in (unit, 0.3, -0.4))
    exact = exact_log_density(action.item(), mean.item(), log_std.item(), -1, 1)
    assert policy.log_prob(mean, log_std, action).item() == pytest.approx(exact, rel=tolerance)


@pytest.mark.parametrize("raw", [-30.0, -12.0, -1.0, 0.0, 2.0, 12.0, 30.0])
def test_log_density_of_a_sample_is_exact_where_the_executed_action_rounds_to_a_bound(raw: float) -> None:
    policy = SquashedGaussianPolicy(3, 1, action_low=[-1.0], action_high=[1.0])
    mean, log_std = torch.tensor([[0.25]]), torch.tensor([[0.5]])
    with mpmath.workdps(80):
        slope = -2 * mpmath.log(mpmath.cosh(mpmath.mpf(raw)))
        z = (mpmath.mpf(raw) - mpmath.mpf(0.25)) / mpmath.exp(mpmath.mpf(0.5))
        exact = float(-z * z / 2 - mpmath.mpf(0.5) - mpmath.log(2 * mpmath.pi) / 2 - slope)
    ours = policy.log_prob_raw(mean, log_std, torch.tensor([[raw]])).item()
    assert ours == pytest.approx(exact, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("bound", [LOW, HIGH])
def test_log_density_on_a_bound_is_finite(bound: float) -> None:
    policy = SquashedGaussianPolicy(3, 1, action_low=[LOW], action_high=[HIGH])
    assert torch.isfinite(policy.log_prob(torch.zeros(1, 1), torch.zeros(1, 1), torch.tensor([[bound]]))).all()


def test_density_over_the_action_box_integrates_to_one() -> None:
    policy = SquashedGaussianPolicy(3, 1, action_low=[LOW], action_high=[HIGH])
    raw = torch.linspace(-12, 12, 20_001, dtype=torch.float64).unsqueeze(-1)
    actions = policy.execute(raw)
    density = policy.log_prob(torch.full_like(raw, 0.4), torch.full_like(raw, -0.3), actions).exp()
    assert np.trapezoid(density.squeeze(-1), actions.squeeze(-1)) == pytest.approx(1, abs=1e-5)


def test_density_is_the_product_over_dimensions_and_has_a_column() -> None:
    policy = make(action_low=[-1.0, LOW], action_high=[1.0, HIGH])
    mean, log_std, actions = torch.randn(5, 2), torch.randn(5, 2) * 0.3, torch.rand(5, 2) * 0.5
    log_prob = policy.log_prob(mean, log_std, actions)
    bounds = ((-1, 1), (LOW, HIGH))
    exact = [
        sum(
            exact_log_density(actions[b, j].item(), mean[b, j].item(), log_std[b, j].item(), *bounds[j]) for j in (0, 1)
        )
        for b in range(5)
    ]
    assert log_prob.shape == (5, 1)
    np.testing.assert_allclose(log_prob.squeeze(-1), exact, rtol=1e-5)


@pytest.mark.parametrize("squash", [True, False])
def test_samples_stay_within_the_bounds_and_carry_their_density(squash: bool) -> None:
    policy = make(action_low=[-1.0, LOW], action_high=[1.0, HIGH], squash=squash)
    mean, log_std = torch.zeros(4000, 2), torch.zeros(4000, 2)
    actions, log_prob = policy.sample_action(mean, log_std, deterministic=False)
    assert (actions >= policy.action_low).all()
    assert (actions <= policy.action_high).all()
    inside = ((actions > policy.action_low + 0.01) & (actions < policy.action_high - 0.01)).all(-1)
    assert inside.sum() > 500
    torch.testing.assert_close(log_prob[inside], policy.log_prob(mean, log_std, actions)[inside], rtol=1e-3, atol=1e-3)


def test_deterministic_action_is_the_executed_mean() -> None:
    policy = make(action_low=[-1.0, LOW], action_high=[1.0, HIGH])
    mean = torch.tensor([[0.2, -0.7]])
    action, _ = policy.sample_action(mean, torch.zeros(1, 2), deterministic=True)
    centre, half = torch.tensor([0.0, (LOW + HIGH) / 2]), torch.tensor([1.0, (HIGH - LOW) / 2])
    torch.testing.assert_close(action, centre + half * torch.tanh(mean))


def test_unsquashed_policy_clips_and_has_the_plain_gaussian_density() -> None:
    policy = make(action_low=[-1.0, LOW], action_high=[1.0, HIGH], squash=False)
    raw = torch.tensor([[-3.0, 0.2], [0.5, 2.0]])
    torch.testing.assert_close(policy.execute(raw), torch.tensor([[-1.0, 0.2], [0.5, HIGH]]))
    mean, log_std = torch.randn(2, 2), torch.randn(2, 2)
    normal = torch.distributions.Normal(mean, log_std.exp()).log_prob(raw).sum(-1, keepdim=True)
    torch.testing.assert_close(policy.log_prob_raw(mean, log_std, raw), normal)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("ppo_like", [False, True])
def test_forward_all_agrees_with_its_parts(shared: bool, ppo_like: bool) -> None:
    policy = make(shared_encoder=shared, ppo_like_backbone=ppo_like, normalize_observations=True)
    obs = torch.randn(6, 3)
    mean, log_std, value = policy.forward_all(obs)
    assert mean.shape == log_std.shape == (6, 2)
    assert value.shape == (6, 1)
    torch.testing.assert_close((mean, log_std), policy(obs), rtol=0, atol=0)
    torch.testing.assert_close(value, policy.get_value(obs), rtol=0, atol=0)


def test_a_shared_encoder_is_the_only_one() -> None:
    apart, together = make(), make(shared_encoder=True)
    assert together.value_encoder is None
    assert together.shared_encoder
    assert apart.value_encoder is not None
    apart.value_head(apart.value_encoder(torch.randn(2, 3))).sum().backward()
    assert all(parameter.grad is None for parameter in apart.policy_encoder.parameters())
    together.get_value(torch.randn(2, 3)).sum().backward()
    assert all(parameter.grad is not None for parameter in together.policy_encoder.parameters())


def test_ppo_like_backbone_has_orthogonal_layers_and_one_log_std_per_dimension() -> None:
    policy = make(ppo_like_backbone=True, initial_log_std=-0.7)
    first = policy.policy_encoder[0].weight
    torch.testing.assert_close(first.T @ first, 2 * torch.eye(3))
    assert [parameter.shape for parameter in policy.policy_logstd_parameters()] == [(1, 2)]
    _, log_std = policy(torch.randn(5, 3))
    torch.testing.assert_close(log_std, torch.full((5, 2), -0.7))


def test_torso_is_layer_norm_and_tanh_then_elu() -> None:
    kinds = [type(layer).__name__ for layer in make().policy_encoder]
    assert kinds == ["Linear", "LayerNorm", "Tanh", "Linear", "ELU"]
    assert len(make().policy_logstd_parameters()) == 2


def test_initial_log_std_holds_in_every_state() -> None:
    _, log_std = make(initial_log_std=-0.5)(torch.randn(5, 3))
    torch.testing.assert_close(log_std, torch.full((5, 2), -0.5))


@pytest.mark.parametrize(("head", "clamped"), [(-50.0, -20.0), (50.0, 2.0)])
def test_log_std_is_clamped(head: float, clamped: float) -> None:
    _, log_std = make(initial_log_std=head)(torch.randn(5, 3))
    torch.testing.assert_close(log_std, torch.full((5, 2), clamped))


@pytest.mark.parametrize(
    ("low", "high"),
    [([-1.0], None), ([-1.0, float("-inf")], None), ([0.0, 1.0], [1.0, 1.0])],
    ids=["too few", "infinite", "empty"],
)
def test_unusable_bounds_are_refused(low: list[float], high: list[float] | None) -> None:
    with pytest.raises(ConfigError, match="action_low"):
        make(action_low=low, action_high=high)


def test_empty_layer_list_is_refused() -> None:
    for ppo_like in (False, True):
        with pytest.raises(ConfigError, match="at least one layer width"):
            SquashedGaussianPolicy(3, 2, (), (8,), ppo_like_backbone=ppo_like)
