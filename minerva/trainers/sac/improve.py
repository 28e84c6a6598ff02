"""Policy improvement: one gradient step of the policy up the critics' values, and one of the temperature."""

from collections.abc import Callable

import torch
from torch import Tensor

from minerva.compute.functional import descend
from minerva.compute.optim import Optimizer
from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.tree import Tree
from minerva.networks.policies import FunctionalPolicy
from minerva.trainers.sac.losses import policy_loss, positive_temperature, temperature_loss

Rows = dict[str, Tensor]
Values = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(parameters of the critics, observations, actions) -> both critics' values [2, B]"""


class PolicyImprovement:
    """`(state, obs, noise, hyper) -> (state, metrics)`."""

    def __init__(self, policy: FunctionalPolicy, values: Values, optimizer: Optimizer, ranks: Ranks = SINGLE) -> None:
        self.policy, self.values = policy, values
        self.optimizer, self.ranks = optimizer, ranks

    def __call__(self, state: Tree, obs: Tensor, noise: Tensor, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state after one step of the policy and one of the temperature; and metrics.  [B, O], [B, D]"""
        moments = state["moments"]
        policy, policy_moments, metrics = descend(
            self.policy_loss,
            state["policy"],
            moments["policy"],
            *(obs, noise, state["q"], positive_temperature(state["log_temperature"])),
            optimizer=self.optimizer,
            learning_rate=hyper["policy_lr"],
            max_norm=hyper["max_grad_norm"],
            ranks=self.ranks,
        )
        log_prob = metrics.pop("log_prob")
        log_temperature, temperature_moments, more = descend(
            self.temperature_loss,
            state["log_temperature"],
            moments["log_temperature"],
            *(log_prob, hyper["target_entropy"]),
            optimizer=self.optimizer,
            learning_rate=hyper["temperature_lr"],
            ranks=self.ranks,
        )
        stepped = {"policy": policy_moments, "log_temperature": temperature_moments}
        after = {**state, "policy": policy, "log_temperature": log_temperature, "moments": {**moments, **stepped}}
        return after, {**metrics, **more, "entropy_gap": -log_prob.mean() - hyper["target_entropy"]}

    def policy_loss(
        self, parameters: Tensor, obs: Tensor, noise: Tensor, q: Tensor, temperature: Tensor
    ) -> tuple[Tensor, Rows]:
        """Return the policy's loss and metrics; critics and temperature are constants."""
        distribution = self.policy.distribution
        params = self.policy.params(parameters, obs)
        raw = distribution.sample(params, noise)
        log_prob = distribution.log_prob(params, raw)
        first, second = self.values(q, obs, distribution.executed(raw))
        loss = policy_loss(first, second, log_prob, temperature)
        std = torch.exp(params["log_std"])
        return loss, {"loss/policy": loss, "log_prob": log_prob, "pi/std_mean": std.mean()}

    def temperature_loss(self, log_temperature: Tensor, log_prob: Tensor, target: Tensor) -> tuple[Tensor, Rows]:
        """Return the temperature's loss and metrics; log-densities are constants."""
        temperature = positive_temperature(log_temperature)
        loss = temperature_loss(temperature, log_prob, target)
        return loss, {"loss/temperature": loss, "temperature_now": temperature}
