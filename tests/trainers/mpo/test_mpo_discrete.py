"""MPO on one discrete action: an exact E-step, a value for each choice, one categorical trust region, masks."""

import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

from minerva.compute.tree import leaves
from minerva.errors import ConfigError
from minerva.formulas.lagrange import solved_temperature
from minerva.lab.export.graph import exported
from minerva.loop.stacking import Stack
from minerva.policy import load_policy
from minerva.spec import ActionSpec
from minerva.trainers.mpo.agent import MPOAgent
from minerva.trainers.mpo.config import MPOConfig
from minerva.trainers.mpo.losses import (
    exact_temperature_loss,
    exact_weights,
    exact_weights_kl,
    temperature_loss,
    weights,
    weights_kl,
)
from minerva.trainers.mpo.trainer import MPOTrainer
from minerva.trainers.vmpo.losses import trust_region_kls

OBS, CHOICES, ROWS = 3, 4, 6
SMALL: dict[str, Any] = {
    "policy_layer_sizes": (8, 8),
    "critic_layer_sizes": (8, 8),
    "critic_atoms": 21,
    "batch_size": 16,
    "replay_size": 2_000,
    "update_after": 200,
    "updates_per_step": 0.1,
}


def make_agent(seed: int = 0, masked: bool = False, **settings: Any) -> MPOAgent:
    action = ActionSpec("discrete", counts=(CHOICES,), starts=(0,), dtype="int64", masked=masked)
    config = MPOConfig.from_dict({**SMALL, **settings})
    return MPOAgent.from_config(OBS + action.mask_size, action, config, seed=seed)


def make_batch(rows: int = 2 * ROWS, steps: int = 3, seed: int = 0) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(seed)
    numbers = {"obs": OBS, "next_obs": OBS, "rewards": 1}
    batch = {name: torch.randn(rows, steps, size, generator=source) for name, size in numbers.items()}
    batch["actions"] = torch.randint(CHOICES, (rows, steps, 1), generator=source)
    return {**batch, "dones": torch.zeros(rows, steps, 1)}


def moved(agent: MPOAgent, seed: int = 5) -> MPOAgent:
    """Return the agent with preferences of its own: the first policy has none, and targets equal networks."""
    source = torch.Generator().manual_seed(seed)
    for name in ("policy", "policy_target", "q_target"):
        agent.state[name].add_(
            0.5 * torch.randn(agent.state[name].shape, generator=source, dtype=torch.get_default_dtype())
        )
    return agent


# --- E-step -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("double_precision")
def test_the_exact_e_step_is_that_of_samples_in_the_proportions_of_the_policy() -> None:
    """Of eight samples each choice gets as many as its probability says: the limit of many samples, reached at once."""
    counts = torch.tensor([1, 2, 5])
    values, bound = torch.randn(3, ROWS), torch.tensor(0.07)
    log_prior = torch.log(counts / 8).unsqueeze(-1).expand(3, ROWS)
    samples = values.repeat_interleave(counts, 0)
    for temperature in torch.tensor([0.3, 1.0, 4.0]):
        exact, psi = exact_weights(values, log_prior, temperature), weights(samples, temperature)
        by_choice = torch.stack([part.sum(0) for part in psi.split(counts.tolist())])
        torch.testing.assert_close(exact, by_choice)
        torch.testing.assert_close(exact_weights_kl(exact, log_prior), weights_kl(psi))
        loss = exact_temperature_loss(values, log_prior, temperature, bound)
        torch.testing.assert_close(loss, temperature_loss(samples, temperature, bound))


@pytest.mark.usefixtures("double_precision")
def test_the_derivative_of_the_dual_is_the_bound_minus_the_kl() -> None:
    values, log_prior = torch.randn(CHOICES, ROWS), torch.log_softmax(torch.randn(CHOICES, ROWS), 0)
    temperature = torch.tensor(0.6, requires_grad=True)
    (slope,) = torch.autograd.grad(
        exact_temperature_loss(values, log_prior, temperature, torch.tensor(0.2)), temperature
    )
    kl = exact_weights_kl(exact_weights(values, log_prior, temperature.detach()), log_prior)
    torch.testing.assert_close(slope, 0.2 - kl)


