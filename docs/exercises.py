"""Run every line that carries a formula on small data, for `mathdoc check`.

Sizes differ pairwise, so that swapped axes are detected, and values reach both sides of every clip, minimum, maximum
and set. Each line runs in float64 and in float32, with several seeds.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from minerva.data.normalizers import ACTIVE_MIN, ReturnScale, RewardNorm, RunningNorm
from minerva.formulas import categorical, gaussian, lagrange, optimizers, returns, statistics, trust_region
from minerva.trainers.mpo import losses as mpo
from minerva.trainers.mpo.agent import MPOAgent
from minerva.trainers.mpo.config import MPOConfig
from minerva.trainers.ppo import losses as ppo
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.config import PPOConfig
from minerva.trainers.sac import losses as sac
from minerva.trainers.sac.agent import SACAgent
from minerva.trainers.vmpo import losses as vmpo
from minerva.trainers.vmpo.agent import VMPOAgent

STEPS, ENVS, BATCH, SAMPLES, ACT, OBS, ATOMS, ROWS, PARAMETERS, CHOICES = 11, 4, 7, 5, 3, 6, 13, 17, 19, 8

Normal = Callable[..., Tensor]


def run(dtype: str, seed: int) -> None:
    """Run every line at least once, in one precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    source = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source)

    try:
        for exercise in (_gaussian, _lagrange, _trust_region, _optimizers, _returns, _statistics, _categorical):
            exercise(normal)
        for losses in (_mpo, _vmpo, _ppo, _sac):
            losses(normal)
        _mpo_agents(normal, seed)
        _vmpo_agents(normal, seed)
        _ppo_agents(normal, seed)
        _sac_agents(normal, seed)
    finally:
        torch.set_default_dtype(before)


# --- formulas/ --------------------------------------------------------------------------------------------------


def _gaussian(normal: Normal) -> None:
    mean, log_std, actions = normal(BATCH, ACT), 0.3 * normal(BATCH, ACT), normal(SAMPLES, BATCH, ACT)
    low, high = -1 - torch.rand(ACT), 1 + torch.rand(ACT)
    gaussian.mirrored(normal(SAMPLES, BATCH, ACT), 2 * SAMPLES)
    gaussian.gaussian_log_prob(mean, log_std, actions)
    gaussian.gaussian_entropy(log_std)
    gaussian.gaussian_kl_mean(mean, normal(BATCH, ACT), log_std)
    gaussian.gaussian_kl_std(log_std, log_std + 0.2 * normal(BATCH, ACT))
    gaussian.uniform_actions(torch.rand_like(actions), low, high)
    executed = gaussian.squashed(actions, low, high)
    executed[0], executed[1] = low, high
    gaussian.unsquashed(executed, low, high)
    gaussian.squash_log_det(actions, low, high)


def _lagrange(normal: Normal) -> None:
    multipliers = lagrange.positive(normal(ACT))
    lagrange.inverse_positive(multipliers)
    lagrange.floored(torch.tensor([-30.0, -17.0, 2.0]))


def _trust_region(normal: Normal) -> None:
    multipliers, kls = torch.rand(ACT) + 0.5, 0.1 * torch.rand(ACT)
    trust_region.penalties(multipliers, kls)
    trust_region.multiplier_loss(multipliers, kls, torch.tensor(0.05))
    trust_region.multiplier_loss(multipliers, kls, 0.02 + 0.05 * torch.rand(ACT))
    bounds, violated = torch.full((6,), 0.05), torch.tensor([-0.01, 0.02, 0.06, 0.3, -0.02, 0.4])
    stretched = torch.tensor([1.0, 1.1, 1.2, 1.3, 1.1e-6, 9e5])
    trust_region.scaled_multipliers(stretched, violated, bounds, torch.tensor(0.7))


def _optimizers(normal: Normal) -> None:
    gradient, parameters = normal(PARAMETERS), normal(PARAMETERS)
    for longest in (0.5, 50.0):
        optimizers.clip_by_norm(gradient, torch.tensor(longest))
    moments = {"step": torch.tensor(3.0), "first": normal(PARAMETERS), "second": normal(PARAMETERS) ** 2}
    optimizers.adam(parameters, gradient, moments, torch.tensor(0.1))
    optimizers.adam(parameters, gradient, moments, torch.rand(PARAMETERS))
    optimizers.sgd(parameters, gradient, moments, torch.tensor(0.1), 0.9)
    optimizers.decayed(parameters, normal(PARAMETERS), 0.3 * torch.rand(PARAMETERS), torch.tensor(0.1))


