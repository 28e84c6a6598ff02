"""Run every line that carries a formula on small data, for `mathdoc check`.

Sizes differ pairwise, so that swapped axes are detected, and values reach both sides of every clip, minimum, maximum
and set. Everything is drawn from the seed, no two
numbers are alike, and each line runs in float64 and in float32 with several seeds.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from minerva.data.normalizers import ACTIVE_MIN, ReturnScale, RewardNorm, RunningNorm, standardized
from minerva.distributions import SquashedGaussian
from minerva.formulas import (
    categorical,
    exploration,
    gaussian,
    horizon,
    lagrange,
    optimizers,
    pink_noise,
    returns,
    statistics,
    trust_region,
)
from minerva.lab.analysis import statistics as analysis
from minerva.spec import ActionSpec
from minerva.trainers.mpo import losses as mpo
from minerva.trainers.mpo.agent import MPOAgent
from minerva.trainers.mpo.config import MPOConfig
from minerva.trainers.mpo.evaluate import CategoricalHead
from minerva.trainers.ppo import losses as ppo
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.config import PPOConfig
from minerva.trainers.sac import losses as sac
from minerva.trainers.sac.agent import SACAgent
from minerva.trainers.vmpo import losses as vmpo
from minerva.trainers.vmpo.agent import VMPOAgent


class Draw:
    """Seeded random numbers, and the sizes of everything: no two alike, and other ones for the next seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.source = torch.Generator().manual_seed(seed)
        self.steps, self.envs, self.batch, self.samples, self.act = (n + seed % 3 for n in (11, 4, 7, 5, 3))
        self.obs, self.atoms, self.rows, self.parameters, self.choices = (n + seed % 3 for n in (6, 13, 17, 19, 8))

    def __call__(self, *shape: int) -> Tensor:
        """Return standard-normal numbers."""
        return torch.randn(*shape, generator=self.source)

    def rand(self, *shape: int) -> Tensor:
        """Return numbers between 0 and 1."""
        return torch.rand(*shape, generator=self.source)

    def between(self, low: float, high: float) -> float:
        """Return a number between two others."""
        return low + (high - low) * float(self.rand(1))

    def number(self, low: float, high: float) -> Tensor:
        """Return such a number as a tensor."""
        return torch.tensor(self.between(low, high))

    def numbers(self, names: str, typical: float = 0.01) -> dict[str, float]:
        """Return a different number for each name, from `typical` to twice that."""
        return {name: self.between(typical, 2 * typical) for name in names.split()}

    def bounds(self) -> tuple[list[float], list[float]]:
        """Return lower and upper bounds of the actions, all different."""
        return (-0.4 - self.rand(self.act)).tolist(), (0.5 + self.rand(self.act)).tolist()


