"""MPO's update as users meet it: what it changes, when, and what it leaves alone."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import same
from torch import Tensor
from trees import leaves

from minerva.errors import ConfigError
from minerva.formulas.lagrange import positive
from minerva.loop.stacking import Stack
from minerva.trainers.mpo.agent import MPOAgent

MakeAgent = Callable[..., MPOAgent]
MakeBatch = Callable[..., dict[str, Tensor]]


def parameters(agent: MPOAgent) -> Tensor:
    return torch.cat([agent.state[name] for name in ("policy", "q", "duals")]).clone()


# --- the schedule of an update ----------------------------------------------------------------------------------


def test_targets_are_copied_at_the_start_of_every_periods_first_update(
    make_agent: MakeAgent, make_batch: MakeBatch
) -> None:
    agent = make_agent(target_networks_update_period=3)
    with torch.no_grad():
        agent.policy_target.policy_mean.bias += 1  # whatever the target was, the first update replaces it
    for update in range(7):
        before = {name: agent.state[name].clone() for name in ("policy", "q", "policy_target", "q_target")}
        agent.update(make_batch(seed=update))
        for name in ("policy", "q"):
            expected = before[name] if update % 3 == 0 else before[f"{name}_target"]
            assert torch.equal(agent.state[f"{name}_target"], expected), (update, name)
            assert not torch.equal(agent.state[name], before[name])


def test_the_modules_are_the_state(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agent = make_agent()
    for name in ("policy", "policy_target", "q", "q_target", "duals"):
        with torch.no_grad():
            next(getattr(agent, name).parameters()).fill_(0.125)
        assert (agent.state[name] == 0.125).any()
        agent.state[name].fill_(0.25)
        assert all((parameter == 0.25).all() for parameter in getattr(agent, name).parameters())
    agent = make_agent()
    replaced = torch.zeros_like(agent.state["q"])
    torch.nn.utils.vector_to_parameters(replaced, agent.q.parameters())  # assigns to parameter.data
    agent.update(make_batch())
    assert agent.state["q_target"].abs().max() == 0  # the first update copies the zeros
    assert torch.equal(agent.state["q"], torch.nn.utils.parameters_to_vector(agent.q.parameters()))
    before = agent.policy(torch.ones(4))[0].clone()
    agent.update(make_batch())
    assert not torch.equal(agent.policy(torch.ones(4))[0], before)


def test_m_steps_divide_the_policys_rate(make_agent: MakeAgent) -> None:
    rates = [make_agent(m_steps=m, policy_lr=0.06).hyper()["policy_lr"].item() for m in (1, 2, 3)]
    assert rates == pytest.approx([0.06, 0.03, 0.02])


@pytest.mark.usefixtures("double_precision")
def test_what_remains_scales_the_steps_of_policy_and_critic_and_not_those_of_the_duals(
    make_agent: MakeAgent, make_batch: MakeBatch
) -> None:
    """Plain gradient descent, where a step is proportional to its rate; the critic steps first, so the policy's sees
    another critic: hence a rate of the critic that is all but zero for the policy's part."""
    changes = {}
    for remaining in (1.0, 0.25):
        for part, rates in (("q", {}), ("policy", {"q_lr": 1e-12}), ("duals", {"q_lr": 1e-12})):
            agent = make_agent(optimizer_type="sgd", sgd_momentum=0.0, **rates)
            before = agent.state[part].clone()
            agent.update(make_batch(seed=0), remaining=remaining)
            changes[part, remaining] = agent.state[part] - before
    for part, factor in (("q", 0.25), ("policy", 0.25), ("duals", 1.0)):
        torch.testing.assert_close(changes[part, 0.25], factor * changes[part, 1.0], rtol=1e-6, atol=1e-12)
        assert changes[part, 1.0].abs().max() > 0


