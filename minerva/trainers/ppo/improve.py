"""Policy improvement: epochs of minibatch steps on the clipped surrogate, the value loss and the entropy bonus."""

import torch
from torch import Tensor

from minerva.compute.functional import descend
from minerva.compute.gradient import transformed
from minerva.compute.optim import Optimizer
from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.tree import Tree, select, take
from minerva.formulas.returns import normalize, value_loss
from minerva.networks.policies import FunctionalPolicy
from minerva.trainers.ppo.config import PPOConfig
from minerva.trainers.ppo.losses import (
    approximate_kl,
    clip_fraction,
    clipped_surrogate,
    clipped_value_loss,
    log_ratio,
)

Rows = dict[str, Tensor]


class PolicyImprovement:
    """`(state, batch, orders, hyper) -> (state, metrics)`, a loop around `minibatch_step`."""

    def __init__(
        self, policy: FunctionalPolicy, config: PPOConfig, optimizer: Optimizer, ranks: Ranks = SINGLE
    ) -> None:
        self.policy, self.config, self.optimizer, self.ranks = policy, config, optimizer, ranks
        self.of_value = policy.flat.mark(("critic",))

    def __call__(self, state: Tree, batch: Rows, orders: Tensor, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state after epochs of minibatch steps, until the KL estimate exceeds its target; and metrics.

        The estimate is that of an epoch's last minibatch. The remaining epochs are skipped on the CPU; on a GPU, or
        stacked over agents, they run and a mask discards them, so that the host never waits for the device.
        """
        batch = self.standardized(batch)
        alive = torch.ones_like(hyper["gamma"], dtype=torch.bool)
        metrics: Rows = {}
        clipped = []
        for order in orders.unbind(-2):
            after, last = state, metrics
            for index in order.split(self.config.minibatch_size, -1):
                after, last = self.minibatch_step(after, batch, index, hyper)
                clipped.append(torch.where(alive, last["losses/clipfrac"], torch.nan))
            state = select(alive, after, state)
            metrics = select(alive, last, metrics) if metrics else last
            if self.config.target_kl:
                # LaTeX: w = \mathbf{1}[D \leq D_{max}]
                within = self.ranks.mean(metrics["losses/approx_kl"]) <= hyper["target_kl"]
                alive = alive & within
                if alive.device.type == "cpu" and not transformed() and not alive.any():
                    break
        return state, {**metrics, "losses/clipfrac": torch.stack(clipped).nanmean(0)}

    def standardized(self, batch: Rows) -> Rows:
        """Return the batch with advantages normalised over the rollout, if so configured."""
        if not self.config.norm_adv or self.config.norm_adv_per_minibatch:
            return batch
        return {**batch, "advantages": self._normalized(batch["advantages"])}

    def minibatch_step(self, state: Tree, batch: Rows, index: Tensor, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state after one gradient step on the rows of `index`, and the metrics before it."""
        parameters, moments, metrics = descend(
            self.loss,
            state["parameters"],
            state["moments"],
            *(state["normalizer"], take(batch, index), hyper),
            optimizer=self.optimizer,
            learning_rate=torch.where(self.of_value, hyper["value_lr"], hyper["policy_lr"]),
            max_norm=hyper["max_grad_norm"],
            ranks=self.ranks,
        )
        return {**state, "parameters": parameters, "moments": moments}, metrics

    def loss(self, parameters: Tensor, normalizer: Rows, rows: Rows, hyper: Rows) -> tuple[Tensor, Rows]:
        """Return the total loss of one minibatch (clipped surrogate, value loss, entropy bonus), and metrics."""
        policy, distribution = self.policy, self.policy.distribution
        params, values = policy.params_and_values(parameters, rows["obs"], normalizer)
        ratio_log = log_ratio(distribution.log_prob(params, rows["actions_raw"]), rows["old_log_prob"])
        # LaTeX: \rho_t = \exp(\ell_t)
        ratio = torch.exp(ratio_log)
        per_minibatch = self.config.norm_adv and self.config.norm_adv_per_minibatch
        advantages = self._normalized(rows["advantages"]) if per_minibatch else rows["advantages"]
        surrogate = clipped_surrogate(ratio, advantages, hyper["clip_ratio"])
        if self.config.clip_vloss:
            value = clipped_value_loss(values, rows["old_values"], rows["returns"], hyper["clip_ratio"])
        else:
            value = value_loss(values, rows["returns"])
        entropy = distribution.entropy(params).mean()
        # LaTeX: \mathcal{L} = \mathcal{L}_{pg} - c_H \mathcal{H} + c_V \mathcal{L}_V
        total = surrogate - hyper["ent_coef"] * entropy + hyper["vf_coef"] * value
        return total, {
            "losses/policy_loss": surrogate,
            "losses/value_loss": value,
            "losses/entropy": entropy,
            "losses/old_approx_kl": -ratio_log.mean(),
            "losses/approx_kl": approximate_kl(ratio, ratio_log),
            "losses/clipfrac": clip_fraction(ratio, hyper["clip_ratio"]),
        }

    def _normalized(self, advantages: Tensor) -> Tensor:
        """Return advantages normalised to zero mean and unit standard deviation over the rows of all ranks."""
        return self.ranks.local_shard(normalize(self.ranks.all_gathered(advantages), correction=1))