def run(dtype: str, seed: int) -> None:
    """Run every line at least once, in one precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    draw = Draw(seed)
    try:
        for first in (_horizon, _outliers, _pace):  # before the agents, which call these lines often and with less
            first(Draw(seed))
        for exercise in (_gaussian, _lagrange, _trust_region, _optimizers, _returns, _statistics, _categorical):
            exercise(draw)
        _scores(draw)
        for losses in (_mpo, _vmpo, _ppo, _sac):
            losses(draw)
        for agents in (_mpo_agents, _vmpo_agents, _ppo_agents, _sac_agents):
            agents(draw, seed)
        _mpo_choices(draw)
    finally:
        torch.set_default_dtype(before)


# --- formulas/ --------------------------------------------------------------------------------------------------


def _gaussian(draw: Draw) -> None:
    mean, log_std, actions = (
        draw(draw.batch, draw.act),
        0.3 * draw(draw.batch, draw.act),
        draw(draw.samples, draw.batch, draw.act),
    )
    low, high = -1 - draw.rand(draw.act), 1 + draw.rand(draw.act)
    for samples, factor in ((2 * draw.samples - 1, 1.0), (2 * draw.samples, 1.0), (2 * draw.samples, 1e-5)):
        noise = draw(draw.samples, draw.batch, draw.act)
        noise[:, 0, 0] *= factor  # a mean square below the least that is divided by
        gaussian.mirrored(noise, samples)
    gaussian.gaussian_log_prob(mean, log_std, actions)
    gaussian.gaussian_entropy(log_std)
    gaussian.gaussian_kl_mean(mean, draw(draw.batch, draw.act), log_std)
    gaussian.gaussian_kl_std(log_std, log_std + 0.2 * draw(draw.batch, draw.act))
    gaussian.uniform_actions(draw.rand(*actions.shape), low, high)
    executed = gaussian.squashed(actions, low, high)
    executed[0], executed[1] = low, high
    gaussian.unsquashed(executed, low, high)
    gaussian.squash_log_det(actions, low, high)
    SquashedGaussian(low, high).log_prob({"mean": mean, "log_std": log_std}, actions)


def _lagrange(draw: Draw) -> None:
    multipliers = lagrange.positive(draw(draw.act))
    lagrange.inverse_positive(multipliers)
    lagrange.floored(torch.tensor([-30.0, -17.0, 2.0]))
    scores = draw(draw.samples, draw.batch)
    lagrange.solved_temperature(lambda eta: mpo.weights_kl(mpo.weights(scores, eta)), draw.number(0.1, 0.3))


def _trust_region(draw: Draw) -> None:
    multipliers, kls = draw.rand(draw.act) + 0.5, 0.1 * draw.rand(draw.act)
    trust_region.penalties(multipliers, kls)
    trust_region.multiplier_loss(multipliers, kls, draw.number(0.03, 0.07))
    trust_region.multiplier_loss(multipliers, kls, 0.02 + 0.05 * draw.rand(draw.act))
    bounds, violated = 0.04 + 0.02 * draw.rand(6), torch.tensor([-0.01, 0.02, 0.06, 0.3, -0.02, 0.4])
    stretched = torch.tensor([1.0, 1.1, 1.2, 1.3, 1.1e-6, 9e5])
    least = trust_region.least_multipliers(draw.number(5.0, 9.0), bounds, torch.linspace(0.02, 0.3, 6))
    trust_region.scaled_multipliers(stretched, violated, bounds, draw.number(0.6, 0.8), least)
    trust_region.least_multipliers(draw.number(5.0, 9.0), bounds, torch.tensor([0.0, 1e-8, 0.0, 0.1, 0.0, 0.2]))


def _optimizers(draw: Draw) -> None:
    gradient, parameters = draw(draw.parameters), draw(draw.parameters)
    for longest in (0.5, 50.0):
        optimizers.clip_by_norm(gradient, torch.tensor(longest))
    moments = {
        "step": torch.tensor(3.0 + draw.seed % 3),
        "first": draw(draw.parameters),
        "second": draw(draw.parameters) ** 2,
    }
    optimizers.adam(parameters, gradient, moments, draw.number(0.05, 0.2))
    optimizers.adam(parameters, gradient, moments, draw.rand(draw.parameters))
    optimizers.sgd(parameters, gradient, moments, draw.number(0.05, 0.2), draw.between(0.8, 0.95))
    optimizers.decayed(parameters, draw(draw.parameters), 0.3 * draw.rand(draw.parameters), draw.number(0.05, 0.2))


def _returns(draw: Draw) -> None:
    shape = (draw.steps, draw.envs)
    rewards, values, next_values = draw(*shape), draw(*shape), draw(*shape)
    terminated = (draw(*shape) > 1).to(rewards.dtype)
    ended = torch.maximum(terminated, (draw(*shape) > 1).to(rewards.dtype))
    gamma, trace = draw.number(0.85, 0.95), draw.number(0.6, 0.8)
    deltas = returns.td_errors(rewards, values, next_values, terminated, gamma)
    returns.gae(deltas, ended, gamma, trace)
    returns.discounted_returns(rewards, next_values, terminated, ended, gamma)
    returns.n_step_sums(rewards, ended, gamma)
    returns.bootstrapped(rewards[0], draw.rand(draw.envs), next_values[0], terminated[0])
    traces = returns.trace_coefficients(draw(*shape), draw(*shape), trace)
    returns.retrace(values, deltas, traces, ended, gamma)
    one_goes_on = ended.index_fill(1, torch.tensor(0), 0.0)  # else no sum might be carried through
    returns.discounted_sums(rewards, one_goes_on, draw(draw.envs), gamma)
    returns.without_outliers(rewards[:1], torch.tensor(0.0))
    for largest in (0.02, 9.0):
        # above, below and within the limit in every row
        sides = torch.tensor([1.0, -1.0, 0.01, -0.01, 0.02, -0.03])[: draw.envs]
        returns.without_outliers((1 + torch.abs(rewards)) * sides, torch.tensor(largest))
    for largest in (0.4, 9.0):
        returns.largest_return(
            rewards[0], draw(draw.envs), largest * draw.rand(draw.envs), gamma, draw.number(0.96, 0.99)
        )
    for correction in (0, 1):
        returns.normalize(0.1 + 0.5 * draw(draw.rows), correction)
        returns.normalize(draw(1), correction)
    rollout = {"rewards": rewards, "terminated": terminated, "ended": ended}
    for estimator in ("gae", "returns", "dae"):
        returns.advantages_and_returns(estimator, rollout, values, next_values, gamma, trace)
    returns.explained_variance(0.5 * draw(draw.rows), 0.5 * draw(draw.rows))


def _pace(draw: Draw) -> None:
    square = returns.mean_square(0.3 * draw(draw.rows))
    returns.usual_square(square, square * draw.number(2.0, 3.0), draw.number(0.8, 0.95))
    for usual in (0.5, 2.0, 3.7, 4.4, 9.0):  # larger than usual, smaller, and below half of it
        returns.pace(square, usual * square * draw.number(0.97, 1.03))


def _horizon(draw: Draw) -> None:
    # within, below and above the limits, with and without episodes that have terminated, and without any episode
    for steps, truncated, terminated in (
        *((3e4, 70, 0), (4e3, 30, 1), (3e3, 70, 0), (3e4, 30, 40)),
        *((3e5, 70, 0), (300, 0, 0)),
    ):
        counts = (steps + 9 * draw.number(0.0, 1.0), torch.tensor(1.0 * truncated), torch.tensor(1.0 * terminated))
        steps_ahead = horizon.horizon(*counts)
        horizon.discount(steps_ahead)
        horizon.trace(steps_ahead)


def _statistics(draw: Draw) -> None:
    mean, var, count = draw(draw.obs), draw.rand(draw.obs) + 0.5, torch.tensor(23.0 + draw.seed % 3)
    statistics.combine_moments(mean, var, count, draw(draw.rows, draw.obs))
    statistics.active_share(torch.round(2 + draw(draw.rows, draw.obs)) / (3 + draw.seed))
    statistics.effective_samples(draw.rand(draw.samples, draw.batch))
    for update, updates in ((1, 10), (3, 11), (8, 13)):
        statistics.remaining_fraction(update, updates)
    measured = {"mean": draw(draw.obs), "var": draw.rand(draw.obs) + 0.5}
    standardized(measured, 8 * draw(draw.rows, draw.obs), eps=draw.between(0.01, 0.02), clip=draw.between(3, 6))
    norm = RunningNorm(draw.obs)
    norm.update_stats(draw(draw.rows, draw.obs))
    norm(8 * draw(draw.rows, draw.obs))
    rare = RunningNorm(draw.obs, active=True)
    rare.update_stats(draw(draw.rows, draw.obs) * (draw(draw.rows, draw.obs) > 1))
    rare.active[0] = 0.4 * ACTIVE_MIN
    rare(8 * draw(draw.rows, draw.obs))
    scale = ReturnScale(draw.envs, 0.9)
    ReturnScale.scaled(scale.state, 2 * draw(draw.steps, draw.envs))
    small = ReturnScale.followed(scale.state, 0.3 + 0.3 * draw.rand(draw.envs), torch.arange(draw.envs) % 2)
    ReturnScale.scaled(small, 2 * draw(draw.steps, draw.envs))
    scale.state = ReturnScale.followed(scale.state, draw.rand(draw.envs) + 0.2, torch.zeros(draw.envs))
    ReturnScale.scaled(scale.state, 2 * draw(draw.steps, draw.envs))
    reward_norm = RewardNorm(draw.envs, 0.9)
    reward_norm(draw(97, draw.envs), torch.zeros(97, draw.envs))
    outliers = draw(draw.steps, draw.envs)
    outliers[2, 1], outliers[7, 3] = 1e3, -1e3
    reward_norm(outliers, torch.ones(draw.steps, draw.envs))
    RewardNorm(draw.envs, 0.9)(1e-4 * draw(draw.steps, draw.envs), torch.zeros(draw.steps, draw.envs))


def _outliers(draw: Draw) -> None:
    rows = draw(3 * draw.rows, draw.obs)
    rows[2, 1], rows[5, 2] = 1e3, -2e3
    for scale in (0.1, 8.0):
        statistics.within_reach(rows, scale * (1 + draw.rand(draw.obs)))
        statistics.within_reach(rows + 40, 0.1 * scale * (1 + draw.rand(draw.obs)))
    std = draw.rand(draw.obs)
    statistics.within_reach(torch.ones_like(rows), std)
    statistics.within_reach(torch.ones_like(rows), torch.where(std > 0.5, std, 0))
    statistics.within_reach(torch.ones_like(rows), 0.1 * std)


def _categorical(draw: Draw) -> None:
    choices, old = draw(draw.batch, draw.choices), draw(draw.batch, draw.choices)
    taken = categorical.sampled_choices(choices, draw(draw.samples, draw.batch, draw.choices))
    categorical.categorical_log_prob(choices.expand(draw.samples, draw.batch, draw.choices), taken)
    categorical.categorical_entropy(choices)
    categorical.categorical_kl(choices, old)
    categorical.joint(draw(draw.act, draw.batch))
    low, high = -2 - draw.rand(1)[0], 1.5 + draw.rand(1)[0]
    atoms = torch.linspace(float(low), float(high), draw.atoms)
    logits = draw(draw.batch, draw.atoms)
    categorical.expected_value(logits, atoms)
    inner = 0.4 * draw(draw.batch, draw.samples)  # within the atoms: no kink
    categorical.projection(inner, torch.softmax(draw(draw.batch, draw.samples), -1), atoms)
    positions, probabilities = 1.5 * draw(draw.batch, draw.samples), torch.softmax(draw(draw.batch, draw.samples), -1)
    categorical.projection(positions, probabilities, atoms)
    targets = draw(draw.batch)
    targets[1], targets[4] = low - 0.5, high + 0.7
    categorical.gaussian_histogram(targets, atoms)
    sizes, row = (1, draw.samples, draw.batch, draw.atoms), draw(draw.batch)
    CategoricalHead(atoms).td_target(row, draw.rand(draw.batch), (row > 1) * 1.0, draw(*sizes), torch.tensor(True))
    categorical.cross_entropy(logits, torch.softmax(draw(draw.batch, draw.atoms), -1))


def _scores(draw: Draw) -> None:
    """Run what computes with NumPy: the scale of actions, and statistics over runs."""
    low, high = draw.bounds()
    ActionSpec.continuous(low, high).to_environment(1.5 * draw(draw.samples, draw.act).numpy())
    scores, others = ([draw(n).double().numpy() for n in sizes] for sizes in ((draw.rows, 6), (draw.batch, 9)))
    for estimate in (analysis.iqm, lambda tasks: analysis.optimality_gap(tasks, draw.between(0.2, 0.4))):
        estimate(scores)
        estimate(others)
    analysis.performance_profile(scores, draw(draw.choices).numpy())
    analysis.probability_of_improvement(scores, [*others[1:], *others[:1]])
    analysis.interval(draw(draw.rows, draw.act).numpy(), draw.between(0.8, 0.95))


# --- losses -----------------------------------------------------------------------------------------------------


def _mpo(draw: Draw) -> None:
    for components in (3, 4, 6):
        decays = torch.tensor([0.0, *(draw.between(0.2, 0.9) for _ in range(components - 1))])
        size = (components, draw.batch, draw.act)
        pink_noise.pink_noise(pink_noise.next_components(draw(*size), draw(*size), decays.view(-1, 1, 1)))
    for number in (1, draw.act, draw.batch, draw.rows):
        MPOConfig().first_std(number)
    mean, log_std = draw(draw.batch, draw.act), 0.3 * draw(draw.batch, draw.act)
    actions = gaussian.sampled_actions(mean, log_std, draw(draw.samples, draw.batch, draw.act))
    mpo.critic_loss(draw(draw.batch), draw(draw.batch))
    for critics in (2, 4):
        for smaller in (True, False):
            mpo.reduced_values(draw(critics, draw.samples, draw.batch), torch.tensor(smaller))
    mpo.out_of_bounds_scores(2 + torch.abs(actions), -draw.rand(draw.act), draw.rand(draw.act))
    mpo.out_of_bounds_scores(actions, -0.3 - draw.rand(draw.act), 0.4 + draw.rand(draw.act))
    scores, temperature = draw(draw.samples, draw.batch), draw.number(0.6, 0.9)
    psi = mpo.weights(scores, temperature)
    for measured in (mpo.weights_kl, mpo.weights_entropy):
        measured(psi)
    mpo.temperature_loss(scores, temperature, draw.number(0.05, 0.2))
    mpo.weighted_nll(psi, gaussian.gaussian_log_prob(mean, log_std, actions))
    mpo.mean_over_states(draw.rand(draw.batch, draw.act))
    floor, above = torch.full((draw.act,), 0.9 * mpo.MULTIPLIER_FLOOR), 1 + draw.rand(draw.act)
    bound, mixed = draw.number(0.05, 0.2), torch.where(torch.arange(draw.act) % 2 > 0, floor, above)
    for size in (0, 2):  # below the bound and above it
        mpo.dual_residual(bound * (size + draw.rand(draw.act)), bound, floor)
    mpo.dual_residual(draw.rand(draw.act), bound, mixed)
    mpo.dual_residual(bound * draw.rand(draw.act), bound, above)


def _mpo_choices(draw: Draw) -> None:
    values, log_prior = draw(draw.choices, draw.batch), torch.log_softmax(draw(draw.choices, draw.batch), 0)
    temperature = draw.number(0.6, 0.9)
    mpo.exact_weights_kl(mpo.exact_weights(values, log_prior, temperature), log_prior)
    mpo.exact_temperature_loss(values, log_prior, temperature, draw.number(0.05, 0.2))
    categorical.expectation(values, log_prior)


def _vmpo(draw: Draw) -> None:
    advantages, restarting = draw(draw.rows), (draw(draw.rows) < 1).to(draw(1).dtype)
    temperature, importance = draw.number(0.5, 0.8), draw.rand(draw.rows) + 0.5
    score = vmpo.scores(advantages, restarting, temperature)
    selected = vmpo.top_rows(score, restarting, 6)
    counted = (draw(draw.rows) > 0) * (0.5 + draw.rand(draw.rows))
    counted[score.argmax()] = 0
    weights, log_total = vmpo.log_partition(score, counted, importance)
    vmpo.temperature_loss(temperature, log_total, counted, draw.number(0.05, 0.2))
    vmpo.weights_kl(weights, score, log_total, counted)
    even = vmpo.even_weights(restarting, importance)
    vmpo.weighted_nll(weights, draw(draw.rows))
    ratio = vmpo.probability_ratio(draw(draw.rows), draw(draw.rows))
    vmpo.centered_nll(draw(draw.rows), draw(draw.rows), draw(draw.rows), ratio)
    vmpo.controlled_nll(weights, even, draw(draw.rows), ratio)
    vmpo.trust_region_kls(
        {"mean": draw.rand(draw.rows, draw.act), "std": draw.rand(draw.rows, draw.act)}, selected, selected.sum()
    )
    vmpo.policy_loss(draw(1)[0], draw.rand(2))
    for share, rows in ((0.5, 17), (0.5, 19), (0.29, 100), (0.3, 9), ((29 - 8e-10) / 100, 100)):
        vmpo.selection_size(share, rows)


def _ppo(draw: Draw) -> None:
    for number in (1, draw.act, draw.batch, draw.rows):
        exploration.first_log_std(number)
    clip_ratio = draw.number(0.15, 0.3)
    ratio_log = ppo.log_ratio(0.4 * draw(draw.rows), 0.4 * draw(draw.rows))
    ratio = torch.exp(ratio_log)
    ppo.clipped_surrogate(ratio, draw(draw.rows), clip_ratio)
    returns.value_loss(draw(draw.rows), draw(draw.rows))
    old_values = draw(draw.rows)
    row = torch.arange(draw.rows)
    change = torch.where(row % 2 > 0, 0.5, 0.1) * torch.where(
        row % 4 > 1, 1.0, -1.0
    )  # no row is near a kink of the loss
    targets = old_values + torch.where(row % 3 > 0, 2.0, -2.0) + 0.1 * draw(draw.rows)
    ppo.clipped_value_loss(old_values + change, old_values, targets, clip_ratio)
    ppo.approximate_kl(ratio, ratio_log)
    ppo.clip_fraction(ratio, clip_ratio)


def _sac(draw: Draw) -> None:
    temperature = sac.positive_temperature(0.3 * draw(1)[0])
    sac.soft_values(draw(draw.batch), draw(draw.batch), draw(draw.batch), temperature)
    sac.critic_loss(draw(draw.batch), draw(draw.batch), draw(draw.batch))
    sac.averaged(draw(draw.parameters), draw(draw.parameters), draw.number(0.1, 0.4))
    sac.policy_loss(draw(draw.batch), draw(draw.batch), draw(draw.batch), temperature)
    sac.temperature_loss(temperature, draw(draw.batch), draw.number(-1.5, -1.1))


# --- whole updates ----------------------------------------------------------------------------------------------


def _rollout(draw: Draw) -> dict[str, Tensor]:
    obs = draw(draw.steps + 1, draw.envs, draw.obs)
    terminated = (draw(draw.steps, draw.envs) > 1.3).to(obs.dtype)
    return {
        "obs": obs[:-1].clone(),
        "actions_raw": draw(draw.steps, draw.envs, draw.act),
        "next_obs": obs[1:].clone(),
        "rewards": draw(draw.steps, draw.envs),
        "terminated": terminated,
        "ended": torch.maximum(terminated, (draw(draw.steps, draw.envs) > 1.3).to(obs.dtype)),
    }


def _mpo_agents(draw: Draw, seed: int) -> None:
    layers = {"policy_layer_sizes": (8,), "critic_layer_sizes": (9,), "action_samples": draw.samples}
    layers |= draw.numbers("kl_epsilon temperature_lr epsilon_penalty mstep_kl_epsilon mstep_kl_epsilon_std lambda_lr")
    layers |= draw.numbers("policy_lr q_lr", 1e-4) | draw.numbers("gamma retrace_lambda", 0.4)
    flat = {
        "obs": draw.obs,
        "actions_exec": draw.act,
        "actions_raw": draw.act,
        "rewards": 1,
        "next_obs": draw.obs,
        "behaviour_logp": 1,
    }
    for steps, settings in (
        (1, {"m_steps": 2, "critics": 2}),
        (4, {"use_retrace": True, "retrace_steps": 4, "retrace_mc_actions": 9 + draw.samples}),
    ):
        agent = MPOAgent(draw.obs, draw.act, *draw.bounds(), "cpu", seed=seed, **layers, **settings)
        batch = {name: draw(draw.batch, steps, size) for name, size in flat.items()}
        batch["dones"] = (draw(draw.batch, steps, 1) > 1).to(batch["obs"].dtype)
        if steps == 1:
            batch = {name: values.squeeze(1) for name, values in batch.items() if name not in _SEQUENCE_FIELDS}
        agent.update(batch)
        agent.update(batch)
        agent.sample_uniform((draw.batch,))


_SEQUENCE_FIELDS = ("actions_raw", "behaviour_logp")


def _vmpo_agents(draw: Draw, seed: int) -> None:
    layers: dict[str, Any] = {"policy_layer_sizes": (8,), "value_layer_sizes": (9,)}
    layers |= draw.numbers("epsilon_eta temperature_lr epsilon_mu epsilon_sigma alpha_lr") | draw.numbers("gamma", 0.4)
    layers |= draw.numbers("policy_lr value_lr", 1e-4)
    for estimator, m_steps, rows in (("returns", 1, 0), ("gae", 2, draw.steps * draw.envs // 2), ("dae", 3, 0)):
        settings = {"advantage_estimator": estimator, "m_steps": m_steps, "minibatch_size": rows}
        agent = VMPOAgent(draw.obs, draw.act, None, None, "cpu", seed=seed, **layers, **settings)
        agent.learn(_rollout(draw), remaining=draw.between(0.5, 0.9))
        agent.config = replace(agent.config, anneal_lr=True, anneal_bounds=True)
        for remaining in (draw.between(0.5, 0.9), draw.between(0.004, 0.006)):
            agent.hyper(remaining)
        agent.update(_weighted_rows(draw))


def _weighted_rows(draw: Draw) -> dict[str, Tensor]:
    """Return a batch in which some rows restart an episode and others have weight one half."""
    restarting = torch.ones(draw.rows)
    restarting[::4], restarting[1::4] = 0.0, 0.5
    rows = {
        "obs": draw.obs,
        "actions_raw": draw.act,
        "old_means": draw.act,
        "old_log_stds": draw.act,
        "returns": 1,
        "advantages": 1,
    }
    batch = {name: 0.5 * draw(draw.rows, size) for name, size in rows.items()}
    return {**batch, "restarting_weights": restarting, "importance_weights": draw.rand(draw.rows) + 0.5}


def _ppo_agents(draw: Draw, seed: int) -> None:
    shape = {"policy_layer_sizes": (8,), "critic_layer_sizes": (9,), "num_envs": draw.envs, "rollout_steps": draw.steps}
    for estimator in ("gae", "returns"):
        settings = {"minibatch_size": draw.steps * draw.envs // 2, "update_epochs": 2, "advantage_estimator": estimator}
        settings["target_kl"] = draw.between(1, 2) * (1e-12 if estimator == "gae" else 1)
        settings |= draw.numbers("clip_ratio ent_coef vf_coef gamma gae_lambda", 0.1) | draw.numbers("policy_lr", 1e-4)
        agent = PPOAgent(draw.obs, draw.act, config=PPOConfig.from_dict({**shape, **settings}), seed=seed)
        agent.update(_rollout(draw), remaining=draw.between(0.6, 0.9))


def _sac_agents(draw: Draw, seed: int) -> None:
    layers, sizes = {"policy_layer_sizes": (8,), "critic_layer_sizes": (9,)}, {"rewards": 1, "next_obs": draw.obs}
    layers |= draw.numbers("gamma", 0.4) | draw.numbers("policy_lr q_lr temperature_lr", 1e-4)
    for settings in ({}, {"critic": "hl_gauss", "critic_atoms": draw.atoms, "weight_decay": 0.1}):
        agent = SACAgent(draw.obs, draw.act, seed=seed, **layers, **settings)
        batch = {name: draw(draw.batch, size) for name, size in {"obs": draw.obs, "actions": draw.act, **sizes}.items()}
        agent.update({**batch, "dones": (draw(draw.batch, 1) > 1).to(batch["obs"].dtype)})
