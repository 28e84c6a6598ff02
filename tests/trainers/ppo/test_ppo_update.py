"""One PPO update: pure, repeatable, stopped by its KL, and right in its corners."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from trees import leaves

from minerva.formulas.gaussian import gaussian_log_prob
from minerva.trainers.ppo import improve
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.config import PPOConfig

MakeAgent = Callable[..., PPOAgent]
MakeRollout = Callable[..., dict[str, Tensor]]

EPOCHS, MINIBATCHES = 4, 4


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


# --- a function of tensors ------------------------------------------------------------------------------------


def test_updated_does_not_change_its_inputs(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    agent = make_agent()
    inputs = {"state": agent.state, "rollout": make_rollout(agent), "hyper": agent.hyper(1.0)}
    orders = agent.draw_update(inputs["rollout"])
    before = copy.deepcopy(leaves(inputs))
    with torch.no_grad():
        state, _ = agent.updated(inputs["state"], inputs["rollout"], orders, inputs["hyper"])
    assert_same(leaves(inputs), before)
    assert not torch.equal(state["parameters"], agent.state["parameters"])


def test_update_writes_the_new_state_where_the_network_sees_it(
    make_agent: MakeAgent, make_rollout: MakeRollout
) -> None:
    agent = make_agent()
    rollout = make_rollout(agent)
    twin = make_agent()
    orders = twin.draw_update(rollout)
    with torch.no_grad():
        expected, _ = twin.updated(twin.state, rollout, orders, twin.hyper(1.0))
    agent.update(rollout)
    assert_same(leaves(agent.state), leaves(expected))
    for name, parameter in agent.flat.by_name(expected["parameters"]).items():
        assert torch.equal(agent.network.get_parameter(name), parameter)
    assert torch.equal(agent.network.obs_normalizer.mean, expected["normalizer"]["mean"])


def test_the_same_seed_learns_the_same_and_another_does_not(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    states, metrics = [], []
    for seed in (7, 7, 8):
        agent = make_agent(seed=seed)
        rollouts = [make_rollout(make_agent(), seed=n) for n in range(3)]
        metrics.append([agent.update(rollout) for rollout in rollouts])
        states.append(leaves(agent.state))
    assert_same(states[0], states[1])
    assert metrics[0] == metrics[1]
    assert not torch.equal(states[0]["parameters"], states[2]["parameters"])


def test_what_goes_on_elsewhere_in_torch_does_not_matter(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    torch.manual_seed(1)
    first = make_agent()
    torch.manual_seed(2)
    second = make_agent()
    rollout = make_rollout(first)
    first.update(rollout)
    torch.rand(100)
    second.update(rollout)
    assert torch.equal(first.flat.vector, second.flat.vector)


def test_every_row_is_used_once_an_epoch_in_an_order_of_its_own(
    make_agent: MakeAgent, make_rollout: MakeRollout
) -> None:
    agent = make_agent(update_epochs=5)
    orders = agent.draw_update(make_rollout(agent))
    assert orders.shape == (5, 64)
    assert all(torch.equal(order.sort().values, torch.arange(64)) for order in orders)
    assert len({tuple(order.tolist()) for order in orders}) == 5


def test_a_checkpointed_agent_goes_on_bit_for_bit(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    agent = make_agent()
    rollout = make_rollout(agent)
    agent.update(rollout)
    resumed = make_agent(seed=99)
    resumed.load_state_dict(copy.deepcopy(agent.state_dict()))
    assert torch.equal(resumed.sample(rollout["obs"][0]), agent.sample(rollout["obs"][0]))
    assert resumed.update(rollout) == agent.update(rollout)
    assert_same(leaves(resumed.state), leaves(agent.state))


# --- before the first step ------------------------------------------------------------------------------------


def test_the_ratio_is_exactly_one_before_the_first_step(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    agent = make_agent()
    for seed in range(3):
        rollout = make_rollout(agent, seed)
        batch = agent.evaluated(agent.state, rollout, agent.hyper(1.0))
        _, metrics = agent.improved.loss(agent.state["parameters"], agent.state["normalizer"], batch, agent.hyper(1.0))
        assert metrics["losses/approx_kl"].item() == 0
        assert metrics["losses/old_approx_kl"].item() == 0
        assert metrics["losses/clipfrac"].item() == 0
        agent.update(rollout)


def test_what_the_old_policy_said_does_not_follow_the_new_one(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    """`log_std` of a network without state dependence is a view of the live parameter."""
    agent = make_agent()
    rollout = make_rollout(agent)
    batch = agent.evaluated(agent.state, rollout, agent.hyper(1.0))
    before = {name: rows.clone() for name, rows in batch.items()}
    agent.state["parameters"].add_(1.0)
    assert_same(batch, before)


def test_the_first_gradient_is_the_policy_gradient(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    """At ratio 1 the surrogate's grads is that of -E[A log pi], whatever the clip range."""
    agent = make_agent(norm_adv=False, vf_coef=0.0)
    batch = agent.evaluated(agent.state, make_rollout(agent), agent.hyper(1.0))
    batch = {name: rows.detach() for name, rows in batch.items()}
    leaf = agent.flat.vector.clone().requires_grad_()
    total, _ = agent.improved.loss(leaf, agent.state["normalizer"], batch, agent.hyper(1.0))
    (grads,) = torch.autograd.grad(total, leaf)
    log_prob = gaussian_log_prob(
        agent.network.get_deterministic_action(batch["obs"]), agent.network.actor_logstd, batch["actions_raw"]
    )
    (-(batch["advantages"] * log_prob).mean()).backward()
    for name, part in agent.flat.by_name(grads).items():
        expected = agent.network.get_parameter(name).grad
        torch.testing.assert_close(part, torch.zeros_like(part) if expected is None else expected, rtol=1e-4, atol=1e-6)


