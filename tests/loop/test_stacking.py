"""Agents in a stack: each learns and acts as it would alone, whatever its neighbours do."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from minerva.compute.tree import leaves
from minerva.loop.agent import Agent
from minerva.loop.stacking import Stack
from minerva.trainers.mpo.agent import MPOAgent
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.config import PPOConfig
from minerva.trainers.sac.agent import SACAgent
from minerva.trainers.vmpo.agent import VMPOAgent

Batch = dict[str, Tensor]

OBS, ACT, STEPS, ENVS = 3, 2, 6, 2
UPDATES = 24
"""More than after how many the first two of MPO's agents copy their networks to the targets."""
SICK = 1
"""Which of three agents is fed what is no number."""

PPO = {"rollout_steps": STEPS, "num_envs": ENVS, "minibatch_size": 6, "update_epochs": 2}
PPO_SIZES = {"policy_layer_sizes": (5,), "critic_layer_sizes": (4,)}
VMPO_SIZES = {"policy_layer_sizes": (5,), "value_layer_sizes": (4,), "normalize_observations": True, "m_steps": 2}
SAC_SIZES = {"policy_layer_sizes": (5,), "critic_layer_sizes": (4,)}
MPO_SIZES = {"policy_layer_sizes": (5,), "critic_layer_sizes": (4,), "action_samples": 3}


class Algorithm(NamedTuple):
    """How an algorithm's agents are made, fed alone, and which numbers may differ between them."""

    make: Callable[..., Any]
    learn: Callable[[Any, Batch, float], dict[str, float] | None]
    data: Callable[[Any, Batch], Batch]
    numbers: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
    vector: str
    """The name in `state` of what the policy is made of."""
    one_step: dict[str, Any]
    """Settings with which an update is one step of that vector, at the rate `policy_lr`."""


def rollout(seed: int) -> Batch:
    """T steps of E environments, recorded from a world of noise in which episodes end now and then."""
    source = torch.Generator().manual_seed(seed)
    obs = 1 + 2 * torch.randn(STEPS + 1, ENVS, OBS, generator=source)
    terminated = torch.rand(STEPS, ENVS, generator=source) < 0.1
    truncated = torch.rand(STEPS, ENVS, generator=source) < 0.1
    return {
        "obs": obs[:-1].clone(),
        "actions_raw": torch.randn(STEPS, ENVS, ACT, generator=source),
        "next_obs": obs[1:].clone(),
        "rewards": obs[:-1, :, 0] + torch.randn(STEPS, ENVS, generator=source),
        "terminated": terminated.to(obs.dtype),
        "ended": (terminated | truncated).to(obs.dtype),
    }


def batch(agent: MPOAgent, rows: Batch) -> Batch:
    """The same rows as sequences or transitions of a replay."""
    given = {
        "obs": rows["obs"],
        "actions_exec": rows["actions_raw"].clamp(-1, 1),
        "actions_raw": rows["actions_raw"],
        "behaviour_logp": -rows["rewards"].abs().unsqueeze(-1),
        "next_obs": rows["next_obs"],
        "rewards": rows["rewards"].unsqueeze(-1),
        "dones": rows["terminated"].unsqueeze(-1),
        "truncated": (rows["ended"] - rows["terminated"]).unsqueeze(-1),
    }
    if agent.sequence_length == 1:
        return {name: values.flatten(0, 1) for name, values in given.items()}
    return {name: values.unflatten(0, (-1, 3)).movedim(1, 2).flatten(0, 1) for name, values in given.items()}


def make_ppo(seed: int, **settings: Any) -> PPOAgent:
    return PPOAgent(OBS, ACT, config=PPOConfig.from_dict({**PPO_SIZES, **PPO, **settings}), seed=seed)


def make_vmpo(seed: int, **settings: Any) -> VMPOAgent:
    return VMPOAgent(OBS, ACT, seed=seed, **{**VMPO_SIZES, **settings})


def make_mpo(seed: int, **settings: Any) -> MPOAgent:
    return MPOAgent(OBS, ACT, seed=seed, **{**MPO_SIZES, **settings})