def test_the_duals_step_before_the_policy_pays(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    """With a huge dual rate the multipliers jump; the policy must move as with the multipliers after the jump."""
    moved = []
    for start, rate in ((10.0, 5.0), (5.0, 1e-9)):
        agent = make_agent(
            init_log_alpha_mean=start,
            init_log_alpha_stddev=start,
            lambda_lr=rate,
            epsilon_penalty=0.0,
            mstep_kl_epsilon=100.0,
            max_grad_norm=1e9,
            target_networks_update_period=100,
            optimizer_type="adam",
        )
        agent.state["counters"]["updates"].fill_(1)  # no copy: the policies differ, so the constraints cost something
        with torch.no_grad():
            agent.policy.policy_mean.bias += 0.5
            agent.policy.policy_logstd.bias += 0.5
        noise = agent.draw_update(agent.prepared(make_batch()))
        agent.update(make_batch(), noise)
        moved.append(agent.state["policy"].clone())
        torch.testing.assert_close(agent.duals.raw_alpha_mean.detach(), torch.full((2,), 5.0), rtol=0, atol=2e-3)
    torch.testing.assert_close(moved[0], moved[1], rtol=0, atol=1e-6)


def test_the_first_step_of_the_policy_is_the_gradient_of_the_weighted_likelihood(
    make_agent: MakeAgent, make_batch: MakeBatch, double_precision: None
) -> None:
    """With equal policies the constraints are silent: plain SGD moves along the likelihood of the weighted samples."""
    agent = make_agent(optimizer_type="sgd", policy_lr=1e-2, max_grad_norm=1e9, epsilon_penalty=0.0)
    batch = make_batch()
    noise = agent.draw_update(agent.prepared(batch))
    before, obs = agent.state["policy"].clone(), batch["obs"]
    with torch.no_grad():
        old_mean, old_log_std = agent.policy(obs)
        actions = old_mean + old_log_std.exp() * noise["actions"]
        psi = torch.softmax(agent.q(obs.expand(6, 9, 4), actions).squeeze(-1) / positive(torch.tensor(1.0)), 0)
    mean, log_std = agent.policy(obs)
    fixed_std = torch.distributions.Normal(mean, old_log_std.exp()).log_prob(actions).sum(-1)
    fixed_mean = torch.distributions.Normal(old_mean, log_std.exp()).log_prob(actions).sum(-1)
    loss = -(psi * (fixed_std + fixed_mean)).sum(0).mean()
    slope = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(agent.policy.parameters()))])
    metrics = agent.update(batch, noise)
    torch.testing.assert_close(agent.state["policy"], before - 1e-2 * slope, rtol=0, atol=1e-12)
    assert metrics is not None
    assert metrics["loss/policy"] == pytest.approx(loss.item())


