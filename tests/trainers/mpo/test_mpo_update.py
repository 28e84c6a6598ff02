"""MPO's update as users meet it: what it changes, when, and what it leaves alone."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from minerva.errors import ConfigError
from minerva.formulas.lagrange import FLOOR, positive
from minerva.trainers.mpo.agent import LOOP, MPOAgent
from minerva.trainers.stack import Stack
from minerva.utils.tree import Tree

MakeAgent = Callable[..., MPOAgent]
MakeBatch = Callable[..., dict[str, Tensor]]
Leaves = Callable[[Tree], dict[str, Tensor]]


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def parameters(agent: MPOAgent) -> Tensor:
    return torch.cat([agent.state[name] for name in ("policy", "q", "duals")]).clone()


# --- acting -----------------------------------------------------------------------------------------------------


def test_acting_keeps_raw_and_executed_apart(make_agent: MakeAgent) -> None:
    agent = make_agent()
    obs = np.random.default_rng(0).normal(size=(200, 4))
    executed, raw, logp = agent.act_with_logp(obs)
    assert torch.equal(executed, torch.clamp(raw, torch.tensor([-0.5, -1.0]), torch.tensor([0.6, 1.2])))
    assert (executed != raw).any()
    mean, log_std = agent.policy(torch.as_tensor(obs, dtype=torch.float32))
    torch.testing.assert_close(logp, agent.policy.log_prob(mean, log_std, raw))
    assert torch.equal(agent.act(obs, deterministic=True), agent.policy.execute(mean))
    assert agent.act(obs[0]).shape == (2,)


def test_experience_is_collected_by_the_policy_the_config_names(make_agent: MakeAgent) -> None:
    obs = torch.randn(500, 4)
    for acting, shift in (("online", 5.0), ("target", 0.0)):
        agent = make_agent(acting_policy=acting, initial_std=0.1)
        target_mean = agent.policy_target(obs)[0]
        with torch.no_grad():
            agent.policy.policy_mean.bias += 5
        _, raw, logp = agent.sample(obs)
        torch.testing.assert_close(raw - target_mean, torch.full_like(raw, shift), rtol=0, atol=0.6)
        assert logp.mean() > 0  # the density under the policy that acted: the other's would be far below


def test_uniform_actions_fill_the_bounds_and_know_their_density(make_agent: MakeAgent) -> None:
    done = make_agent().sample_uniform((4000,))
    raw, logp = done["actions"], done["behaviour_logp"]
    assert torch.equal(done["executed"], raw)
    torch.testing.assert_close(raw.amin(0), torch.tensor([-0.5, -1.0]), rtol=0, atol=0.01)
    torch.testing.assert_close(raw.amax(0), torch.tensor([0.6, 1.2]), rtol=0, atol=0.01)
    torch.testing.assert_close(logp.exp() * 1.1 * 2.2, torch.ones(4000, 1))


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
    target = along.evaluate.retrace_target(along.state, rows, noise, along.hyper())
    own = noise.view(8, 9, 4, 2)[:, :, 0]
    one_step, _ = short.evaluate.targets(short.state, first, {"critic": own, "actions": own}, short.hyper())
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
    found = agent.learner.values(agent.state["q"], obs, actions)
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
    make_agent: MakeAgent, make_batch: MakeBatch, leaves: Leaves, key: str, bad: float
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
    make_agent: MakeAgent, make_batch: MakeBatch, leaves: Leaves, where: str
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


# --- arguments --------------------------------------------------------------------------------------------------

EFFECTS: list[dict[str, Any]] = [
    {"gamma": 0.5},
    {"target_networks_update_period": 1},
    {"policy_lr": 1e-2},
    {"q_lr": 1e-2},
    {"kl_epsilon": 1.0},
    {"mstep_kl_epsilon": 1e-3, "mstep_kl_epsilon_std": 0.1},
    {"mstep_kl_epsilon_std": 1e-6},
    {"temperature_init": -2.0},
    {"temperature_lr": 0.1},
    {"temperature": "solved"},
    {"lambda_init": 3.0},
    {"lambda_lr": 0.1},
    {"init_log_alpha_mean": 1.0},
    {"init_log_alpha_stddev": 1.0},
    {"epsilon_penalty": 0.0},
    {"epsilon_penalty": 0.1},
    {"max_grad_norm": 0.01},
    {"action_samples": 5},
    {"optimizer_type": "sgd"},
    {"m_steps": 2},
    {"initial_std": 0.2},
    {"n_step": 2},
    {"use_retrace": True},
    {"use_retrace": True, "retrace_mc_actions": 3},
    {"use_retrace": True, "retrace_lambda": 0.1},
    {"critic": "categorical"},
    {"critic": "hl_gauss"},
    {"critic": "hl_gauss", "critic_atoms": 11},
    {"critic": "hl_gauss", "critic_range": 20.0},
]


@pytest.mark.parametrize("setting", EFFECTS, ids=str)
def test_every_argument_has_an_effect(make_agent: MakeAgent, make_batch: MakeBatch, setting: dict[str, Any]) -> None:
    def learned(**settings: Any) -> list[float]:
        agent = make_agent(**settings)
        for seed in range(4):
            metrics = agent.update(make_batch(9, 2, seed=seed))
        assert metrics is not None
        return [*metrics.values(), parameters(agent).double().sum().item()]

    without = dict(list(setting.items())[:-1])
    assert learned(**setting) != learned(**without)


def test_momentum_has_an_effect_on_sgd(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agents = [make_agent(optimizer_type="sgd", sgd_momentum=momentum) for momentum in (0.0, 0.9)]
    for agent in agents:
        for seed in range(3):
            agent.update(make_batch(seed=seed))
    assert not torch.equal(parameters(agents[0]), parameters(agents[1]))


def test_lambda_init_multiplies_both_multipliers(make_agent: MakeAgent) -> None:
    for factor in (1.0, 2.5, 1e-3):
        duals = make_agent(lambda_init=factor).duals
        torch.testing.assert_close(positive(duals.raw_alpha_mean), torch.full((2,), factor * 10.0), rtol=1e-4, atol=0)
        torch.testing.assert_close(
            positive(duals.raw_alpha_stddev), torch.full((2,), factor * 1000.0), rtol=1e-4, atol=0
        )


def test_duals_never_fall_below_their_floor(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agent = make_agent(
        temperature_init=-30.0,
        init_log_alpha_mean=-17.9,
        init_log_alpha_stddev=-40.0,
        lambda_lr=5.0,
        temperature_lr=5.0,
    )
    assert agent.state["duals"].min() >= FLOOR
    for seed in range(5):
        metrics = agent.update(make_batch(seed=seed))
        assert agent.state["duals"].min() >= FLOOR
    assert metrics is not None
    assert metrics["alpha_std"] == pytest.approx(positive(torch.tensor(FLOOR)).item(), rel=1e-5)


@pytest.mark.parametrize("name", ["rmsprop", "Adam", ""])
def test_an_unknown_optimiser_is_refused(make_agent: MakeAgent, name: str) -> None:
    with pytest.raises(ConfigError, match="optimizer_type"):
        make_agent(optimizer_type=name)


@pytest.mark.parametrize("name", LOOP)
def test_what_only_the_loop_knows_is_refused(make_agent: MakeAgent, name: str) -> None:
    with pytest.raises(ConfigError, match="setting of MPOTrainer"):
        make_agent(**{name: 1})


def test_unknown_arguments_are_refused_with_the_nearest(make_agent: MakeAgent) -> None:
    with pytest.raises(ConfigError, match="Did you mean kl_epsilon"):
        make_agent(kl_epsilom=0.1)


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
        sampled = agent.learner.sampled(agent.state, rows["obs"][0], agent.draw_update(rows)["actions"])
        samples, _ = agent.improve.e_step(agent.state, rows["obs"][0], sampled, agent.hyper())
        torch.testing.assert_close(samples["weights"].sum(0), torch.full((9,), total))


def test_a_solved_temperature_meets_its_bound_in_every_update(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agent = make_agent(temperature="solved", kl_epsilon=0.05)
    for seed in range(3):
        metrics = agent.update(make_batch(seed=seed))
        assert metrics is not None
        assert metrics["kl/q_pi"] == pytest.approx(1.0, rel=1e-3)


# --- checkpoints ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": "solved", "critic": "categorical"}, {"optimizer_type": "sgd"}], ids=str
)
def test_a_restored_agent_goes_on_bit_for_bit(
    make_agent: MakeAgent, make_batch: MakeBatch, leaves: Leaves, settings: dict[str, Any]
) -> None:
    agent, restored = make_agent(**settings), make_agent(seed=7, **settings)
    for seed in range(3):
        agent.update(make_batch(seed=seed))
    agent.update(make_batch() | {"rewards": torch.full((9, 1), torch.nan)})
    restored.load_state_dict(agent.state_dict())
    for seed in range(3):
        assert agent.update(make_batch(seed=seed)) == restored.update(make_batch(seed=seed))
    obs = torch.randn(5, 4)
    assert torch.equal(agent.act(obs), restored.act(obs))
    assert same(leaves(agent.state), leaves(restored.state))
    assert restored.skipped == 1


def test_loading_the_policy_leaves_the_rest(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agent, fresh = make_agent(seed=1), make_agent(seed=2)
    agent.update(make_batch())
    duals = fresh.state["duals"].clone()
    fresh.load_policy(agent.state_dict())
    obs = torch.randn(5, 4)
    assert torch.equal(agent.act(obs, deterministic=True), fresh.act(obs, deterministic=True))
    assert torch.equal(fresh.state["duals"], duals)
    assert fresh.state["counters"]["updates"] == 0
