"""Policy evaluation: the critics' soft target, and one gradient step of both critics towards it."""

from typing import cast

import torch
from torch import Tensor

from minerva.compute.functional import descend
from minerva.compute.optim import Optimizer
from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.tree import Tree
from minerva.formulas.categorical import cross_entropy, expected_value, gaussian_histogram
from minerva.formulas.optimizers import decayed
from minerva.formulas.returns import bootstrapped, n_step_transition
from minerva.networks.critics import Critics, FunctionalCritics
from minerva.networks.policies import FunctionalPolicy
from minerva.trainers.sac.config import SACConfig
from minerva.trainers.sac.losses import averaged, critic_loss, positive_temperature, soft_values

Rows = dict[str, Tensor]


class PolicyEvaluation:
    """`(state, batch, noise, hyper) -> (state, metrics)`. The batch has time first, [T, B, ...].

    A critic predicts a value, or with `atoms` the logits of a histogram of it.
    """

    def __init__(
        self,
        policy: FunctionalPolicy,
        critics: Critics,
        atoms: Tensor | None,
        config: SACConfig,
        optimizer: Optimizer,
        ranks: Ranks = SINGLE,
    ) -> None:
        self.policy, self.critics, self.atoms = policy, FunctionalCritics(critics), atoms
        self.decays, self.weights = config.weight_decay > 0, self.critics.flat.matrices()
        self.optimizer, self.ranks = optimizer, ranks

    def __call__(self, state: Tree, batch: Rows, noise: Tensor, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state after one step of both critics and of their targets; and metrics."""
        q, moments, metrics = descend(
            self.loss,
            state["q"],
            state["moments"]["q"],
            *(batch["obs"][0], batch["actions_executed"][0], self.targets(state, batch, noise, hyper)),
            optimizer=self.optimizer,
            learning_rate=hyper["q_lr"],
            max_norm=hyper["max_grad_norm"],
            ranks=self.ranks,
        )
        if self.decays:
            q = decayed(q, state["q"], hyper["weight_decay"] * self.weights, hyper["q_lr"])
        target = averaged(state["q_target"], q, hyper["tau"])
        return {**state, "q": q, "q_target": target, "moments": {**state["moments"], "q": moments}}, metrics

    def targets(self, state: Tree, batch: Rows, noise: Tensor, hyper: Rows) -> Tensor:
        """Return the target of each row.  -> [B]"""
        distribution = self.policy.distribution
        rewards, discount, terminated, next_obs = n_step_transition(batch, hyper["gamma"])
        params = self.policy.params(state["policy"], next_obs)
        raw = distribution.sample(params, noise)
        first, second = self.values(state["q_target"], next_obs, distribution.executed(raw))
        temperature = positive_temperature(state["log_temperature"])
        values = soft_values(first, second, distribution.log_prob(params, raw), temperature)
        return bootstrapped(rewards, discount, values, terminated)

    def loss(self, parameters: Tensor, obs: Tensor, actions: Tensor, targets: Tensor) -> tuple[Tensor, Rows]:
        """Return the critics' loss and metrics.  [B, O], [B, D], [B] -> []"""
        outputs = self.critics(parameters, obs, actions)
        first, second = self.decoded(outputs)
        loss = critic_loss(first, second, targets) if self.atoms is None else self.histogram_loss(outputs, targets)
        return loss, {"loss/q": loss, "q/mean": torch.minimum(first, second).mean(), **self.health(targets)}

    def health(self, targets: Tensor) -> Rows:
        """Return the share of targets at an end of the histogram's range, or beyond it; nothing without one.  [B]"""
        if self.atoms is None:
            return {}
        at_limit = targets.abs() >= self.atoms[-1]
        return {"health/targets_at_limit": at_limit.to(targets.dtype).mean()}

    def histogram_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy of both critics from the targets' histograms.  [2, B, A], [B] -> []"""
        histogram = gaussian_histogram(targets, cast(Tensor, self.atoms))
        losses = torch.stack([cross_entropy(part, histogram) for part in outputs])
        # LaTeX: \mathcal{L}_Q = \sum_c \mathcal{L}_{Q,c}
        loss = losses.sum()
        return loss

    def values(self, parameters: Tensor, obs: Tensor, actions: Tensor) -> Tensor:
        """Return both critics' values.  [..., O], [..., D] -> [2, ...]"""
        return self.decoded(self.critics(parameters, obs, actions))

    def decoded(self, outputs: Tensor) -> Tensor:
        """Return values from the critics' outputs.  [..., A] -> [...]"""
        return outputs.squeeze(-1) if self.atoms is None else expected_value(outputs, self.atoms)
