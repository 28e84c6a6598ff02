"""Policy evaluation: the critics' soft target, and one gradient step of both critics towards it."""

import torch
from torch import Tensor

from minerva.compute.functional import descend
from minerva.compute.optim import Optimizer
from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.tree import Tree
from minerva.formulas.returns import bootstrapped
from minerva.networks.critics import Critics, FunctionalCritics
from minerva.networks.policies import FunctionalPolicy
from minerva.trainers.sac.losses import averaged, critic_loss, positive_temperature, soft_values

Rows = dict[str, Tensor]


class PolicyEvaluation:
    """`(state, batch, noise, hyper) -> (state, metrics)`."""

    def __init__(self, policy: FunctionalPolicy, critics: Critics, optimizer: Optimizer, ranks: Ranks = SINGLE) -> None:
        self.policy, self.critics = policy, FunctionalCritics(critics)
        self.optimizer, self.ranks = optimizer, ranks

    def __call__(self, state: Tree, batch: Rows, noise: Tensor, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state after one step of both critics and of their targets; and metrics."""
        q, moments, metrics = descend(
            self.loss,
            state["q"],
            state["moments"]["q"],
            *(batch["obs"], batch["actions_executed"], self.targets(state, batch, noise, hyper)),
            optimizer=self.optimizer,
            learning_rate=hyper["q_lr"],
            max_norm=hyper["max_grad_norm"],
            ranks=self.ranks,
        )
        target = averaged(state["q_target"], q, hyper["tau"])
        return {**state, "q": q, "q_target": target, "moments": {**state["moments"], "q": moments}}, metrics

    def targets(self, state: Tree, batch: Rows, noise: Tensor, hyper: Rows) -> Tensor:
        """Return the target of each row.  -> [B]"""
        distribution = self.policy.distribution
        params = self.policy.params(state["policy"], batch["next_obs"])
        raw = distribution.sample(params, noise)
        first, second = self.critics(state["q_target"], batch["next_obs"], distribution.executed(raw)).squeeze(-1)
        temperature = positive_temperature(state["log_temperature"])
        values = soft_values(first, second, distribution.log_prob(params, raw), temperature)
        return bootstrapped(batch["rewards"], hyper["gamma"], values, batch["terminated"])

    def loss(self, parameters: Tensor, obs: Tensor, actions: Tensor, targets: Tensor) -> tuple[Tensor, Rows]:
        """Return the critics' loss and metrics.  [B, O], [B, D], [B] -> []"""
        first, second = self.critics(parameters, obs, actions).squeeze(-1)
        loss = critic_loss(first, second, targets)
        return loss, {"loss/q": loss, "q/mean": torch.minimum(first, second).mean()}