def test_advantages_are_normalised_over_the_rollout_or_in_each_minibatch(
    make_agent: MakeAgent, make_rollout: MakeRollout
) -> None:
    """Over the rollout, the rows of a minibatch keep their proportion to all others; in each, they lose it."""

    def loss(agent: PPOAgent, batch: dict[str, Tensor], rows: slice) -> Tensor:
        part = {name: values[rows] for name, values in agent.improved.standardized(batch).items()}
        total, _ = agent.improved.loss(agent.flat.vector, agent.state["normalizer"], part, agent.hyper(1.0))
        return total.detach()

    over, each = (make_agent(norm_adv_per_minibatch=choice, vf_coef=0.0) for choice in (False, True))
    batch = over.evaluated(over.state, make_rollout(over), over.hyper(1.0))
    advantages = torch.cat((1e-3 * batch["advantages"][:16], batch["advantages"][16:]))
    quiet = {**batch, "advantages": advantages}
    normalized = (advantages - advantages.mean()) / advantages.std()
    expected = -normalized[:16].mean()  # the surrogate at ratio 1
    torch.testing.assert_close(loss(over, quiet, slice(16)), expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(loss(each, quiet, slice(16)), torch.tensor(0.0), atol=1e-5, rtol=0)


def test_with_one_minibatch_both_normalisations_are_one(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    def learned(**settings: Any) -> Tensor:
        agent = make_agent(minibatch_size=64, advantage_memory=0.0, **settings)
        agent.update(make_rollout(agent))
        return agent.flat.vector.clone()

    over, each = (learned(norm_adv_per_minibatch=choice) for choice in (False, True))
    torch.testing.assert_close(over, each)
    assert not torch.allclose(over, learned(norm_adv=False))


# --- the KL stop ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target_kl", "epochs"), [(1e-12, 1), (None, EPOCHS), (0, EPOCHS), (1e6, EPOCHS)])
def test_steps_taken_under_a_target_kl(
    make_agent: MakeAgent, make_rollout: MakeRollout, target_kl: float | None, epochs: int
) -> None:
    agent = make_agent(target_kl=target_kl)
    agent.update(make_rollout(agent))
    assert agent.state["moments"]["step"].item() == epochs * MINIBATCHES


def test_the_default_ends_an_update_of_far_too_long_steps_and_lets_short_ones_pass(
    make_agent: MakeAgent, make_rollout: MakeRollout
) -> None:
    at_scale = {"target_kl": PPOConfig.at_scale(2048)["target_kl"]}
    for settings, rate, epochs in (({}, 1e-6, EPOCHS), ({}, 1.0, 1), (at_scale, 1.0, EPOCHS)):
        agent = make_agent(policy_lr=rate, **settings)
        agent.update(make_rollout(agent))
        assert agent.state["moments"]["step"].item() == epochs * MINIBATCHES


def kl_by_epoch(make_agent: MakeAgent, make_rollout: MakeRollout, epochs: int) -> list[float]:
    """The KL estimate that an update without a target ends with, after one epoch, after two, ..."""
    found = []
    for n in range(1, epochs + 1):
        agent = make_agent(target_kl=None, update_epochs=n, policy_lr=1e-2)
        found.append(agent.update(make_rollout(make_agent()))["losses/approx_kl"])
    return found


def stopping_target(kls: list[float]) -> tuple[float, int]:
    """A target that the KL passes for the first time after an epoch in the middle, and that epoch."""
    for n in range(2, len(kls)):
        if kls[n - 1] > max(kls[: n - 1]):
            return (kls[n - 1] + max(kls[: n - 1])) / 2, n
    raise AssertionError("no epoch in the middle raises the KL")


def test_epochs_stop_after_the_one_whose_kl_passes_the_target(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    target, stop = stopping_target(kl_by_epoch(make_agent, make_rollout, 10))
    stopped = make_agent(target_kl=target, update_epochs=10, policy_lr=1e-2)
    shorter = make_agent(target_kl=None, update_epochs=stop, policy_lr=1e-2)
    rollout = make_rollout(make_agent())
    assert stopped.update(rollout) == shorter.update(rollout)
    assert_same(leaves(stopped.state), leaves(shorter.state))


@pytest.mark.parametrize("target_kl", [1e-12, "middle", 1e6])
def test_selecting_on_the_device_gives_the_same_bits_as_stopping(
    make_agent: MakeAgent,
    make_rollout: MakeRollout,
    monkeypatch: pytest.MonkeyPatch,
    target_kl: float | str,
) -> None:
    if target_kl == "middle":
        target_kl, _ = stopping_target(kl_by_epoch(make_agent, make_rollout, 10))
    rollout = make_rollout(make_agent())
    stopped, selected = (make_agent(target_kl=target_kl, update_epochs=10, policy_lr=1e-2) for _ in range(2))
    metrics = stopped.update(rollout)
    assert metrics["losses/clipfrac"] > 0, "or the epochs left out could not show in it"
    monkeypatch.setattr(improve, "transformed", lambda: True)
    calls = []
    plain_step = selected.improved.minibatch_step
    selected.improved.minibatch_step = lambda *inputs: calls.append(1) or plain_step(*inputs)
    assert selected.update(rollout) == metrics
    assert_same(leaves(selected.state), leaves(stopped.state))
    assert len(calls) == 10 * MINIBATCHES, "the selection runs every epoch, so the two paths differed"


# --- settings -------------------------------------------------------------------------------------------------


def test_remaining_scales_the_learning_rate(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    slow, annealed = make_agent(policy_lr=0.25 * 2**-10), make_agent(policy_lr=2**-10)
    rollout = make_rollout(slow)
    assert slow.update(rollout) == annealed.update(rollout, remaining=0.25)
    assert torch.equal(slow.flat.vector, annealed.flat.vector)


def test_at_the_end_of_annealing_nothing_moves(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    agent = make_agent()
    before = agent.flat.vector.clone()
    metrics = agent.update(make_rollout(agent), remaining=0.0)
    assert torch.equal(agent.flat.vector, before)
    assert metrics["charts/learning_rate"] == 0


@pytest.mark.parametrize("estimator", ["gae", "returns"])
@pytest.mark.parametrize("optimizer_type", ["adam", "sgd"])
def test_learning_lowers_the_loss_it_is_given(
    make_agent: MakeAgent, make_rollout: MakeRollout, estimator: str, optimizer_type: str
) -> None:
    agent = make_agent(
        advantage_estimator=estimator,
        optimizer_type=optimizer_type,
        policy_lr=3e-3,
        target_kl=None,
        clip_vloss=False,
        norm_adv=False,
    )
    rollout, hyper = make_rollout(agent), agent.hyper(1.0)
    batch = agent.evaluated(agent.state, rollout, hyper)
    with torch.no_grad():
        before, _ = agent.improved.loss(agent.state["parameters"], agent.state["normalizer"], batch, hyper)
        state, _ = agent.improved(agent.state, batch, agent.draw_update(rollout), hyper)
        after, _ = agent.improved.loss(state["parameters"], state["normalizer"], batch, hyper)
    assert after < before


def test_the_plain_returns_estimator_is_gae_with_lambda_one(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    plain, gae = make_agent(advantage_estimator="returns"), make_agent(gae_lambda=1.0)
    rollout = make_rollout(plain)
    found, expected = (agent.evaluated(agent.state, rollout, agent.hyper(1.0)) for agent in (plain, gae))
    for name in ("advantages", "returns"):
        torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("steps", [33, 47, 48])
@pytest.mark.parametrize("target_kl", [None, 0.02])
def test_a_short_last_minibatch_is_learned_from_too(
    make_agent: MakeAgent, make_rollout: MakeRollout, steps: int, target_kl: float | None
) -> None:
    agent = make_agent(num_envs=1, rollout_steps=steps, minibatch_size=16, target_kl=target_kl, update_epochs=1)
    metrics = agent.update(make_rollout(agent, steps=steps, envs=1))
    assert agent.state["moments"]["step"].item() == math.ceil(steps / 16)
    assert all(math.isfinite(value) for value in metrics.values())
    assert all(torch.isfinite(leaf).all() for leaf in leaves(agent.state).values())


def test_metrics_are_those_of_the_specification(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    agent = make_agent(advantage_memory=0.0)
    names = ("value_loss", "policy_loss", "entropy", "old_approx_kl", "approx_kl", "clipfrac", "explained_variance")
    metrics = agent.update(make_rollout(agent))
    assert set(metrics) == {f"losses/{name}" for name in names} | {"charts/learning_rate"}
    assert all(type(value) is float for value in metrics.values())


def test_losses_are_of_the_last_minibatch_and_clipfrac_is_the_mean_over_all(
    make_agent: MakeAgent, make_rollout: MakeRollout
) -> None:
    agent = make_agent(policy_lr=1e-2, target_kl=None)
    seen: list[dict[str, Any]] = []
    plain_step = agent.improved.minibatch_step

    def record(*inputs: Any) -> Any:
        result = plain_step(*inputs)
        seen.append({name: value.item() for name, value in result[1].items()})
        return result

    agent.improved.minibatch_step = record
    metrics = agent.update(make_rollout(agent))
    fractions = [row.pop("losses/clipfrac") for row in seen]
    assert len(set(fractions)) > 1
    assert metrics["losses/clipfrac"] == pytest.approx(sum(fractions) / len(fractions), rel=1e-6)
    assert {name: metrics[name] for name in seen[-1]} == seen[-1]