def _returns(normal: Normal) -> None:
    shape = (STEPS, ENVS)
    rewards, values, next_values = normal(*shape), normal(*shape), normal(*shape)
    terminated = (normal(*shape) > 1).to(rewards.dtype)
    ended = torch.maximum(terminated, (normal(*shape) > 1).to(rewards.dtype))
    gamma, trace = torch.tensor(0.9), torch.tensor(0.8)
    deltas = returns.td_errors(rewards, values, next_values, terminated, gamma)
    returns.gae(deltas, ended, gamma, trace)
    returns.discounted_returns(rewards, next_values, terminated, ended, gamma)
    returns.n_step_sums(rewards, ended, gamma)
    returns.bootstrapped(rewards[0], torch.rand(ENVS), next_values[0], terminated[0])
    traces = returns.trace_coefficients(normal(*shape), normal(*shape), trace)
    returns.retrace(values, deltas, traces, ended, gamma)
    returns.discounted_sums(rewards, ended, normal(ENVS), gamma)
    for largest in (0.02, 9.0):
        sides = torch.tensor([1.0, -1.0, 0.01, -0.01])  # above, below and within the limit in every row
        returns.without_outliers((1 + torch.abs(rewards)) * sides, torch.tensor(largest))
    for largest in (0.4, 9.0):
        returns.largest_return(rewards[0], normal(ENVS), largest * torch.rand(ENVS), gamma, torch.tensor(0.95))
    for correction in (0, 1):
        returns.normalize(0.1 + 0.5 * normal(ROWS), correction)
    rollout = {"rewards": rewards, "terminated": terminated, "ended": ended}
    for estimator in ("gae", "returns", "dae"):
        returns.advantages_and_returns(estimator, rollout, values, next_values, gamma, trace)
    returns.explained_variance(0.5 * normal(ROWS), 0.5 * normal(ROWS))


def _statistics(normal: Normal) -> None:
    mean, var, count = normal(OBS), torch.rand(OBS) + 0.5, torch.tensor(23.0)
    statistics.combine_moments(mean, var, count, normal(ROWS, OBS))
    statistics.effective_samples(torch.rand(SAMPLES, BATCH))
    for update in (1, 3, 8):
        statistics.remaining_fraction(update, 10)
    norm = RunningNorm(OBS)
    norm.update_stats(normal(ROWS, OBS))
    norm(8 * normal(ROWS, OBS))
    rare = RunningNorm(OBS, active=True)
    rare.update_stats(normal(ROWS, OBS) * (normal(ROWS, OBS) > 1))
    rare.active[0] = 0.4 * ACTIVE_MIN
    rare(8 * normal(ROWS, OBS))
    scale = ReturnScale(ENVS, 0.9)
    scale.state = ReturnScale.followed(scale.state, torch.rand(ENVS) + 0.2, torch.zeros(ENVS))
    ReturnScale.scaled(scale.state, 2 * normal(STEPS, ENVS))
    reward_norm = RewardNorm(ENVS, 0.9)
    reward_norm(normal(97, ENVS), torch.zeros(97, ENVS))
    outliers = normal(STEPS, ENVS)
    outliers[2, 1], outliers[7, 3] = 1e3, -1e3
    reward_norm(outliers, torch.ones(STEPS, ENVS))
    RewardNorm(ENVS, 0.9)(1e-4 * normal(STEPS, ENVS), torch.zeros(STEPS, ENVS))


def _categorical(normal: Normal) -> None:
    choices, old = normal(BATCH, CHOICES), normal(BATCH, CHOICES)
    taken = categorical.sampled_choices(choices, normal(SAMPLES, BATCH, CHOICES))
    categorical.categorical_log_prob(choices.expand(SAMPLES, BATCH, CHOICES), taken)
    categorical.categorical_entropy(choices)
    categorical.categorical_kl(choices, old)
    categorical.joint(normal(ACT, BATCH))
    atoms = torch.linspace(-2, 2, ATOMS)
    logits = normal(BATCH, ATOMS)
    categorical.expected_value(logits, atoms)
    positions, probabilities = 1.5 * normal(BATCH, SAMPLES), torch.softmax(normal(BATCH, SAMPLES), -1)
    categorical.projection(positions, probabilities, atoms)
    targets = normal(BATCH)
    targets[1], targets[4] = -2.5, 2.5
    categorical.gaussian_histogram(targets, atoms)
    categorical.cross_entropy(logits, torch.softmax(normal(BATCH, ATOMS), -1))