@pytest.mark.usefixtures("double_precision")
def test_two_arms_get_the_weights_and_the_policy_of_the_closed_form() -> None:
    """Arms that pay 0 and 1, from a uniform policy.

    At the bound, log 2 minus the entropy of the weights is the bound. With a multiplier alpha the M-step's minimum is
    the mean of weights and old policy, the latter counted alpha times.
    """
    values, log_prior = torch.tensor([[0.0], [1.0]]), torch.full((2, 1), -math.log(2))
    bound = torch.tensor(0.1)
    eta = solved_temperature(lambda t: exact_weights_kl(exact_weights(values, log_prior, t), log_prior), bound)
    psi = exact_weights(values, log_prior, eta)
    assert math.log(2) - Categorical(probs=psi.T).entropy().item() == pytest.approx(0.1, rel=1e-6)
    assert psi[1].item() == pytest.approx(1 / (1 + math.exp(-1 / eta.item())))

    config = MPOConfig.from_dict({**SMALL, "policy_lr": 0.03, "max_grad_norm": float("inf")})
    agent = MPOAgent.from_config(OBS, ActionSpec.discrete(2), config)
    obs, alpha = torch.ones(1, OBS), 0.5
    old, actions, prior = agent.evaluated.all_choices(agent.state, obs)
    torch.testing.assert_close(prior, log_prior)
    samples = {"old": old, "actions": actions, "q": values, "log_prior": prior, "weights": psi, "obs": obs}
    state = agent.state
    for _ in range(300):
        state, _ = agent.improved.m_step(state, samples, {"choice": torch.tensor([alpha])}, agent.hyper())
    found = torch.softmax(agent.policy_function.params(state["policy"], obs)["logits"], -1)[0]
    torch.testing.assert_close(found, (psi[:, 0] + alpha * 0.5) / (1 + alpha), rtol=1e-3, atol=0)


# --- M-step and trust region ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("double_precision")
def test_the_gradient_of_the_policy_is_that_of_torchs_divergences() -> None:
    """Fitting weights is falling towards them: the gradient of KL(weights || policy) + alpha KL(old || policy)."""
    agent = moved(make_agent())
    obs, multipliers = torch.randn(ROWS, OBS), {"choice": torch.tensor([0.7])}
    old, actions, log_prior = agent.evaluated.all_choices(agent.state, obs)
    psi = torch.softmax(torch.randn(CHOICES, ROWS), 0)
    samples = {"old": old, "actions": actions, "log_prior": log_prior, "weights": psi, "obs": obs}
    vector = agent.state["policy"].clone().requires_grad_()
    loss, metrics = agent.improved.policy_loss(vector, samples, multipliers, agent.hyper())
    (grads,) = torch.autograd.grad(loss, vector)

    new = Categorical(logits=agent.policy(obs)[0])
    kl = kl_divergence(Categorical(logits=old["logits"]), new).mean()
    other = kl_divergence(Categorical(probs=psi.T), new).mean() + 0.7 * kl
    wanted = torch.autograd.grad(other, list(agent.policy.parameters()))
    torch.testing.assert_close(grads, torch.cat([part.flatten() for part in wanted]))
    torch.testing.assert_close(metrics["kl/choice"], kl.detach())
    torch.testing.assert_close(metrics["health/kl_choice"], kl.detach() / 0.01)


@pytest.mark.usefixtures("double_precision")
def test_the_trust_region_is_v_mpos() -> None:
    agent = moved(make_agent())
    obs = torch.randn(ROWS, OBS)
    new, old = (agent.policy_function.params(agent.state[name], obs) for name in ("policy", "policy_target"))
    mine = agent.improved.kls(new, {"old": old})
    of_vmpo, _ = trust_region_kls(agent.distribution.kls(old, new), torch.ones(ROWS), torch.tensor(float(ROWS)))
    torch.testing.assert_close(mine["choice"], of_vmpo)
    assert agent.improved.duals(agent.state["duals"], None).multipliers["choice"].shape == (1,)
    assert not hasattr(agent.duals, "raw_penalty_temperature")