PPO_AGENTS = Algorithm(
    make_ppo,
    lambda agent, rows, remaining: agent.update(rows, remaining),
    lambda agent, rows: rows,
    (
        {"policy_lr": 1e-3, "target_kl": 0.02},
        {"policy_lr": 3e-3, "target_kl": 1e-3, "gamma": 0.9, "gae_lambda": 0.8, "clip_ratio": 0.1},
        {"policy_lr": 5e-4, "target_kl": 1e6, "ent_coef": 0.02, "vf_coef": 1.5, "max_grad_norm": 0.1},
    ),
    "parameters",
    {"update_epochs": 1, "minibatch_size": STEPS * ENVS},
)
VMPO_AGENTS = Algorithm(
    make_vmpo,
    lambda agent, rows, remaining: agent.learn(rows, remaining),
    lambda agent, rows: rows,
    (
        {"policy_lr": 1e-3, "alpha_lr": 0.1},
        {"policy_lr": 3e-3, "gamma": 0.9, "epsilon_mu": 1e-4, "epsilon_eta": 0.5, "temperature_lr": 0.01},
        {"value_lr": 3e-3, "gae_lambda": 0.8, "epsilon_sigma": 1e-4, "max_grad_norm": 0.1, "old_policy_period": 7},
    ),
    "parameters",
    {"m_steps": 1, "value_lr": 1.0},
)
MPO_AGENTS = Algorithm(
    make_mpo,
    lambda agent, rows, remaining: agent.update(batch(agent, rows), remaining=remaining),
    lambda agent, rows: agent.prepared(batch(agent, rows)),
    (
        {"policy_lr": 1e-3, "target_networks_update_period": 10},
        {
            "policy_lr": 3e-3,
            "gamma": 0.9,
            "kl_epsilon": 0.5,
            "temperature_lr": 0.01,
            "lambda_lr": 0.1,
            "target_networks_update_period": 15,
        },
        {"q_lr": 3e-3, "max_grad_norm": 0.1, "mstep_kl_epsilon": 1e-3, "epsilon_penalty": 0.1, "retrace_lambda": 0.5},
    ),
    "policy",
    {},
)
SAC_AGENTS = Algorithm(
    lambda seed, **settings: SACAgent(OBS, ACT, seed=seed, **{**SAC_SIZES, **settings}),
    lambda agent, rows, remaining: agent.update(batch(agent, rows), remaining=remaining),
    lambda agent, rows: agent.prepared(batch(agent, rows)),
    (
        {"policy_lr": 1e-3, "tau": 0.1},
        {"policy_lr": 3e-3, "gamma": 0.9, "target_entropy": -3.0, "temperature_lr": 0.01},
        {"q_lr": 3e-3, "max_grad_norm": 0.1},
    ),
    "policy",
    {},
)
ALGORITHMS = pytest.mark.parametrize(
    "algorithm", [PPO_AGENTS, VMPO_AGENTS, MPO_AGENTS, SAC_AGENTS], ids=["ppo", "vmpo", "mpo", "sac"]
)
VARIANTS = pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (PPO_AGENTS, {}),
        (SAC_AGENTS, {}),
        (VMPO_AGENTS, {}),
        (VMPO_AGENTS, {"old_policy": "kl", "updates_per_rollout": 2, "temperature": "solved"}),
        (MPO_AGENTS, {}),
        (MPO_AGENTS, {"use_retrace": True, "retrace_steps": 3, "retrace_mc_actions": 2, "temperature": "solved"}),
    ],
    ids=["ppo", "sac", "vmpo", "vmpo with an old policy", "mpo", "mpo with retrace"],
)


pytestmark = pytest.mark.usefixtures("double_precision")


def made(algorithm: Algorithm, **settings: Any) -> list[Any]:
    """Three agents of different seeds and different numbers."""
    return [algorithm.make(seed, **{**numbers, **settings}) for seed, numbers in enumerate(algorithm.numbers)]


def recorded(update: int) -> list[Batch]:
    """What each of three agents learns from in an update."""
    return [rollout(10 * update + n) for n in range(3)]


def spoiled(rows: Batch, bad: float) -> Batch:
    """Everything measured is `bad`; the flags stay, as they do in an environment that broke."""
    return {name: value if name in ("terminated", "ended") else value * bad for name, value in rows.items()}


def learn(stack: Stack, algorithm: Algorithm, parts: list[Batch], remaining: float = 1.0) -> list[dict[str, float]]:
    own = [algorithm.data(agent, rows) for agent, rows in zip(stack.agents, parts, strict=True)]
    stack.learn(stack.stacked(own), stack.hyper(remaining))
    return stack.metrics()