# --- losses -----------------------------------------------------------------------------------------------------


def _mpo(normal: Normal) -> None:
    for number in (1, ACT, BATCH, ROWS):
        MPOConfig().first_std(number)
    mean, log_std = normal(BATCH, ACT), 0.3 * normal(BATCH, ACT)
    actions = gaussian.sampled_actions(mean, log_std, normal(SAMPLES, BATCH, ACT))
    mpo.critic_loss(normal(BATCH), normal(BATCH))
    mpo.reduced_values(normal(2, SAMPLES, BATCH), torch.tensor(True))
    mpo.out_of_bounds_scores(actions, torch.tensor([-0.5, -1.0, -0.3]), torch.tensor([0.4, 1.2, 0.9]))
    scores, temperature = normal(SAMPLES, BATCH), torch.tensor(0.7)
    psi = mpo.weights(scores, temperature)
    for measured in (mpo.weights_kl, mpo.weights_entropy):
        measured(psi)
    mpo.temperature_loss(scores, temperature, torch.tensor(0.1))
    mpo.weighted_nll(psi, gaussian.gaussian_log_prob(mean, log_std, actions))
    mpo.mean_over_states(torch.rand(BATCH, ACT))
    mpo.dual_residual(torch.rand(ACT), torch.tensor(0.1), torch.rand(ACT))


def _vmpo(normal: Normal) -> None:
    advantages, restarting = normal(ROWS), (normal(ROWS) < 1).to(normal(1).dtype)
    temperature, importance = torch.tensor(0.6), torch.rand(ROWS) + 0.5
    score = vmpo.scores(advantages, restarting, temperature)
    selected = vmpo.top_rows(score, restarting, 6)
    counted = (normal(ROWS) > 0) * (0.5 + torch.rand(ROWS))
    counted[score.argmax()] = 0
    weights, log_total = vmpo.log_partition(score, counted, importance)
    vmpo.temperature_loss(temperature, log_total, counted, torch.tensor(0.1))
    vmpo.weights_kl(weights, score, log_total, counted)
    vmpo.centered(weights, restarting, importance)
    vmpo.weighted_nll(weights, normal(ROWS))
    vmpo.trust_region_kls({"mean": torch.rand(ROWS, ACT), "std": torch.rand(ROWS, ACT)}, selected, selected.sum())
    vmpo.policy_loss(normal(1)[0], torch.rand(2))
    for share, rows in ((0.5, 17), (0.29, 100), ((29 - 8e-10) / 100, 100)):
        vmpo.selection_size(share, rows)


def _ppo(normal: Normal) -> None:
    clip_ratio = torch.tensor(0.2)
    ratio_log = ppo.log_ratio(0.4 * normal(ROWS), 0.4 * normal(ROWS))
    ratio = torch.exp(ratio_log)
    ppo.clipped_surrogate(ratio, normal(ROWS), clip_ratio)
    returns.value_loss(normal(ROWS), normal(ROWS))
    old_values = normal(ROWS)
    row = torch.arange(ROWS)
    change = torch.where(row % 2 > 0, 0.5, 0.1) * torch.where(
        row % 4 > 1, 1.0, -1.0
    )  # no row is near a kink of the loss
    targets = old_values + torch.where(row % 3 > 0, 2.0, -2.0) + 0.1 * normal(ROWS)
    ppo.clipped_value_loss(old_values + change, old_values, targets, clip_ratio)
    ppo.approximate_kl(ratio, ratio_log)
    ppo.clip_fraction(ratio, clip_ratio)


def _sac(normal: Normal) -> None:
    temperature = sac.positive_temperature(0.3 * normal(1)[0])
    sac.soft_values(normal(BATCH), normal(BATCH), normal(BATCH), temperature)
    sac.critic_loss(normal(BATCH), normal(BATCH), normal(BATCH))
    sac.averaged(normal(PARAMETERS), normal(PARAMETERS), torch.tensor(0.3))
    sac.policy_loss(normal(BATCH), normal(BATCH), normal(BATCH), temperature)
    sac.temperature_loss(temperature, normal(BATCH), torch.tensor(-1.3))


