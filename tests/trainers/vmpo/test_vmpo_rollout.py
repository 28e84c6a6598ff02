"""Learning from rollouts: advantages by brute force, episode ends, the normaliser, and when the old policy changes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from source_settings import source
from torch import Tensor

from minerva.formulas.returns import advantages_and_returns
from minerva.trainers.vmpo.agent import VMPOAgent
from minerva.trainers.vmpo.config import VMPOConfig

MakeAgent = Callable[..., VMPOAgent]
MakeRollout = Callable[..., dict[str, Tensor]]
Batch = dict[str, Tensor]

FAST = {"policy_lr": 1e-2, "value_lr": 1e-2}


def evaluated(agent: VMPOAgent, rollout: Batch) -> Batch:
    with torch.no_grad():
        return agent.evaluated(agent.state, rollout, agent.hyper(1.0))


def brute_force(agent: VMPOAgent, rollout: Batch, trace: float) -> np.ndarray:
    """GAE by its definition: a sum over the rows up to the episode's end, once for every row.  [T, E]"""
    gamma = agent.config.gamma
    values, next_values = (agent.value(rollout[name]).squeeze(-1).numpy() for name in ("obs", "next_obs"))
    rewards, terminated, ended = (rollout[name].numpy() for name in ("rewards", "terminated", "ended"))
    advantages = np.zeros_like(rewards)
    for t, e in np.ndindex(rewards.shape):
        for k in range(t, len(rewards)):
            bootstrap = 0.0 if terminated[k, e] else gamma * next_values[k, e]
            delta = rewards[k, e] + bootstrap - values[k, e]
            advantages[t, e] += (gamma * trace) ** (k - t) * delta
            if ended[k, e]:
                break
    return advantages


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(("estimator", "trace"), [("gae", 0.9), ("returns", 1.0), ("dae", 0.0)])
def test_advantages_and_returns_by_brute_force(
    make_agent: MakeAgent, make_rollout: MakeRollout, estimator: str, trace: float
) -> None:
    """With terminations and time limits on the way: a return is a trace of 1, the one-step difference a trace of 0."""
    agent = make_agent(advantage_estimator=estimator, gae_lambda=0.9)
    rollout = make_rollout(agent)
    assert 0 < rollout["terminated"].sum() < rollout["ended"].sum()
    batch = evaluated(agent, rollout)
    expected = brute_force(agent, rollout, trace).reshape(-1)
    np.testing.assert_allclose(batch["advantages"], expected, rtol=1e-10, atol=1e-10)
    values = agent.value(batch["obs"]).squeeze(-1)
    np.testing.assert_allclose(batch["returns"], expected + values.numpy(), rtol=1e-10, atol=1e-10)


def test_a_time_limit_bootstraps_from_the_true_next_state_and_a_termination_does_not() -> None:
    """Rules out a bootstrap from the observation after a reset: the rows after the end hold huge values."""
    values = torch.tensor([[1.0], [1000.0]])
    next_values = torch.tensor([[5.0], [1000.0]])
    gamma, gae_lambda = torch.tensor(0.5), torch.tensor(1.0)
    for terminated, expected in ((0.0, 2 + 0.5 * 5), (1.0, 2.0)):
        rollout = {
            "rewards": torch.tensor([[2.0], [3.0]]),
            "terminated": torch.tensor([[terminated], [0.0]]),
            "ended": torch.tensor([[1.0], [0.0]]),
        }
        for estimator in ("returns", "gae", "dae"):
            _, returns = advantages_and_returns(estimator, rollout, values, next_values, gamma, gae_lambda)
            assert returns[0, 0].item() == pytest.approx(expected), estimator


def test_learning_from_a_rollout_is_an_update_on_what_it_is_evaluated_to(
    make_agent: MakeAgent, make_rollout: MakeRollout
) -> None:
    first, second = make_agent(), make_agent()
    rollout = make_rollout(first)
    batch = evaluated(second, rollout)
    old = batch.pop("old")
    by_hand = second.update({**batch, "old_means": old["mean"], "old_log_stds": old["log_std"]})
    learned = first.learn(rollout)
    assert learned.pop("charts/learning_rate") == pytest.approx(first.config.policy_lr)
    assert learned.pop("health/kl_mean") == pytest.approx(learned["kl/mean_sel"] / first.config.epsilon_mu)
    assert learned.pop("health/kl_std") == pytest.approx(learned["kl/std_sel"] / first.config.epsilon_sigma)
    assert learned == by_hand
    torch.testing.assert_close(first.flat.vector, second.flat.vector, rtol=0, atol=0)