def assert_same_state(found: Agent, expected: Agent) -> None:
    mine, theirs = leaves(found.state), leaves(expected.state)
    assert len(mine) == len(theirs)
    for value, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(value, other, rtol=1e-9, atol=1e-9)


def assert_acts_the_same(stack: Stack, n: int, alone: Agent, seed: int, noise: Tensor) -> None:
    """Agent n on its own environments, with the noise that the lone one draws."""
    obs = torch.randn(len(stack.agents) * ENVS, OBS, generator=torch.Generator().manual_seed(seed))
    own = slice(n * ENVS, (n + 1) * ENVS)
    with torch.no_grad():
        expected = alone.acted(alone.state, obs[own], alone.draw_actions((ENVS,)))
    found = stack.act(obs, noise)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name][own], values, rtol=1e-9, atol=1e-9, err_msg=name)


# --- together as alone ------------------------------------------------------------------------------------------


@VARIANTS
def test_each_agent_learns_and_acts_as_it_would_alone(algorithm: Algorithm, settings: dict[str, Any]) -> None:
    """Over many updates with the same data: parameters, moments, duals, statistics, metrics and actions."""
    alone = made(algorithm, **settings)
    stack = Stack(made(algorithm, **settings), "off", UPDATES)
    for update in range(UPDATES):
        parts, remaining = recorded(update), 1 - update / UPDATES
        metrics = learn(stack, algorithm, parts, remaining)
        for row, agent, rows in zip(metrics, alone, parts, strict=True):
            expected = algorithm.learn(agent, rows, remaining)
            assert row == {name: pytest.approx(value, rel=1e-9, abs=1e-9) for name, value in (expected or {}).items()}
        if update % 20 == 0:
            noise = stack.draw_actions((ENVS,))
            for n, agent in enumerate(alone):
                assert_acts_the_same(stack, n, agent, update, noise)
    for agent, other in zip(stack.agents, alone, strict=True):
        assert_same_state(agent, other)
    vectors = [agent.state[algorithm.vector] for agent in alone]
    assert all((vectors[n] - vectors[n - 1]).abs().max() > 0.01 for n in range(3)), "three agents, not one"


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e200], ids=["nan", "inf", "huge"])
@VARIANTS
def test_a_sick_neighbour_changes_nothing_for_the_others(
    algorithm: Algorithm, settings: dict[str, Any], bad: float
) -> None:
    alone = made(algorithm, **settings)
    stack = Stack(made(algorithm, **settings), "off", 6)
    for update in range(6):
        parts = recorded(update)
        metrics = learn(stack, algorithm, [spoiled(rows, bad) if n == SICK else rows for n, rows in enumerate(parts)])
        noise = stack.draw_actions((ENVS,))
        for n in {0, 1, 2} - {SICK}:
            expected = algorithm.learn(alone[n], parts[n], 1.0)
            assert metrics[n] == {name: pytest.approx(value, rel=1e-9, abs=1e-9) for name, value in expected.items()}
            assert_acts_the_same(stack, n, alone[n], update, noise)
    for n in {0, 1, 2} - {SICK}:
        assert_same_state(stack.agents[n], alone[n])


def test_an_mpo_agent_skips_what_is_no_number_and_goes_on_afterwards() -> None:
    alone = made(MPO_AGENTS)
    stack = Stack(made(MPO_AGENTS), "off", 30)
    sick = stack.agents[SICK]
    for update in range(30):
        parts = recorded(update)
        if 10 <= update < 20:
            parts[SICK] = spoiled(parts[SICK], torch.nan)
        before = [leaf.clone() for leaf in leaves({**sick.state, "counters": {}})]
        metrics = learn(stack, MPO_AGENTS, parts)
        for agent, rows in zip(alone, parts, strict=True):
            agent.update(batch(agent, rows))
        if 10 <= update < 20:
            assert metrics[SICK] == {}
            assert all(map(torch.equal, leaves({**sick.state, "counters": {}}), before))
        assert all(metrics[n] for n in range(3) if n != SICK or not 10 <= update < 20)
    assert [agent.skipped for agent in stack.agents] == [0, 10, 0]
    assert [int(agent.state["counters"]["updates"]) for agent in stack.agents] == [30, 20, 30]
    for agent, other in zip(stack.agents, alone, strict=True):
        assert_same_state(agent, other)


# --- what the agents own ----------------------------------------------------------------------------------------


