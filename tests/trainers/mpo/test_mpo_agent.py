"""MPO's agent around its update: acting, what its arguments do, and its state put aside and taken up again."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import same
from torch import Tensor
from trees import leaves

from minerva.config import LOOP
from minerva.errors import ConfigError
from minerva.formulas.lagrange import FLOOR, positive
from minerva.trainers.mpo.agent import MPOAgent
from minerva.trainers.mpo.config import MPOConfig

MakeAgent = Callable[..., MPOAgent]
MakeBatch = Callable[..., dict[str, Tensor]]


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
    raw, logp = done["actions_raw"], done["behaviour_logp"]
    assert torch.equal(done["actions_executed"], raw)
    torch.testing.assert_close(raw.amin(0), torch.tensor([-0.5, -1.0]), rtol=0, atol=0.01)
    torch.testing.assert_close(raw.amax(0), torch.tensor([0.6, 1.2]), rtol=0, atol=0.01)
    torch.testing.assert_close(logp.exp() * 1.1 * 2.2, torch.ones(4000, 1))


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


@pytest.mark.parametrize("name", MPOConfig.fields_with(LOOP))
def test_what_only_the_loop_knows_is_refused(make_agent: MakeAgent, name: str) -> None:
    with pytest.raises(ConfigError, match="setting of MPOTrainer"):
        make_agent(**{name: 1})


def test_unknown_arguments_are_refused_with_the_nearest(make_agent: MakeAgent) -> None:
    with pytest.raises(ConfigError, match="Did you mean kl_epsilon"):
        make_agent(kl_epsilom=0.1)


# --- checkpoints ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": "solved", "critic": "categorical"}, {"optimizer_type": "sgd"}], ids=str
)
def test_a_restored_agent_goes_on_bit_for_bit(
    make_agent: MakeAgent, make_batch: MakeBatch, settings: dict[str, Any]
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