def test_the_mean_pays_with_its_own_multiplier(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    """A known slip takes the mean's multiplier from the spread's parameter."""
    moved = {}
    for raised in ("init_log_alpha_mean", "init_log_alpha_stddev"):
        settings: dict[str, Any] = {"init_log_alpha_mean": 1.0, "init_log_alpha_stddev": 1.0, raised: 1000.0}
        agent = make_agent(**settings, optimizer_type="sgd", max_grad_norm=1e9, policy_lr=1e-5, lambda_lr=1e-9)
        agent.state["counters"]["updates"].fill_(1)
        with torch.no_grad():
            agent.policy.policy_mean.bias += 0.5
            agent.policy.policy_logstd.bias += 0.5
        mean, log_std = (head.bias.detach().clone() for head in (agent.policy.policy_mean, agent.policy.policy_logstd))
        agent.update(make_batch())
        moved[raised] = (
            (agent.policy.policy_mean.bias.detach() - mean).norm().item(),
            (agent.policy.policy_logstd.bias.detach() - log_std).norm().item(),
        )
    assert moved["init_log_alpha_mean"][0] > 50 * moved["init_log_alpha_stddev"][0]
    assert moved["init_log_alpha_stddev"][1] > 50 * moved["init_log_alpha_mean"][1]


def test_each_optimiser_state_is_its_own(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    """A known slip lets the policy's optimiser replace the duals'."""
    still = make_agent(temperature_lr=1e-12, lambda_lr=1e-12, policy_lr=0.1)
    duals = still.state["duals"].clone()
    policy = still.state["policy"].clone()
    still.update(make_batch())
    torch.testing.assert_close(still.state["duals"], duals, rtol=0, atol=1e-9)
    assert (still.state["policy"] - policy).abs().max() > 0.05
    assert {name: moments["first"].shape for name, moments in still.state["moments"].items()} == {
        name: still.state[name].shape for name in ("policy", "q", "duals")
    }


# --- the critic's target ----------------------------------------------------------------------------------------


def constant_critic(agent: MPOAgent, value: float) -> None:
    with torch.no_grad():
        for critic in (agent.q, agent.q_target):
            critic.head.weight.zero_()
            critic.head.bias.fill_(value)


def first_error(agent: MPOAgent, batch: dict[str, Tensor]) -> float:
    metrics = agent.update(batch)
    assert metrics is not None
    return metrics["loss/q"]


def test_a_termination_is_not_bootstrapped_and_a_time_limit_is(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    """With Q = 10 everywhere and reward 1, the target is 1 after an end, else 1 + 0.9 * 10 = 10."""
    batch = make_batch(1) | {"rewards": torch.ones(1, 1)}
    for flags, target in (({"dones": 1}, 1.0), ({"truncated": 1}, 10.0), ({}, 10.0)):
        agent = make_agent(gamma=0.9)
        constant_critic(agent, 10.0)
        given = batch | {name: torch.full((1, 1), float(flags.get(name, 0))) for name in ("dones", "truncated")}
        assert first_error(agent, given) == pytest.approx((10 - target) ** 2, abs=1e-5)


def test_n_steps_stop_at_the_first_end(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    rewards = torch.tensor([[[1.0], [2.0], [4.0]]])
    for ends, target in (
        ("000", 1 + 1.8 + 3.24 + 7.29),
        ("0t0", 1 + 1.8 + 8.1),
        ("0e0", 2.8),
        ("00e", 6.04),
        ("t00", 10.0),
    ):
        agent = make_agent(gamma=0.9, n_step=3)
        constant_critic(agent, 10.0)
        flags = {
            name: torch.tensor([[[float(end == mark)] for end in ends]])
            for name, mark in (("dones", "e"), ("truncated", "t"))
        }
        batch = make_batch(1, 3) | {"rewards": rewards} | flags
        assert first_error(agent, batch) == pytest.approx((10 - target) ** 2, rel=1e-5), ends


@pytest.mark.parametrize("critic", ["scalar", "categorical", "hl_gauss"])
def test_retrace_with_lambda_0_is_the_one_step_target(
    make_agent: MakeAgent, make_batch: MakeBatch, critic: str, double_precision: None
) -> None:
    """For the same K next actions; a distribution keeps the mean of the one-step target, not its shape."""
    settings: dict[str, Any] = {"critic": critic, "critic_range": 20.0, "gamma": 0.5}  # nothing is cut at the ends
    along = make_agent(**settings, use_retrace=True, retrace_steps=4, retrace_lambda=0.0)
    short = make_agent(**settings, action_samples=8)
    batch = make_batch(9, 4)
    rows, first = along.prepared(batch), short.prepared({name: value[:, 0] for name, value in batch.items()})
    noise = along.draw_update(rows)["critic"]
    target = along.evaluated.retrace_target(along.state, rows, noise, along.hyper())
    own = noise.view(8, 9, 4, 2)[:, :, 0]
    one_step, _ = short.evaluated.targets(short.state, first, {"critic": own, "actions": own}, short.hyper())
    if critic == "categorical":
        atoms = torch.linspace(-20, 20, 51)
        target, one_step = (target * atoms).sum(-1), (one_step * atoms).sum(-1)
    torch.testing.assert_close(target, one_step)


@pytest.mark.parametrize("critic", ["categorical", "hl_gauss"])
@pytest.mark.parametrize("target", ["td", "n_step", "retrace"])
def test_every_critic_learns_a_constant_with_every_target(
    make_agent: MakeAgent, make_batch: MakeBatch, critic: str, target: str
) -> None:
    """Reward 1 with an end at every row: Q becomes 1 whatever predicts it."""
    settings: dict[str, Any] = {
        "td": {},
        "n_step": {"n_step": 3},
        "retrace": {"use_retrace": True, "retrace_steps": 3},
    }[target]
    agent = make_agent(critic=critic, critic_range=3.0, critic_atoms=21, q_lr=0.02, max_grad_norm=10.0, **settings)
    batch = make_batch(32, None if target == "td" else 3)
    ends = {"rewards": torch.ones_like(batch["rewards"]), "dones": torch.ones_like(batch["dones"])}
    for _ in range(150):
        agent.update(batch | ends)
    obs, actions = (batch[name] if target == "td" else batch[name][:, 0] for name in ("obs", "actions_exec"))
    found = agent.evaluated.target_values({**agent.state, "q_target": agent.state["q"]}, obs, actions)
    torch.testing.assert_close(found, torch.ones(32), rtol=0, atol=0.05)


def test_numpy_tensors_and_both_names_of_the_action_are_accepted(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    batch = make_batch()
    renamed = {name if name != "actions_exec" else "actions": value.numpy() for name, value in batch.items()}
    one, other = make_agent(), make_agent()
    assert one.update(batch) == other.update(renamed)
    assert torch.equal(parameters(one), parameters(other))


def test_numbers_may_come_without_their_last_axis(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    for steps, settings in ((None, {}), (4, {"n_step": 4}), (4, {"use_retrace": True})):
        batch = make_batch(9, steps)
        flat = {name: value.squeeze(-1) if value.shape[-1] == 1 else value for name, value in batch.items()}
        rows, same_rows = (make_agent(**settings).prepared(given) for given in (batch, flat))
        assert same(rows, same_rows)


def test_a_batch_without_what_retrace_needs_is_refused(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    batch = make_batch(9, 4)
    del batch["behaviour_logp"]
    with pytest.raises(ConfigError, match="lacks behaviour_logp"):
        make_agent(use_retrace=True).update(batch)


# --- values that are not finite ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("key", ["obs", "actions_exec", "rewards", "next_obs", "dones"])
def test_a_bad_batch_changes_nothing_but_its_counter(
    make_agent: MakeAgent, make_batch: MakeBatch, key: str, bad: float
) -> None:
    agent = make_agent(target_networks_update_period=1)
    agent.update(make_batch(seed=1))  # online and target now differ, and a copy is due
    batch = make_batch(seed=2)
    batch[key][3, 0] = bad
    before = leaves(agent.state)
    assert agent.update(batch) is None
    after = leaves(agent.state)
    assert after.pop("counters/skipped") == before.pop("counters/skipped") + 1
    assert same(after, before)


@pytest.mark.parametrize("where", ["target", "outputs", "sampled"])
def test_a_finite_batch_that_leads_to_a_bad_value_is_skipped(
    make_agent: MakeAgent, make_batch: MakeBatch, where: str
) -> None:
    agent = make_agent()
    agent.update(make_batch())
    with torch.no_grad():
        if where == "outputs":
            agent.q.head.bias.fill_(torch.inf)
        else:  # the target critic values the next state and the samples
            agent.q_target.head.bias.fill_(torch.nan if where == "target" else torch.inf)
    batch = make_batch()
    if where == "sampled":
        batch["dones"].fill_(1)  # no bootstrap... but 0 * inf is no number either, so the target is bad as well
    before = leaves(agent.state)
    assert agent.update(batch) is None
    changed = [name for name, value in leaves(agent.state).items() if not torch.equal(value, before[name])]
    assert set(changed) - {"q", "q_target"} == {"counters/skipped"}  # NaN is not equal to itself


def test_a_loss_that_overflows_is_skipped(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agent = make_agent()
    before = parameters(agent)
    assert agent.update(make_batch() | {"rewards": torch.full((9, 1), 1e30)}) is None
    assert torch.equal(parameters(agent), before)


def test_skips_are_told_for_the_first_five_and_every_hundredth(
    make_agent: MakeAgent, make_batch: MakeBatch, caplog: pytest.LogCaptureFixture
) -> None:
    agent = make_agent(action_samples=1)
    stack = Stack([agent], "off", 0)
    batch = make_batch(2) | {"rewards": torch.full((2, 1), torch.nan)}
    with caplog.at_level(logging.WARNING, "minerva"):
        for _ in range(101):
            stack.learn(agent.prepared(batch), agent.hyper())  # the host hears of it only when it asks
        assert not caplog.records
        assert stack.metrics() == [{}]
    assert [record.args for record in caplog.records] == [(n,) for n in (1, 2, 3, 4, 5, 100)]
    assert agent.skipped == 101
    assert agent.update(make_batch()) is not None


# --- the penalty on actions out of bounds -----------------------------------------------------------------------


def test_the_penalty_pulls_the_mean_back_into_the_bounds(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    """With a critic that says nothing, the penalty alone moves a mean that lies outside."""

    def distance(bound: float) -> float:
        free = {"init_log_alpha_mean": -10.0, "target_networks_update_period": 10}
        agent = make_agent(epsilon_penalty=bound, temperature="solved", policy_lr=1e-2, initial_std=0.3, **free)
        constant_critic(agent, 0.0)
        with torch.no_grad():
            agent.policy.policy_mean.bias += 2.0
        for _ in range(60):
            agent.update(make_batch() | {"rewards": torch.zeros(9, 1), "dones": torch.ones(9, 1)})
        mean, _ = agent.policy(make_batch()["obs"])
        return (mean - agent.policy.execute(mean)).norm(dim=-1).mean().item()

    assert distance(0.5) < 0.7 * distance(0.0)


def test_weights_of_a_state_add_up_to_two_with_the_penalty(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    for bound, total in ((0.0, 1.0), (0.001, 2.0)):
        agent = make_agent(epsilon_penalty=bound)
        rows = agent.prepared(make_batch())
        _, samples = agent.evaluated.targets(agent.state, rows, agent.draw_update(rows), agent.hyper())
        temperatures = agent.improved.duals(agent.state["duals"], None).temperatures
        weights, _ = agent.improved.e_step(agent.improved.scored(samples), temperatures, agent.hyper())
        torch.testing.assert_close(weights.sum(0), torch.full((9,), total))


def test_a_solved_temperature_meets_its_bound_in_every_update(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agent = make_agent(temperature="solved", kl_epsilon=0.05)
    for seed in range(3):
        metrics = agent.update(make_batch(seed=seed))
        assert metrics is not None
        assert metrics["kl/q_pi"] == pytest.approx(1.0, rel=1e-3)