def test_normaliser_is_frozen_until_the_update_is_over_and_then_knows_the_rollout(
    make_agent: MakeAgent, make_rollout: MakeRollout
) -> None:
    agent = make_agent(normalize_observations=True, advantage_estimator="gae")
    rollouts = [make_rollout(agent, seed=seed) for seed in range(2)]
    for rollout in rollouts:
        metrics = agent.learn(rollout)
        assert metrics["kl/mean"] == pytest.approx(0, abs=1e-9)  # the policy that learns is still the one that acted
        assert metrics["kl/std"] == pytest.approx(0, abs=1e-9)
    seen = torch.cat([rollout["obs"] for rollout in rollouts]).reshape(-1, 4).double()
    normalizer = agent.policy.obs_normalizer
    torch.testing.assert_close(normalizer.mean, seen.mean(0))
    torch.testing.assert_close(normalizer.var, seen.var(0, correction=0))
    assert normalizer.count == len(seen)


def test_annealing_scales_the_rates_of_policy_and_value(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    agents = [make_agent(), make_agent()]
    moved = [
        agent.learn(make_rollout(agents[0]), share)["train/param_delta"]
        for agent, share in zip(agents, (1.0, 0.25), strict=True)
    ]
    assert moved[1] == pytest.approx(0.25 * moved[0], rel=1e-3)


def test_bounds_fall_with_the_square_of_the_rates_and_raise_the_price_of_a_kl(make_rollout: MakeRollout) -> None:
    settings = {**FAST, "anneal_lr": True, "m_steps": 8, "alpha_update": "multiplicative", "alpha_lr": 0.1}
    seen = {}
    for falls in (False, True):
        config = VMPOConfig.from_dict({**source("vmpo"), **settings, "epsilon_mu": 0.05, "anneal_bounds": falls})
        for remaining in (1.0, 0.1):
            agent = VMPOAgent.from_config(4, 2, config)
            share = 0.01 if falls and remaining == 0.1 else 1.0
            assert agent.hyper(remaining)["bounds"].tolist() == pytest.approx([share * 0.05, share * 0.01])
            metrics = agent.learn(make_rollout(agent), remaining)
            seen[falls, remaining] = metrics["vmpo/alpha_mu"]
            assert metrics["health/kl_mean"] == pytest.approx(metrics["kl/mean_sel"] / (share * 0.05))
            assert metrics["health/kl_std"] == pytest.approx(metrics["kl/std_sel"] / (share * 0.01))
    assert seen[True, 1.0] == seen[False, 1.0]
    assert seen[True, 0.1] > 1.1 * seen[False, 0.1]


# --- the old policy ---------------------------------------------------------------------------------------------


def replacements(agent: VMPOAgent, rollouts: list[Batch]) -> list[int]:
    """In which of all updates, counted from 1, the old policy was replaced."""
    seen: list[int] = []
    count = 0
    replaced = agent.improved.maybe_replace_old_policy

    def watched(state: Any, batch: Batch, target: Batch, hyper: Batch) -> tuple[Any, Batch]:
        nonlocal count
        count += 1
        after, rows = replaced(state, batch, target, hyper)
        changed = not torch.equal(after["old"]["parameters"], state["old"]["parameters"])
        if changed:
            seen.append(count)
            torch.testing.assert_close(after["old"]["parameters"], state["parameters"], rtol=0, atol=0)
            params = agent.policy_function.params(state["parameters"], batch["obs"], state["normalizer"])
            torch.testing.assert_close(rows["old"], params, rtol=0, atol=0)
        else:
            torch.testing.assert_close(rows["old"], batch["old"], rtol=0, atol=0)
        return after, rows

    agent.improved.maybe_replace_old_policy = watched
    for rollout in rollouts:
        agent.learn(rollout)
    return seen


def test_with_rollout_the_old_policy_is_the_one_that_collected(
    make_agent: MakeAgent, make_rollout: MakeRollout
) -> None:
    agent = make_agent(updates_per_rollout=6, **FAST)
    assert "old" not in agent.state
    start = evaluated(agent, rollout := make_rollout(agent))
    agent.learn(rollout)
    last = agent.learn(make_rollout(agent, seed=1))
    assert last["kl/mean"] > 1e-4  # six updates away from where the rollout began
    torch.testing.assert_close(
        start["old"],
        make_agent(**FAST).evaluated(make_agent(**FAST).state, rollout, agent.hyper(1.0))["old"],
    )


def test_with_updates_it_is_replaced_every_so_many_updates_across_rollouts(
    make_agent: MakeAgent, make_rollout: MakeRollout
) -> None:
    agent = make_agent(old_policy="updates", old_policy_period=4, updates_per_rollout=3, **FAST)
    rollouts = [make_rollout(agent, seed=seed) for seed in range(3)]
    assert replacements(agent, rollouts) == [4, 8]
    assert agent.state["old"]["age"] == 1


def test_with_updates_the_old_policy_acts(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    agent = make_agent(old_policy="updates", old_policy_period=100, normalize_observations=True, **FAST)
    obs = torch.randn(5, 4)
    for seed in range(2):
        agent.learn(make_rollout(agent, seed=seed))
    old = agent.policy_function.params(agent.state["old"]["parameters"], obs, agent.state["normalizer"])
    old_mean, old_log_std = old["mean"], old["log_std"]
    _, _, mean, log_std = agent.act(obs)
    torch.testing.assert_close((mean, log_std), (old_mean, old_log_std), rtol=0, atol=0)
    _, _, online, _ = agent.act(obs, deterministic=True)
    assert not torch.allclose(online, old_mean, atol=1e-3)
    draws = torch.stack([agent.sample(obs) for _ in range(4000)])
    assert ((draws.mean(0) - old_mean).abs() < 5 * old_log_std.exp() / 4000**0.5).all()


def test_with_kl_it_is_replaced_as_soon_as_a_bound_is_reached(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    settings = {"old_policy": "kl", "old_policy_period": 5, "updates_per_rollout": 6, **FAST}
    tight = make_agent(epsilon_mu=1e-9, **settings)
    assert replacements(tight, [make_rollout(tight)]) == [1, 2, 3, 4, 5, 6]
    of_spread = make_agent(epsilon_mu=1e9, epsilon_sigma=1e-12, **settings)
    assert replacements(of_spread, [make_rollout(of_spread)]) == [1, 2, 3, 4, 5, 6]
    loose = make_agent(epsilon_mu=1e9, epsilon_sigma=1e9, **settings)
    assert replacements(loose, [make_rollout(loose), make_rollout(loose, seed=1)]) == [5, 10]


def test_with_kl_the_divergence_starts_anew_after_a_replacement(
    make_agent: MakeAgent, make_rollout: MakeRollout
) -> None:
    agent = make_agent(old_policy="kl", epsilon_mu=1e-9, updates_per_rollout=4, **FAST)
    metrics = agent.learn(make_rollout(agent))
    assert metrics["kl/mean_sel"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("old_policy", ["rollout", "kl"])
def test_without_updates_the_newest_policy_acts(
    make_agent: MakeAgent, make_rollout: MakeRollout, old_policy: str
) -> None:
    agent = make_agent(old_policy=old_policy, old_policy_period=100, epsilon_mu=1e9, epsilon_sigma=1e9, **FAST)
    obs = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    start, _ = agent.policy(obs)
    for seed in range(2):
        agent.learn(make_rollout(agent, seed=seed))
    newest, log_std = (part.detach() for part in agent.policy(obs))
    assert not torch.allclose(newest, start, atol=1e-3), "or the old policy could not be told from the newest"
    _, _, *acting = agent.act(obs)
    torch.testing.assert_close(tuple(acting), (newest, log_std), rtol=0, atol=0)
    noise = torch.full_like(newest, 0.5)
    drawn = agent.acted(agent.state, obs, noise)["actions_raw"]
    torch.testing.assert_close(drawn, newest + 0.5 * log_std.exp())