@ALGORITHMS
def test_the_agents_are_views_of_the_stack(algorithm: Algorithm) -> None:
    """Their states and their modules alike, and both ways round."""
    agents = made(algorithm)
    obs = torch.randn(4, OBS, generator=torch.Generator().manual_seed(0))
    before = [agent.policy_action(obs) for agent in agents]
    stack = Stack(agents, "off", 1)
    assert all(torch.equal(agent.policy_action(obs), then) for agent, then in zip(agents, before, strict=True))
    for n, agent in enumerate(agents):
        places = zip(leaves(agent.state), leaves(stack.state), strict=True)
        assert all(own.data_ptr() == whole[n].data_ptr() for own, whole in places)
    learn(stack, algorithm, recorded(0))
    after = [agent.policy_action(obs) for agent in agents]
    assert all((now - then).abs().max() > 1e-5 for now, then in zip(after, before, strict=True))
    stack.state[algorithm.vector][0].zero_()
    assert agents[0].policy_action(obs).abs().max() == 0
    assert all(torch.equal(agent.policy_action(obs), then) for agent, then in zip(agents[1:], after[1:], strict=True))


@VARIANTS
def test_an_agent_saved_from_a_stack_goes_on_alone(algorithm: Algorithm, settings: dict[str, Any]) -> None:
    stack = Stack(made(algorithm, **settings), "off", 10)
    for update in range(5):
        learn(stack, algorithm, recorded(update))
    resumed = [algorithm.make(seed + 90, **{**algorithm.numbers[seed], **settings}) for seed in range(3)]
    obs = torch.randn(4, OBS, generator=torch.Generator().manual_seed(0))
    for agent, fresh in zip(stack.agents, resumed, strict=True):
        fresh.load_state_dict(copy.deepcopy(agent.state_dict()))
        torch.testing.assert_close(fresh.policy_action(obs), agent.policy_action(obs), rtol=0, atol=0)
    for update in range(5, 10):
        parts = recorded(update)
        learn(stack, algorithm, parts)
        for fresh, rows in zip(resumed, parts, strict=True):
            algorithm.learn(fresh, rows, 1.0)
    noise = stack.draw_actions((ENVS,))
    for n, fresh in enumerate(resumed):
        assert_same_state(stack.agents[n], fresh)
        assert_acts_the_same(stack, n, fresh, 0, noise)


@ALGORITHMS
def test_a_state_loaded_into_a_stacked_agent_is_what_the_stack_goes_on_with(algorithm: Algorithm) -> None:
    saved = made(algorithm)
    for n, agent in enumerate(saved):
        algorithm.learn(agent, rollout(n), 1.0)
    stack = Stack(made(algorithm), "off", 2)
    for agent, other in zip(stack.agents, saved, strict=True):
        agent.load_state_dict(copy.deepcopy(other.state_dict()))
    parts = recorded(1)
    learn(stack, algorithm, parts)
    for n, agent in enumerate(saved):
        algorithm.learn(agent, parts[n], 1.0)
        assert_same_state(stack.agents[n], agent)


@ALGORITHMS
def test_a_stack_of_one_moves_nothing(algorithm: Algorithm) -> None:
    agent, alone = (algorithm.make(0, **algorithm.numbers[0]) for _ in range(2))
    state, tensors = agent.state, leaves(agent.state)
    stack = Stack([agent], "off", 3)
    for update in range(3):
        (metrics,) = learn(stack, algorithm, recorded(update)[:1])
        assert metrics == algorithm.learn(alone, recorded(update)[0], 1.0)
    assert stack.state is state
    assert agent.state is state
    assert all(now is then for now, then in zip(leaves(agent.state), tensors, strict=True))
    for mine, theirs in zip(tensors, leaves(alone.state), strict=True):
        assert torch.equal(mine, theirs)
    noise = stack.draw_actions((ENVS,))
    assert noise.shape == (ENVS, ACT)
    assert_acts_the_same(stack, 0, alone, 0, noise)


# --- each by its own measure ------------------------------------------------------------------------------------


