"""Policy improvement: weight sampled actions (E-step), update the duals, fit the policy to the weights (M-step)."""

import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn

from minerva.compute.flat import FlatParameters
from minerva.compute.functional import descend
from minerva.compute.optim import Optimizer
from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.tree import Tree
from minerva.distributions import Gaussian
from minerva.formulas.lagrange import FLOOR, floored, positive, solved_temperature, unconstrained
from minerva.formulas.statistics import effective_samples
from minerva.formulas.trust_region import multiplier_loss, penalties
from minerva.networks.bounds import LOG_STD_MIN
from minerva.networks.policies import FunctionalPolicy
from minerva.trainers.mpo.config import MPOConfig
from minerva.trainers.mpo.losses import (
    dual_residual,
    exact_temperature_loss,
    exact_weights,
    exact_weights_kl,
    mean_over_states,
    out_of_bounds_scores,
    temperature_loss,
    weighted_nll,
    weights,
    weights_entropy,
    weights_kl,
)

Rows = dict[str, Tensor]

BOUND_SETTINGS = {"mean": "mstep_kl_epsilon", "std": "mstep_kl_epsilon_std", "choice": "mstep_kl_epsilon"}
"""The config field that bounds each trust region's KL."""
FIRST_MULTIPLIERS = {"mean": "init_log_alpha_mean", "std": "init_log_alpha_stddev", "choice": "init_log_alpha_mean"}
"""The config field with each trust region's initial multiplier."""
MULTIPLIERS = {"mean": "raw_alpha_mean", "std": "raw_alpha_stddev", "choice": "raw_alpha_choice"}
"""The parameter of `DualParameters` that holds each trust region's multipliers."""
TEMPERATURES = ("raw_temperature", "raw_penalty_temperature")
"""The parameters of `DualParameters` that hold the temperatures of `Temperatures`."""


class DualParameters(nn.Module):
    """Unconstrained temperatures and multipliers; no temperatures if these are solved in each update.

    `trust_regions` are a distribution's: the number of multipliers of each.
    """

    def __init__(self, trust_regions: Mapping[str, int], config: MPOConfig) -> None:
        super().__init__()
        if config.temperature == "gradient":
            start = torch.tensor(max(config.temperature_init, FLOOR))
            self.raw_temperature = nn.Parameter(start)
            if config.epsilon_penalty > 0 and "mean" in trust_regions:
                self.raw_penalty_temperature = nn.Parameter(start.clone())
        for region, size in trust_regions.items():
            first = getattr(config, FIRST_MULTIPLIERS[region])
            self.register_parameter(MULTIPLIERS[region], _multipliers(size, first, config.lambda_init))


def _multipliers(size: int, initial: float, factor: float) -> nn.Parameter:
    """Return `size` unconstrained multipliers, whose value is `factor` times that of `initial`."""
    start = max(initial, FLOOR)
    value = max(start, 0.0) + math.log1p(math.exp(-abs(start)))  # softplus without overflow
    return nn.Parameter(torch.full((size,), max(unconstrained(factor * value), FLOOR)))


class Temperatures(NamedTuple):
    """Positive temperatures of the E-step: for the samples' values, and for their distances out of bounds if used."""

    of_values: Tensor
    of_bounds: Tensor | None


class Duals(NamedTuple):
    """All dual variables, as positive values: the temperatures, and the multipliers [D] by trust region."""

    temperatures: Temperatures
    multipliers: Rows