# --- whole updates ----------------------------------------------------------------------------------------------


def _rollout(normal: Normal) -> dict[str, Tensor]:
    obs = normal(STEPS + 1, ENVS, OBS)
    terminated = (normal(STEPS, ENVS) > 1.3).to(obs.dtype)
    return {
        "obs": obs[:-1].clone(),
        "actions_raw": normal(STEPS, ENVS, ACT),
        "next_obs": obs[1:].clone(),
        "rewards": normal(STEPS, ENVS),
        "terminated": terminated,
        "ended": torch.maximum(terminated, (normal(STEPS, ENVS) > 1.3).to(obs.dtype)),
    }


def _mpo_agents(normal: Normal, seed: int) -> None:
    layers = {"policy_layer_sizes": (8,), "critic_layer_sizes": (9,), "action_samples": SAMPLES}
    flat = {"obs": OBS, "actions_exec": ACT, "actions_raw": ACT, "rewards": 1, "next_obs": OBS, "behaviour_logp": 1}
    for steps, settings in (
        (1, {"m_steps": 2, "critics": 2}),
        (4, {"use_retrace": True, "retrace_steps": 4, "retrace_mc_actions": 9}),
    ):
        agent = MPOAgent(OBS, ACT, [-0.5] * ACT, [0.7] * ACT, "cpu", seed=seed, **layers, **settings)
        batch = {name: normal(BATCH, steps, size) for name, size in flat.items()}
        batch["dones"] = (normal(BATCH, steps, 1) > 1).to(batch["obs"].dtype)
        if steps == 1:
            batch = {name: values.squeeze(1) for name, values in batch.items() if name not in _SEQUENCE_FIELDS}
        agent.update(batch)
        agent.update(batch)
        agent.sample_uniform((BATCH,))


_SEQUENCE_FIELDS = ("actions_raw", "behaviour_logp")


def _vmpo_agents(normal: Normal, seed: int) -> None:
    layers: dict[str, Any] = {"policy_layer_sizes": (8,), "value_layer_sizes": (9,)}
    for estimator, m_steps, rows in (("returns", 1, 0), ("gae", 2, 22), ("dae", 3, 0)):
        settings = {"advantage_estimator": estimator, "m_steps": m_steps, "minibatch_size": rows}
        agent = VMPOAgent(OBS, ACT, None, None, "cpu", seed=seed, **layers, **settings)
        agent.learn(_rollout(normal), remaining=math.sqrt(0.5))
        agent.update(_weighted_rows(normal))


def _weighted_rows(normal: Normal) -> dict[str, Tensor]:
    """Return a batch in which some rows restart an episode and others have weight one half."""
    restarting = torch.ones(ROWS)
    restarting[::4], restarting[1::4] = 0.0, 0.5
    rows = {"obs": OBS, "actions_raw": ACT, "old_means": ACT, "old_log_stds": ACT, "returns": 1, "advantages": 1}
    batch = {name: 0.5 * normal(ROWS, size) for name, size in rows.items()}
    return {**batch, "restarting_weights": restarting, "importance_weights": torch.rand(ROWS) + 0.5}


def _ppo_agents(normal: Normal, seed: int) -> None:
    shape = {"policy_layer_sizes": (8,), "critic_layer_sizes": (9,), "num_envs": ENVS, "rollout_steps": STEPS}
    for estimator in ("gae", "returns"):
        settings = {"minibatch_size": 22, "update_epochs": 2, "ent_coef": 0.1, "advantage_estimator": estimator}
        agent = PPOAgent(OBS, ACT, config=PPOConfig.from_dict({**shape, **settings}), seed=seed)
        agent.update(_rollout(normal), remaining=0.7)


def _sac_agents(normal: Normal, seed: int) -> None:
    layers, sizes = {"policy_layer_sizes": (8,), "critic_layer_sizes": (9,)}, {"rewards": 1, "next_obs": OBS}
    for settings in ({}, {"critic": "hl_gauss", "critic_atoms": ATOMS, "weight_decay": 0.1}):
        agent = SACAgent(OBS, ACT, seed=seed, **layers, **settings)
        batch = {name: normal(BATCH, size) for name, size in {"obs": OBS, "actions": ACT, **sizes}.items()}
        agent.update({**batch, "dones": (normal(BATCH, 1) > 1).to(batch["obs"].dtype)})