# --- policy evaluation ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("critic", ["scalar", "categorical", "hl_gauss"])
@pytest.mark.parametrize("retrace", [False, True])
def test_a_target_bootstraps_from_the_expected_value_of_all_choices(critic: str, retrace: bool) -> None:
    """One step; nothing of a distribution is cut at the ends of its range, so that its mean is the target's."""
    targets = {"use_retrace": True, "retrace_steps": 2, "retrace_lambda": 0.0} if retrace else {}
    settings = {"critic": critic, "critics": 1, "critic_range": 40.0, "critic_atoms": 2001, "n_step": 1, "gamma": 0.5}
    agent = moved(make_agent(normalize_observations=False, **settings, **targets))
    batch = make_batch(steps=2 if retrace else 1)
    if retrace:
        batch |= {"actions_raw": batch["actions"], "behaviour_logp": torch.zeros(2 * ROWS, 2, 1)}
    rows = agent.prepared(batch)
    target, samples = agent.evaluated.targets(agent.state, rows, agent.draw_update(rows), agent.hyper())
    found = target if critic == "scalar" else (target * agent.evaluated.head.atoms).sum(-1)

    next_obs = batch["next_obs"][:, 0]
    values = agent.evaluated.head.decoded(agent.q_target(next_obs))
    likely = Categorical(logits=agent.policy_target(next_obs)[0]).probs
    torch.testing.assert_close(found, batch["rewards"][:, 0, 0] + 0.5 * (likely * values).sum(-1), rtol=1e-6, atol=1e-6)
    assert samples["q"].shape == (CHOICES, ROWS)
    torch.testing.assert_close(samples["q"].T, agent.evaluated.head.decoded(agent.q_target(batch["obs"][ROWS:, 0])))


def test_only_the_value_of_the_choice_that_was_made_is_learned() -> None:
    agent = make_agent(critic="scalar", critics=1, weight_decay=0.0)
    obs, actions, target = torch.randn(ROWS, OBS), torch.full((ROWS, 1), 2.0), torch.randn(ROWS)
    vector = agent.state["q"].clone().requires_grad_()
    loss, _ = agent.evaluated.loss(vector, obs, actions, target)
    (grads,) = torch.autograd.grad(loss, vector)
    head = agent.flats["q"].by_name(grads)["head.bias"]
    assert head[2] != 0
    assert head[[0, 1, 3]].eq(0).all()
    torch.testing.assert_close(loss, ((agent.q(obs)[:, 2, 0] - target) ** 2).mean())


def test_impossible_choices_have_no_weight_and_every_number_is_finite() -> None:
    agent = make_agent(masked=True)
    mask = torch.tensor([1.0, 0.0, 1.0, 0.0]).expand(2 * ROWS, 3, CHOICES)
    batch = make_batch()
    batch |= {name: torch.cat((batch[name], mask), -1) for name in ("obs", "next_obs")}
    agent.see(batch["obs"].flatten(0, 1))
    assert agent.state["normalizer"]["mean"].shape == (OBS,)
    rows = agent.prepared(batch)
    seen = {**rows, **{name: agent.normalized(agent.state, rows[name]) for name in ("obs", "next_obs")}}
    assert torch.equal(seen["obs"][..., OBS:], rows["obs"][..., OBS:])
    _, samples = agent.evaluated.targets(agent.state, seen, {}, agent.hyper())
    torch.testing.assert_close(samples["log_prior"].exp()[:, 0], torch.tensor([0.5, 0.0, 0.5, 0.0]))
    psi, metrics = agent.improved.e_step(
        samples, agent.improved.duals(agent.state["duals"], None).temperatures, agent.hyper()
    )
    assert psi[[1, 3]].eq(0).all()
    assert math.isfinite(metrics["kl/q_pi"])
    reported = agent.update(batch)
    assert reported is not None
    assert all(map(math.isfinite, reported.values()))
    uniform = agent.sample_uniform((200,))
    acted = agent.acted(agent.state, batch["obs"][0, 0].expand(200, -1), uniform)
    assert set(acted["actions_executed"].flatten().tolist()) == {0, 2}


# --- the whole ------------------------------------------------------------------------------------------------------