@ALGORITHMS
def test_gradients_are_clipped_for_each_agent_alone(algorithm: Algorithm) -> None:
    """Plain SGD at rate 1 on one minibatch: a step is as long as the bound, where the gradient is longer."""
    plain = {"optimizer_type": "sgd", "sgd_momentum": 0.0, "policy_lr": 1.0, **algorithm.one_step}
    bounds = (1e-2, 1e-5, float("inf"))
    agents = [algorithm.make(seed, **plain, max_grad_norm=bound) for seed, bound in enumerate(bounds)]
    free = algorithm.make(2, **plain, max_grad_norm=float("inf"))
    stack = Stack(agents, "off", 1)
    before = stack.state[algorithm.vector].clone(), free.state[algorithm.vector].clone()
    learn(stack, algorithm, recorded(0))
    algorithm.learn(free, recorded(0)[2], 1.0)
    moved = (stack.state[algorithm.vector] - before[0]).norm(dim=-1).tolist()
    unclipped = (free.state[algorithm.vector] - before[1]).norm().item()
    assert unclipped > 2e-2, "or a bound of the stack could not be told from one's own"
    assert moved == [pytest.approx(1e-2, rel=1e-3), pytest.approx(1e-5, rel=1e-2), pytest.approx(unclipped, rel=1e-9)]


def test_ppo_stops_each_agent_at_its_own_kl() -> None:
    """Those that pass their target after the first epoch keep what it gave them; the other takes all epochs."""
    settings = {"update_epochs": 5, "policy_lr": 1e-2}
    agents = [make_ppo(seed, target_kl=target, **settings) for seed, target in enumerate((1e-12, 1e6, 1e-12))]
    stack = Stack(agents, "off", 1)
    orders = [agent.draw_update(rollout(0)) for agent in agents]
    data = stack.stacked(recorded(0))
    with torch.no_grad():
        taken, metrics = stack._functions.updated(stack.state, data, torch.stack(orders), stack.hyper())
    assert taken["moments"]["step"].tolist() == [2, 10, 2]
    for n, epochs in enumerate((1, 5, 1)):
        free = make_ppo(n, target_kl=None, **settings)
        with torch.no_grad():
            expected, said = free.updated(free.state, recorded(0)[n], orders[n][:epochs], free.hyper())
        torch.testing.assert_close(taken["parameters"][n], expected["parameters"], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(metrics["losses/clipfrac"][n], said["losses/clipfrac"], rtol=1e-9, atol=1e-9)


def test_vmpo_moves_each_agents_multipliers_by_its_own_divergence() -> None:
    """A KL above its bound raises a multiplier and one below lets it fall; both start at 1."""
    shared = {"m_steps": 20, "policy_lr": 1e-2, "value_lr": 1e-2}
    settings = [
        {"epsilon_mu": 1e-9, "epsilon_sigma": 10.0, "alpha_lr": 0.1},
        {"epsilon_mu": 10.0, "epsilon_sigma": 1e-9, "alpha_lr": 0.1},
        {"epsilon_mu": 1e-9, "epsilon_sigma": 1e-9, "alpha_lr": 1e-15},
    ]
    agents = [make_vmpo(seed, **shared, **numbers) for seed, numbers in enumerate(settings)]
    learn(Stack(agents, "off", 1), VMPO_AGENTS, recorded(0))
    assert agents[0].alpha_mu > 1.05
    assert agents[0].alpha_sigma < 0.95
    assert agents[1].alpha_mu < 0.95
    assert agents[1].alpha_sigma > 1.05
    start = make_vmpo(2)
    assert (agents[2].alpha_mu, agents[2].alpha_sigma) == pytest.approx((start.alpha_mu, start.alpha_sigma), abs=1e-12)


# --- the axis of agents -----------------------------------------------------------------------------------------


def test_actions_drawn_elsewhere_go_out_agent_by_agent() -> None:
    stack = Stack(made(MPO_AGENTS), "off", 1)
    parts = [agent.sample_uniform((ENVS,)) for agent in stack.agents]
    done = stack.act(torch.zeros(len(parts) * ENVS, OBS), stack.stacked(parts))
    for name in ("actions_raw", "actions_executed", "behaviour_logp"):
        np.testing.assert_array_equal(done[name], torch.cat([part[name] for part in parts]))


@ALGORITHMS
def test_there_is_nothing_to_report_before_the_first_update(algorithm: Algorithm) -> None:
    assert Stack(made(algorithm), "off", 1).metrics() == []


def test_each_agent_reports_its_own_rate() -> None:
    stack = Stack(made(PPO_AGENTS), "off", 1)
    metrics = learn(stack, PPO_AGENTS, recorded(0), remaining=0.5)
    rates = [0.5 * numbers["policy_lr"] for numbers in PPO_AGENTS.numbers]
    assert [row["charts/learning_rate"] for row in metrics] == pytest.approx(rates)
