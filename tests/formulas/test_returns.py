"""Returns and advantages: limits, closed forms, and what must not leak from one episode into the next."""

import numpy as np
import pytest
import torch
from torch import Tensor

from minerva.formulas.returns import (
    discounted_returns,
    discounted_sums,
    explained_variance,
    gae,
    normalize,
    td_errors,
)

T, E = 40, 6
GAMMA, LAMBDA = torch.tensor(0.97, dtype=torch.float64), torch.tensor(0.9, dtype=torch.float64)
ZERO, ONE = torch.tensor(0.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)

Rows = dict[str, Tensor]


def random_rollout(seed: int) -> Rows:
    """Rewards and values with terminations and time limits strewn in, some of them in the last row."""
    source = torch.Generator().manual_seed(seed)
    rollout = {
        name: torch.randn(T, E, generator=source, dtype=torch.float64) for name in ("rewards", "values", "next_values")
    }
    rollout["terminated"] = (torch.rand(T, E, generator=source) < 0.08).double()
    truncated = (torch.rand(T, E, generator=source) < 0.08).double()
    rollout["ended"] = torch.maximum(rollout["terminated"], truncated)
    # inside an episode the next row's value is the value of the next observation
    inside = rollout["ended"][:-1] == 0
    rollout["next_values"][:-1] = torch.where(inside, rollout["values"][1:], rollout["next_values"][:-1])
    return rollout


def advantages_of(rollout: Rows, gamma: Tensor = GAMMA, gae_lambda: Tensor = LAMBDA) -> Tensor:
    names = ("rewards", "values", "next_values", "terminated")
    return gae(td_errors(*(rollout[name] for name in names), gamma), rollout["ended"], gamma, gae_lambda)


def returns_of(rollout: Rows, gamma: Tensor = GAMMA) -> Tensor:
    return discounted_returns(*(rollout[name] for name in ("rewards", "next_values", "terminated", "ended")), gamma)


@pytest.mark.parametrize("seed", range(5))
def test_lambda_zero_is_the_td_error(seed: int) -> None:
    rollout = random_rollout(seed)
    bootstrap = np.where(rollout["terminated"].numpy() == 1, 0.0, 0.97 * rollout["next_values"].numpy())
    expected = rollout["rewards"].numpy() + bootstrap - rollout["values"].numpy()
    np.testing.assert_allclose(advantages_of(rollout, gae_lambda=ZERO), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("seed", range(5))
def test_lambda_one_is_the_discounted_return_minus_the_value(seed: int) -> None:
    rollout = random_rollout(seed)
    found = advantages_of(rollout, gae_lambda=ONE) + rollout["values"]
    torch.testing.assert_close(found, returns_of(rollout), rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_gae_is_the_weighted_mean_of_n_step_advantages(seed: int) -> None:
    """Schulman et al. (2016), eq. 16: (1 - lambda) sum_n lambda^(n-1) A^(n), the last one taking all weight left."""
    rollout = {name: rows[:, 0].tolist() for name, rows in random_rollout(seed).items()}
    gamma, gae_lambda, start = GAMMA.item(), LAMBDA.item(), 3
    reward_sum, weight_left, expected = 0.0, 1.0, 0.0
    for n, t in enumerate(range(start, T)):
        reward_sum += gamma**n * rollout["rewards"][t]
        bootstrap = 0.0 if rollout["terminated"][t] else gamma ** (n + 1) * rollout["next_values"][t]
        last = bool(rollout["ended"][t]) or t == T - 1
        weight = weight_left if last else (1 - gae_lambda) * weight_left
        expected += weight * (reward_sum + bootstrap - rollout["values"][start])
        weight_left -= weight
        if last:
            break
    assert advantages_of(random_rollout(seed))[start, 0].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.99])
def test_constant_reward_until_termination_is_a_geometric_sum(gamma: float) -> None:
    zeros, ends = torch.zeros(T, 1, dtype=torch.float64), torch.zeros(T, 1, dtype=torch.float64)
    ends[-1] = 1
    found = discounted_returns(zeros + 1, zeros + 7, ends, ends, torch.tensor(gamma, dtype=torch.float64))[:, 0]
    steps_left = T - np.arange(T)
    np.testing.assert_allclose(found, (1 - gamma**steps_left) / (1 - gamma), rtol=1e-13)


def test_constant_reward_under_its_own_value_has_no_advantage_at_a_time_limit() -> None:
    """V = r / (1 - gamma) is the value of never ending: a time limit must not make it look wrong."""
    zeros = torch.zeros(T, E, dtype=torch.float64)
    value = zeros + 1 / (1 - GAMMA)
    ended = (torch.rand(T, E, generator=torch.Generator().manual_seed(3)) < 0.2).double()
    rollout = {"rewards": zeros + 1, "values": value, "next_values": value, "terminated": zeros, "ended": ended}
    torch.testing.assert_close(advantages_of(rollout), zeros, rtol=0, atol=1e-12)
    torch.testing.assert_close(returns_of(rollout), value, rtol=1e-13, atol=0)


def test_constant_reward_and_no_values_give_a_geometric_sum_in_gamma_lambda() -> None:
    zeros = torch.zeros(T, 1, dtype=torch.float64)
    rollout = dict.fromkeys(("values", "next_values", "terminated", "ended"), zeros) | {"rewards": zeros + 1}
    ratio = (GAMMA * LAMBDA).item()
    expected = (1 - ratio ** (T - np.arange(T))) / (1 - ratio)
    np.testing.assert_allclose(advantages_of(rollout)[:, 0], expected, rtol=1e-13)


