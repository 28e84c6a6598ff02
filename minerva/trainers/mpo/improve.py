"""Policy improvement: weigh sampled actions (E-step), move the duals, fit the policy to the weights (M-step)."""

import torch
from torch import Tensor

from minerva.compute.gradient import gradient
from minerva.compute.tree import Tree
from minerva.formulas.gaussian import gaussian_kl_mean, gaussian_kl_std
from minerva.formulas.lagrange import floored, multiplier_loss, penalty, positive, solved_temperature
from minerva.networks import LOG_STD_MIN
from minerva.trainers.mpo.config import MPOConfig
from minerva.trainers.mpo.duals import TEMPERATURES
from minerva.trainers.mpo.learner import Learner, Rows
from minerva.trainers.mpo.losses import (
    dual_residual,
    effective_samples,
    mean_loss,
    out_of_bounds_scores,
    std_loss,
    temperature_loss,
    weights,
    weights_entropy,
    weights_kl,
)


class Improvement:
    """`(state, obs, sampled, hyper) -> (state, metrics)`; `sampled` as `Learner.sampled` gives them."""

    def __init__(self, learner: Learner, config: MPOConfig) -> None:
        self.learner = learner
        self.m_steps = config.m_steps
        self.solved = config.temperature == "solved"
        self.penalized = config.epsilon_penalty > 0
        self.is_temperature = learner.flat["duals"].mark(TEMPERATURES)

    def __call__(self, state: Tree, obs: Tensor, sampled: Rows, hyper: Rows) -> tuple[Tree, Rows]:
        """E-step, a step of the duals, then M steps of the policy towards the weighted samples.  [B, O]"""
        samples, metrics = self.e_step(state, obs, sampled, hyper)
        after, dual_metrics = self.dual_step(state, samples, hyper)
        prices = self.multipliers(after["duals"], samples)
        for _ in range(self.m_steps):
            slope, policy_metrics = gradient(self.policy_loss, after["policy"], samples, prices, hyper)
            after = self.learner.step("policy", after, slope, hyper["policy_lr"], hyper["max_grad_norm"])
        # LaTeX: \Delta_\theta = \sqrt{\sum_k (\theta_k - \theta'_k)^2}
        moved = torch.sqrt(((after["policy"] - state["policy"]) ** 2).sum())
        return after, {**metrics, **dual_metrics, **policy_metrics, "train/param_delta": moved}

    def multipliers(self, duals: Tensor, samples: Rows) -> Rows:
        """Temperatures and multipliers by name; a solved temperature comes with the samples."""
        learned = self.learner.flat["duals"].by_name(positive(floored(duals)))
        solved = {name: value for name, value in samples.items() if name.endswith("temperature")}
        return {name.removeprefix("raw_"): value for name, value in learned.items()} | solved

    # --- E-step ---------------------------------------------------------------------------------------------

    def e_step(self, state: Tree, obs: Tensor, sampled: Rows, hyper: Rows) -> tuple[Rows, Rows]:
        """Samples of the target policy, valued by the target critic, and how much each of them counts."""
        q = self.learner.head.values(sampled["outputs"])
        excess = out_of_bounds_scores(sampled["actions"], self.learner.action_low, self.learner.action_high)
        samples = {**sampled, "obs": obs, "q": q, "excess": excess}
        if self.solved:
            samples |= self.solved_temperatures(samples, hyper)
        temperatures = self.multipliers(state["duals"], samples)
        psi = weights(q, temperatures["temperature"])
        kl = weights_kl(psi)
        # LaTeX: \mathrm{KL}_{rel} = \frac{1}{\epsilon_\eta} D_\psi
        relative_kl = kl / hyper["kl_epsilon"]
        samples["weights"] = psi
        if self.penalized:
            penalty_psi = weights(excess, temperatures["penalty_temperature"])
            # LaTeX: \psi'_{b,i} = \psi_{b,i} + \psi_{b,i}^{bounds}
            samples["weights"] = psi + penalty_psi
        return samples, {
            "kl/q_pi": relative_kl,
            "entropy": weights_entropy(psi),
            "q/min": q.min(),
            "q/max": q.max(),
            "health/effective_samples": effective_samples(psi),
            "health/out_of_bounds": (excess < 0).to(q.dtype).mean(),
            "sampled_q": q,
        }

    def solved_temperatures(self, samples: Rows, hyper: Rows) -> Rows:
        """The temperatures at which the weights' KLs meet their bounds."""

        def solve(scores: Tensor, bound: Tensor) -> Tensor:
            of_all = self.learner.ranks.all_gathered(scores, 1)
            return solved_temperature(lambda temperature: weights_kl(weights(of_all, temperature)), bound)

        solved = {"temperature": solve(samples["q"], hyper["kl_epsilon"])}
        if self.penalized:
            solved["penalty_temperature"] = solve(samples["excess"], hyper["epsilon_penalty"])
        return solved

    # --- duals ----------------------------------------------------------------------------------------------

    def dual_step(self, state: Tree, samples: Rows, hyper: Rows) -> tuple[Tree, Rows]:
        """Temperatures and multipliers one step on; the policy is still the one from before the M-step."""
        own_kls = self.kls(*self.learner.policy(state["policy"], samples["obs"]), samples)
        kl_mean, kl_std = self.learner.ranks.means(*own_kls)
        slope, metrics = gradient(self.dual_loss, state["duals"], samples, kl_mean, kl_std, hyper)
        rates = torch.where(self.is_temperature, hyper["temperature_lr"], hyper["lambda_lr"])
        after = self.learner.step("duals", state, slope, rates, hyper["max_grad_norm"])
        after["duals"] = floored(after["duals"])
        prices = self.multipliers(after["duals"], samples)
        alpha_mean, alpha_std = prices["alpha_mean"].mean(), prices["alpha_stddev"].mean()
        metrics |= {"eta": prices["temperature"], "lambda": alpha_mean}
        return after, {**metrics, "alpha_mean": alpha_mean, "alpha_std": alpha_std}

    def dual_loss(
        self, parameters: Tensor, samples: Rows, kl_mean: Tensor, kl_std: Tensor, hyper: Rows
    ) -> tuple[Tensor, Rows]:
        """Loss of temperatures and multipliers; samples and KLs are constants here."""
        prices = self.multipliers(parameters, samples)
        eta = temperature_loss(samples["q"], prices["temperature"], hyper["kl_epsilon"])
        alpha_mean = multiplier_loss(prices["alpha_mean"], kl_mean, hyper["mstep_kl_epsilon"])
        alpha_std = multiplier_loss(prices["alpha_stddev"], kl_std, hyper["mstep_kl_epsilon_std"])
        # LaTeX: \mathcal{L}_{dual} = \mathcal{L}_\eta + \mathcal{L}_{\alpha_\mu} + \mathcal{L}_{\alpha_\sigma}
        loss = eta + alpha_mean + alpha_std
        metrics = {"loss/dual_eta": eta}
        if self.penalized:
            extra = temperature_loss(samples["excess"], prices["penalty_temperature"], hyper["epsilon_penalty"])
            metrics["loss/dual_penalty"] = extra
            # LaTeX: \mathcal{L}'_{dual} = \mathcal{L}_{dual} + \mathcal{L}_{bounds}
            loss = loss + extra
        return loss, {**metrics, "loss/dual": loss}

    # --- M-step ---------------------------------------------------------------------------------------------

    def policy_loss(self, parameters: Tensor, samples: Rows, prices: Rows, hyper: Rows) -> tuple[Tensor, Rows]:
        """Weighted likelihood of the samples, for mean and spread apart, and what their constraints cost."""
        mean, log_std = self.learner.policy(parameters, samples["obs"])
        fit_mean = mean_loss(samples["weights"], samples["actions"], mean, samples["old_log_std"])
        fit_std = std_loss(samples["weights"], samples["actions"], samples["old_mean"], log_std)
        # LaTeX: \mathcal{L}_\pi = \mathcal{L}_{\pi,\mu} + \mathcal{L}_{\pi,\sigma}
        fit = fit_mean + fit_std
        kl_mean, kl_std = self.kls(mean, log_std, samples)
        cost_mean = penalty(prices["alpha_mean"], kl_mean)
        cost_std = penalty(prices["alpha_stddev"], kl_std)
        # LaTeX: \mathcal{L} = \mathcal{L}_\pi + \mathcal{L}_{KL,\mu} + \mathcal{L}_{KL,\sigma}
        loss = fit + cost_mean + cost_std
        std = torch.exp(log_std)
        return loss, {
            "loss/policy": fit,
            "kl/mean": kl_mean.mean(),
            "kl/std": kl_std.mean(),
            "pi/std_min": std.min(),
            "pi/std_max": std.max(),
            **self.health(kl_mean.detach(), kl_std.detach(), log_std, prices, hyper),
        }

    @staticmethod
    def kls(mean: Tensor, log_std: Tensor, samples: Rows) -> tuple[Tensor, Tensor]:
        """Divergence from the target policy in mean and in spread, the mean over states.  [B, D] -> [D] twice"""
        kl_mean_of_state = gaussian_kl_mean(mean, samples["old_mean"], samples["old_log_std"])
        kl_std_of_state = gaussian_kl_std(log_std, samples["old_log_std"])
        # LaTeX: D_{\mu,j} = \frac{1}{B} \sum_b D_{\mu,b,j}
        kl_mean = kl_mean_of_state.mean(0)
        # LaTeX: D_{\sigma,j} = \frac{1}{B} \sum_b D_{\sigma,b,j}
        kl_std = kl_std_of_state.mean(0)
        return kl_mean, kl_std

    def health(self, kl_mean: Tensor, kl_std: Tensor, log_std: Tensor, prices: Rows, hyper: Rows) -> Rows:
        """How the constraints fare: the largest KL over its bound, and how far the multipliers are from their rest."""
        kl_mean, kl_std = self.learner.ranks.means(kl_mean, kl_std)
        bound_mean, bound_std = hyper["mstep_kl_epsilon"], hyper["mstep_kl_epsilon_std"]
        residual_mean = dual_residual(kl_mean, bound_mean, prices["alpha_mean"])
        residual_std = dual_residual(kl_std, bound_std, prices["alpha_stddev"])
        return {
            "health/kl_mean": kl_mean.max() / bound_mean,
            "health/kl_std": kl_std.max() / bound_std,
            "health/dual_residual": torch.maximum(residual_mean, residual_std),
            "health/std_at_floor": (log_std <= LOG_STD_MIN).to(log_std.dtype).mean(),
        }