def test_the_first_policy_is_uniform_and_the_best_of_several_arms_is_found() -> None:
    """Episodes of one step; the arm that is the number of the largest observation pays."""
    agent = make_agent(n_step=1, policy_lr=3e-3, q_lr=3e-3, target_networks_update_period=10, kl_epsilon=0.5)
    source = torch.Generator().manual_seed(0)
    for _ in range(150):
        obs = torch.randn(32, OBS, generator=source)
        actions = torch.randint(CHOICES, (32, 1), generator=source)
        rewards = (actions.squeeze(-1) == obs.argmax(-1)).float()
        agent.update({"obs": obs, "next_obs": obs, "actions": actions, "rewards": rewards, "dones": torch.ones(32)})
    obs = torch.randn(200, OBS, generator=source)
    assert (agent.act(obs, deterministic=True).squeeze(-1) == obs.argmax(-1)).float().mean() > 0.85
    first = make_agent().policy(obs)[0]
    assert torch.equal(first, torch.zeros_like(first))


def test_stacked_agents_learn_and_act_as_each_does_alone() -> None:
    alone, together = ([make_agent(seed) for seed in (1, 2)] for _ in range(2))
    batches = [make_batch(seed=seed) for seed in (1, 2)]
    for agent, batch in zip(alone, batches, strict=True):
        agent.update(batch)
    stack = Stack(together, "off", 1)
    prepared = [agent.prepared(batch) for agent, batch in zip(together, batches, strict=True)]
    stack.learn({name: torch.stack([rows[name] for rows in prepared]) for name in prepared[0]}, stack.hyper())
    for agent, other in zip(alone, together, strict=True):
        for mine, others in zip(leaves(agent.state), leaves(other.state), strict=True):
            torch.testing.assert_close(mine, others, rtol=1e-4, atol=1e-5)
    obs, noise = torch.randn(8, OBS), torch.stack([agent.draw_actions((4,)) for agent in together])
    acted = stack.act(obs, noise)["actions_executed"]
    for n, agent in enumerate(together):
        rows = slice(4 * n, 4 * n + 4)
        assert torch.equal(acted[rows].long(), agent.acted(agent.state, obs[rows], noise[n])["actions_executed"])


def test_a_run_is_stored_as_integers_resumed_exactly_loaded_and_exported(tmp_path: Path) -> None:
    quiet = {"quiet": True, "eval_episodes": 2, "compile": "off", "eval_every": 200}

    def trainer() -> MPOTrainer:
        return MPOTrainer("CartPole-v1", 3, "cpu", engine="gymnasium", **SMALL)

    whole, first, second = trainer(), trainer(), trainer()
    assert whole.replay.columns[torch.int64] == {"actions_executed": 1}
    whole.train(800, out_dir=tmp_path / "whole", **quiet)
    stop = lambda step, metrics, trainer: step >= 400  # noqa: E731
    first.train(800, out_dir=tmp_path / "parts", callbacks=[stop], **quiet)
    assert not torch.equal(first.agent.state["policy"], whole.agent.state["policy"])
    second.train(800, out_dir=tmp_path / "parts", **quiet)
    for mine, others in zip(leaves(whole.agent.state), leaves(second.agent.state), strict=True):
        assert torch.equal(mine, others)
    assert set(whole.replay.sample(100)["actions_executed"].flatten().tolist()) == {0, 1}

    policy, env = load_policy(tmp_path / "parts", "last"), gym.make("CartPole-v1")
    obs = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    batch = policy.act(obs)
    assert (batch.shape, batch.dtype) == ((64,), np.int64)
    assert all(env.action_space.contains(policy.act(row)) for row in obs[:5])
    session = onnxruntime.InferenceSession(exported(policy).content, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(["actions"], {"observations": obs})[0], batch)


def test_what_the_task_decides_is_said_of_choices() -> None:
    assert set(MPOConfig().derived(0)) == {*("E-step", "scale_rewards", "normalize_observations", "bfloat16_targets")}


def test_several_choices_at_once_are_refused_with_the_algorithms_that_take_them() -> None:
    with pytest.raises(
        ConfigError, match="multi_discrete, and MPOAgent takes continuous or discrete ones: train with PPO"
    ):
        MPOAgent.from_config(OBS, ActionSpec.multi_discrete([2, 3]), MPOConfig())
