"""MPO's networks: which action is raw, which is executed, and what they start from."""

import math

import numpy as np
import pytest
import torch

from minerva.errors import ConfigError
from minerva.trainers.mpo.agent import Critic, DiagonalGaussianPolicy

LOW, HIGH = np.array([-0.5, -1.0], np.float32), np.array([0.6, 1.2], np.float32)


@pytest.fixture
def policy() -> DiagonalGaussianPolicy:
    torch.manual_seed(0)
    return DiagonalGaussianPolicy(4, 2, (16, 12), LOW, HIGH)


def test_the_critic_sees_the_executed_action() -> None:
    torch.manual_seed(0)
    critic = Critic(4, 2, (14, 10), LOW, HIGH)
    obs = torch.randn(5, 4)
    assert critic(obs, torch.zeros(5, 2)).shape == (5, 1)
    far, at_bound = torch.tensor([3.0, -7.0]).expand(5, 2), torch.tensor([0.6, -1.0]).expand(5, 2)
    assert torch.equal(critic(obs, far), critic(obs, at_bound))
    assert not torch.equal(critic(obs, at_bound), critic(obs, 0.9 * at_bound))


def test_raw_samples_are_gaussian_and_executed_ones_clipped(policy: DiagonalGaussianPolicy) -> None:
    obs = torch.randn(3, 4)
    mean, log_std = policy(obs)
    raw, executed = policy.sample_actions_raw_and_exec(obs, 5000)
    assert raw.shape == executed.shape == (3, 5000, 2)
    torch.testing.assert_close(raw.mean(1), mean, rtol=0, atol=0.08)
    torch.testing.assert_close(raw.std(1).log(), log_std, rtol=0, atol=0.05)
    np.testing.assert_array_equal(executed.detach().numpy(), np.clip(raw.detach().numpy(), LOW, HIGH))
    assert policy.sample_actions(obs, 7).shape == (3, 7, 2)


def test_samples_come_from_the_generator_that_is_given(policy: DiagonalGaussianPolicy) -> None:
    obs, generators = torch.randn(3, 4), [torch.Generator().manual_seed(1) for _ in range(2)]
    first, second = (policy.sample_actions(obs, 4, generator) for generator in generators)
    assert torch.equal(first, second)
    assert not torch.equal(policy.sample_actions(obs, 4), policy.sample_actions(obs, 4))


def test_deterministic_is_the_mean(policy: DiagonalGaussianPolicy) -> None:
    mean, log_std = policy(10 * torch.randn(3, 4))
    raw, executed = policy.sample_action_raw_and_exec(mean, log_std, deterministic=True)
    assert torch.equal(raw, mean)
    assert torch.equal(policy.sample_action(mean, log_std, deterministic=True), executed)
    assert torch.equal(executed, policy.execute(mean))


def test_log_prob_is_the_gaussians_of_the_raw_action(policy: DiagonalGaussianPolicy) -> None:
    mean, log_std = policy(torch.randn(3, 4))
    raw = mean + 2 * torch.exp(log_std)
    expected = torch.distributions.Normal(mean, torch.exp(log_std)).log_prob(raw).sum(-1, keepdim=True)
    torch.testing.assert_close(policy.log_prob(mean, log_std, raw), expected)


def test_features_lead_to_the_same_heads(policy: DiagonalGaussianPolicy) -> None:
    obs = torch.randn(3, 4)
    for direct, through in zip(policy(obs), policy.forward_with_features(policy.encoder(obs)), strict=True):
        assert torch.equal(direct, through)
    names = {name for name, p in policy.named_parameters() if any(p is head for head in policy.head_parameters())}
    assert names == {f"{head}.{part}" for head in ("policy_mean", "policy_logstd") for part in ("weight", "bias")}


@pytest.mark.parametrize(("bias", "expected"), [(50.0, 2.0), (-50.0, -20.0), (math.nan, 0.0), (-math.inf, 0.0)])
def test_log_std_is_clamped_and_non_finite_outputs_are_zero(
    policy: DiagonalGaussianPolicy, bias: float, expected: float
) -> None:
    with torch.no_grad():
        policy.policy_logstd.weight.zero_()
        policy.policy_logstd.bias.fill_(bias)
        policy.policy_mean.bias.fill_(math.inf)
    mean, log_std = policy(torch.randn(3, 4))
    assert torch.equal(log_std, torch.full((3, 2), expected))
    assert torch.equal(mean, torch.zeros(3, 2))


def test_the_untrained_spread_is_the_initial_std_everywhere() -> None:
    policy = DiagonalGaussianPolicy(4, 2, (16,), initial_std=0.3)
    _, log_std = policy(torch.randn(50, 4))
    torch.testing.assert_close(torch.exp(log_std), torch.full((50, 2), 0.3))


def test_the_mean_starts_with_outputs_of_the_size_of_its_features() -> None:
    """Kaiming-normal with linear gain: variance 1 / fan-in, zero bias."""
    policy = DiagonalGaussianPolicy(4, 400, (400,))
    assert policy.policy_mean.weight.std().item() == pytest.approx(1 / math.sqrt(400), rel=0.01)
    assert policy.policy_mean.bias.abs().max() == 0
    assert torch.equal(policy.action_low, -policy.action_high)
    assert torch.equal(policy.action_high, torch.ones(400))


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        ([-1.0], [1.0, 1.0], "shape"),
        (1.0, -1.0, "below"),
        (-math.inf, 1.0, "finite"),
        (-3e38, 3e38, "finite"),
        ([0.0, 2.0], 1.0, "below"),
    ],
)
def test_bounds_that_bound_nothing_are_refused(low: object, high: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Critic(4, 2, (8,), low, high)