@pytest.mark.parametrize("estimate", [advantages_of, returns_of])
@pytest.mark.parametrize("terminated", [0.0, 1.0])
def test_nothing_beyond_an_episodes_end_matters(estimate, terminated: float) -> None:  # type: ignore[no-untyped-def]
    end = 11
    rollout = random_rollout(8)
    rollout["ended"][end], rollout["terminated"][end] = 1, terminated
    changed = {name: rows.clone() for name, rows in rollout.items()}
    for name in ("rewards", "values", "next_values"):
        changed[name][end + 1 :] += 100
    assert torch.equal(estimate(rollout)[: end + 1], estimate(changed)[: end + 1])


@pytest.mark.parametrize("estimate", [advantages_of, returns_of])
@pytest.mark.parametrize("terminated", [0.0, 1.0])
def test_gradient_does_not_flow_back_over_an_episodes_end(estimate, terminated: float) -> None:  # type: ignore[no-untyped-def]
    end = 11
    rollout = random_rollout(9)
    rollout["ended"][end], rollout["terminated"][end] = 1, terminated
    inputs = [rollout[name].requires_grad_() for name in ("rewards", "next_values")]
    of_rewards, of_next_values = torch.autograd.grad(estimate(rollout)[: end + 1].sum(), inputs)
    assert not of_rewards[end + 1 :].any()
    assert not of_next_values[end + 1 :].any()
    assert of_rewards[: end + 1].all()
    assert of_next_values[end].any().item() == (terminated == 0)


@pytest.mark.parametrize("estimate", [advantages_of, returns_of])
def test_a_time_limit_differs_from_a_termination_by_the_bootstrap_alone(estimate) -> None:  # type: ignore[no-untyped-def]
    end = 11
    limited = random_rollout(10)
    limited["ended"][: end + 1], limited["terminated"][: end + 1] = 0, 0
    limited["ended"][end] = 1
    ended = limited | {"terminated": limited["terminated"].clone()}
    ended["terminated"][end] = 1
    decay = GAMMA if estimate is returns_of else GAMMA * LAMBDA
    steps = end - torch.arange(end + 1)[:, None]
    expected = decay**steps * GAMMA * limited["next_values"][end]
    difference = estimate(limited) - estimate(ended)
    torch.testing.assert_close(difference[: end + 1], expected, rtol=0, atol=1e-13)
    assert not difference[end + 1 :].any()


def test_discounted_sums_are_each_episodes_rewards_summed_from_its_start() -> None:
    rollout = random_rollout(11)
    before = torch.linspace(-2, 2, E, dtype=torch.float64)
    sums, after = discounted_sums(rollout["rewards"], rollout["ended"], before, GAMMA)
    rewards, ended, gamma = rollout["rewards"].numpy(), rollout["ended"].numpy(), GAMMA.item()
    for env in range(E):
        start, carried = 0, before[env].item()
        for t in range(T):
            powers = gamma ** np.arange(t - start, -1, -1)
            expected = powers @ rewards[start : t + 1, env] + gamma ** (t - start + 1) * carried
            assert sums[t, env].item() == pytest.approx(expected, abs=1e-12)
            if ended[t, env]:
                start, carried = t + 1, 0.0
        assert after[env].item() == (0 if ended[-1, env] else sums[-1, env].item())


def test_discounted_sums_of_two_halves_are_those_of_the_whole() -> None:
    rewards, ended = random_rollout(12)["rewards"], random_rollout(12)["ended"]
    start = torch.zeros(E, dtype=torch.float64)
    whole, last = discounted_sums(rewards, ended, start, GAMMA)
    first_half, carried = discounted_sums(rewards[:17], ended[:17], start, GAMMA)
    second_half, carried = discounted_sums(rewards[17:], ended[17:], carried, GAMMA)
    assert torch.equal(torch.cat([first_half, second_half]), whole)
    assert torch.equal(carried, last)


@pytest.mark.parametrize("rows", [2, 3, 64])
def test_normalized_advantages_have_zero_mean_and_unit_unbiased_std(rows: int) -> None:
    advantages = 5 + 3 * torch.randn(rows, generator=torch.Generator().manual_seed(rows), dtype=torch.float64)
    found = normalize(advantages, correction=1).numpy()
    assert found.mean() == pytest.approx(0, abs=1e-14)
    assert found.std(ddof=1) == pytest.approx(1, abs=1e-7)  # 1e-8 is added to the std


@pytest.mark.parametrize("advantages", [[4.0], [2.0, 2.0, 2.0]], ids=["one row", "equal rows"])
def test_advantages_without_spread_become_zero(advantages: list[float]) -> None:
    assert not normalize(torch.tensor(advantages), correction=1).any()


def test_normalizing_keeps_the_order_and_forgets_shift_and_scale() -> None:
    advantages = torch.randn(64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = normalize(advantages, correction=1)
    torch.testing.assert_close(normalize(1000 * advantages - 7, correction=1), found, rtol=1e-6, atol=1e-7)
    assert torch.equal(found.argsort(), advantages.argsort())


def test_explained_variance_limits() -> None:
    returns = torch.randn(1000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert explained_variance(returns, returns).item() == pytest.approx(1)
    assert explained_variance(returns + 3, returns).item() == pytest.approx(1)  # an offset explains no less
    assert explained_variance(torch.full_like(returns, 5), returns).item() == pytest.approx(0, abs=1e-7)
    assert explained_variance(-returns, returns).item() == pytest.approx(-3, abs=1e-6)
    assert explained_variance(0.5 * returns, returns).item() == pytest.approx(0.75, abs=1e-7)


def test_explained_variance_of_constant_returns_is_finite() -> None:
    constant = torch.ones(10)
    assert explained_variance(constant, constant).item() == 1
    assert torch.isfinite(explained_variance(torch.linspace(0, 1, 10), constant))