class PolicyImprovement:
    """`(state, obs, samples, hyper) -> (state, metrics)`, with `samples` from `PolicyEvaluation.targets`.

    Of these, `old` are the target policy's parameters, each [B, D], `actions` [N, B, D] its samples, `q` [N, B] their
    values.
    """

    SCORES: ClassVar[tuple[str, ...]] = ("q",)
    """Of the samples, what their weights are computed from."""

    def __init__(
        self,
        policy: FunctionalPolicy,
        duals: DualParameters,
        config: MPOConfig,
        optimizer: Optimizer,
        ranks: Ranks = SINGLE,
    ) -> None:
        self.policy, self.flat_duals = policy, FlatParameters(duals)
        self.optimizer, self.ranks = optimizer, ranks
        self.m_steps = config.m_steps
        self.solved = config.temperature == "solved"
        self.penalized = config.epsilon_penalty > 0 and isinstance(policy.distribution, Gaussian)
        self.is_temperature = self.flat_duals.mark(TEMPERATURES)

    def __call__(self, state: Tree, obs: Tensor, samples: Tree, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state after E-step, one dual step and M gradient steps of the policy; and metrics.  [B, O]"""
        samples = self.scored({**samples, "obs": obs})
        solved = self.solved_temperatures(samples, hyper) if self.solved else None
        psi, metrics = self.e_step(samples, self.duals(state["duals"], solved).temperatures, hyper)
        samples = {**samples, "weights": psi}
        after, dual_metrics = self.dual_step(state, samples, solved, hyper)
        multipliers = self.duals(after["duals"], solved).multipliers
        for _ in range(self.m_steps):
            after, policy_metrics = self.m_step(after, samples, multipliers, hyper)
        # LaTeX: \Delta_\theta = \sqrt{\sum_k (\theta_k - \theta'_k)^2}
        change = torch.sqrt(((after["policy"] - state["policy"]) ** 2).sum())
        return after, {**metrics, **dual_metrics, **policy_metrics, "train/param_delta": change}

    def duals(self, parameters: Tensor, solved: Temperatures | None) -> Duals:
        """Return the positive dual variables from the unconstrained parameters, or with the `solved` temperatures."""
        named = self.flat_duals.by_name(positive(floored(parameters)))
        multipliers = {region: named[MULTIPLIERS[region]] for region in self.policy.distribution.trust_regions}
        return Duals(solved or Temperatures(named[TEMPERATURES[0]], named.get(TEMPERATURES[1])), multipliers)

    # --- E-step ---------------------------------------------------------------------------------------------

    def e_step(self, samples: Rows, temperatures: Temperatures, hyper: Rows) -> tuple[Tensor, Rows]:
        """Return the weights of the target policy's samples, and metrics.  -> [N, B]"""
        q = samples["q"]
        psi = self.weights(samples, temperatures.of_values)
        kl = self.weights_kl(samples, psi)
        # LaTeX: \mathrm{KL}_{rel} = \frac{1}{\epsilon_\eta} D_\psi
        relative_kl = kl / hyper["kl_epsilon"]
        metrics = {
            "kl/q_pi": relative_kl,
            "entropy": weights_entropy(psi),
            "q/min": q.min(),
            "q/max": q.max(),
            "sampled_q": q,
            **self.sample_metrics(samples, psi),
        }
        if temperatures.of_bounds is None:
            return psi, metrics
        penalty_psi = weights(samples["excess"], temperatures.of_bounds)
        # LaTeX: \psi'_{b,i} = \psi_{b,i} + \psi_{b,i}^{bounds}
        both = psi + penalty_psi
        return both, metrics

    def solved_temperatures(self, samples: Rows, hyper: Rows) -> Temperatures:
        """Return the temperatures at which the weights' KLs equal their bounds."""

        scores = {name: self.ranks.all_gathered(samples[name], 1) for name in self.SCORES}
        of_values = solved_temperature(
            lambda temperature: self.weights_kl(scores, self.weights(scores, temperature)), hyper["kl_epsilon"]
        )
        if not self.penalized:
            return Temperatures(of_values, None)
        excess = self.ranks.all_gathered(samples["excess"], 1)
        of_bounds = solved_temperature(
            lambda temperature: weights_kl(weights(excess, temperature)), hyper["epsilon_penalty"]
        )
        return Temperatures(of_values, of_bounds)

    def scored(self, samples: Tree) -> Tree:
        """Return the samples with minus the distance of each action to its bounds, `excess` [N, B]."""
        policy = cast(Gaussian, self.policy.distribution)
        excess = out_of_bounds_scores(samples["actions"], policy.action_low, policy.action_high)
        return {**samples, "excess": excess}

    def weights(self, samples: Rows, temperature: Tensor) -> Tensor:
        """Return the weights of a state's samples by their values.  -> [N, B]"""
        return weights(samples["q"], temperature)

    def weights_kl(self, samples: Rows, psi: Tensor) -> Tensor:
        """Return the KL of the weights, which the E-step bounds.  -> []"""
        return weights_kl(psi)

    def temperature_loss(self, samples: Rows, temperature: Tensor, bound: Tensor) -> Tensor:
        """Return the dual of the temperature of the values.  -> []"""
        return temperature_loss(samples["q"], temperature, bound)

    def sample_metrics(self, samples: Rows, psi: Tensor) -> Rows:
        """Return what only sampled actions tell: how many count, and how many dimensions lie out of bounds."""
        policy, actions = cast(Gaussian, self.policy.distribution), samples["actions"]
        out_of_bounds = ((actions < policy.action_low) | (actions > policy.action_high)).to(psi.dtype).mean()
        return {"health/effective_samples": effective_samples(psi).mean(), "health/out_of_bounds": out_of_bounds}

    # --- duals ----------------------------------------------------------------------------------------------

    def dual_step(self, state: Tree, samples: Tree, solved: Temperatures | None, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state after one step of temperatures and multipliers, before the policy's step; and metrics."""
        local_kls = self.kls(self.policy.params(state["policy"], samples["obs"]), samples)
        kls = dict(zip(local_kls, self.ranks.means(*local_kls.values()), strict=True))
        duals, moments, metrics = descend(
            self.dual_loss,
            state["duals"],
            state["moments"]["duals"],
            *(samples, kls, solved, hyper),
            optimizer=self.optimizer,
            learning_rate=torch.where(self.is_temperature, hyper["temperature_lr"], hyper["lambda_lr"]),
            max_norm=hyper["max_grad_norm"],
            ranks=self.ranks,
        )
        after = {**state, "duals": floored(duals), "moments": {**state["moments"], "duals": moments}}
        updated = self.duals(after["duals"], solved)
        alphas = {f"alpha_{region}": alpha.mean() for region, alpha in updated.multipliers.items()}
        first = {"lambda": alphas["alpha_mean"]} if "alpha_mean" in alphas else {}
        return after, {**metrics, "eta": updated.temperatures.of_values, **first, **alphas}

    def dual_loss(
        self, parameters: Tensor, samples: Tree, kls: Rows, solved: Temperatures | None, hyper: Rows
    ) -> tuple[Tensor, Rows]:
        """Return the loss of temperatures and multipliers, and metrics; samples and KLs are constants."""
        temperatures, multipliers = self.duals(parameters, solved)
        eta = self.temperature_loss(samples, temperatures.of_values, hyper["kl_epsilon"])
        alphas = torch.stack(
            [multiplier_loss(multipliers[name], kls[name], hyper[BOUND_SETTINGS[name]]) for name in kls]
        )
        # LaTeX: \mathcal{L}_{dual} = \mathcal{L}_\eta + \sum_j \mathcal{L}_{\alpha,j}
        loss = sum(alphas.unbind(), eta)
        metrics = {"loss/dual_eta": eta}
        if temperatures.of_bounds is not None:
            extra = temperature_loss(samples["excess"], temperatures.of_bounds, hyper["epsilon_penalty"])
            metrics["loss/dual_penalty"] = extra
            # LaTeX: \mathcal{L}'_{dual} = \mathcal{L}_{dual} + \mathcal{L}_{bounds}
            loss = loss + extra
        return loss, {**metrics, "loss/dual": loss}

    # --- M-step ---------------------------------------------------------------------------------------------

    def m_step(self, state: Tree, samples: Tree, multipliers: Rows, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state after one gradient step of the policy, and metrics; weights, multipliers are constants."""
        policy, moments, metrics = descend(
            self.policy_loss,
            state["policy"],
            state["moments"]["policy"],
            *(samples, multipliers, hyper),
            optimizer=self.optimizer,
            learning_rate=hyper["policy_lr"],
            max_norm=hyper["max_grad_norm"],
            ranks=self.ranks,
        )
        return {**state, "policy": policy, "moments": {**state["moments"], "policy": moments}}, metrics

    def policy_loss(self, parameters: Tensor, samples: Tree, multipliers: Rows, hyper: Rows) -> tuple[Tensor, Rows]:
        """Return weighted NLL plus KL penalty, each summed over trust regions; and metrics."""
        distribution = self.policy.distribution
        new = self.policy.params(parameters, samples["obs"])
        decoupled = distribution.decoupled(samples["old"], new)
        log_probs = [distribution.log_prob(params, samples["actions"]) for params in decoupled.values()]
        first, *others = (weighted_nll(samples["weights"], log_prob) for log_prob in log_probs)
        fit = sum(others, first)
        kls = self.kls(new, samples)
        costs = torch.stack([penalties(multipliers[region], kl).sum() for region, kl in kls.items()])
        # LaTeX: \mathcal{L} = \mathcal{L}_\pi + \sum_j \mathcal{L}_{KL,j}
        loss = sum(costs.unbind(), fit)
        return loss, {
            "loss/policy": fit,
            **{f"kl/{region}": kl.mean() for region, kl in kls.items()},
            **(_std_metrics(new["log_std"]) if isinstance(distribution, Gaussian) else {}),
            **self.health(kls, multipliers, hyper),
        }

    def kls(self, new: Rows, samples: Tree) -> Rows:
        """Return KL(target || online) by trust region, averaged over states.  [B, D] -> [D] each"""
        kls = self.policy.distribution.kls(samples["old"], new)
        return {region: mean_over_states(kl) for region, kl in kls.items()}

    def health(self, kls: Rows, multipliers: Rows, hyper: Rows) -> Rows:
        """Return each trust region's largest KL over its bound, and the multipliers' distance from equilibrium."""
        all_ranks = dict(zip(kls, self.ranks.means(*(kl.detach() for kl in kls.values())), strict=True))
        bounds = {region: hyper[BOUND_SETTINGS[region]] for region in kls}
        residuals = [dual_residual(kl, bounds[region], multipliers[region]) for region, kl in all_ranks.items()]
        return {
            **{f"health/kl_{region}": kl.max() / bounds[region] for region, kl in all_ranks.items()},
            "health/dual_residual": torch.stack(residuals).max(),
        }


class ExactImprovement(PolicyImprovement):
    """Improvement of a policy of one choice: `actions` [N, B, 1] are all of them, as likely as `log_prior` [N, B]."""

    SCORES = ("q", "log_prior")

    def scored(self, samples: Tree) -> Tree:
        """Return the samples as they are: choices have no bounds."""
        return samples

    def weights(self, samples: Rows, temperature: Tensor) -> Tensor:
        """Return the probabilities of a state's choices under the E-step's policy.  -> [N, B]"""
        return exact_weights(samples["q"], samples["log_prior"], temperature)

    def weights_kl(self, samples: Rows, psi: Tensor) -> Tensor:
        """Return the KL of the E-step's policy from the target policy.  -> []"""
        return exact_weights_kl(psi, samples["log_prior"])

    def temperature_loss(self, samples: Rows, temperature: Tensor, bound: Tensor) -> Tensor:
        """Return the dual of the temperature.  -> []"""
        return exact_temperature_loss(samples["q"], samples["log_prior"], temperature, bound)

    def sample_metrics(self, samples: Rows, psi: Tensor) -> Rows:
        """Return nothing: no action is sampled."""
        return {}


def _std_metrics(log_std: Tensor) -> Rows:
    """Return the range of the standard deviations, and the share of them at the lower limit."""
    std = torch.exp(log_std)
    at_floor = (log_std <= LOG_STD_MIN).to(log_std.dtype).mean()
    return {"pi/std_min": std.min(), "pi/std_max": std.max(), "health/std_at_floor": at_floor}
