"""What evaluation and improvement share: the networks as functions of their parameters, and a gradient step."""

import torch
from torch import Tensor
from torch.func import functional_call

from minerva.compute.flat import FlatParameters
from minerva.compute.optim import Optimizer
from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.tree import Tree
from minerva.formulas.gaussian import sampled_actions
from minerva.formulas.optimizers import clip_by_norm
from minerva.networks import Critic, DiagonalGaussianPolicy
from minerva.trainers.mpo.duals import Duals
from minerva.trainers.mpo.heads import ScalarHead

Rows = dict[str, Tensor]
"""Tensors by name."""


class Learner:
    """Moves the parameters of policy, critic and duals into vectors, `flat[name].vector`."""

    def __init__(
        self,
        policy: DiagonalGaussianPolicy,
        q: Critic,
        duals: Duals,
        head: ScalarHead,
        optimizer: Optimizer,
        bfloat16_targets: bool = False,
        ranks: Ranks = SINGLE,
    ) -> None:
        self.ranks = ranks
        self.modules = {"policy": policy, "q": q, "duals": duals}
        self.flat = {name: FlatParameters(module) for name, module in self.modules.items()}
        self.head = head
        self.optimizer = optimizer
        self.bfloat16_targets = bfloat16_targets
        self.action_low, self.action_high = policy.action_low, policy.action_high

    def policy(self, parameters: Tensor, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation.  [..., O] -> [..., D] twice"""
        outputs: tuple[Tensor, Tensor] = functional_call(
            self.modules["policy"], self.flat["policy"].by_name(parameters), (obs,)
        )
        return outputs

    def critic(self, parameters: Tensor, obs: Tensor, actions: Tensor) -> Tensor:
        """The critic's outputs for actions, of which a state may have many.  [B, O], [..., B, D] -> [..., B, A]"""
        return self._critic(self.flat["q"].by_name(parameters), obs, actions)

    def target_critic(self, parameters: Tensor, obs: Tensor, actions: Tensor) -> Tensor:
        """The same of the target critic, which may be less precise.  [B, O], [..., B, D] -> [..., B, A]"""
        named = self.flat["q"].by_name(parameters)
        if self.bfloat16_targets:  # not the head: with 8 bits, neighbouring actions would have the same value
            hidden = {name: part.to(torch.bfloat16) for name, part in named.items() if name.startswith("encoder.")}
            named = {**named, **hidden}
        return self._critic(named, obs, actions)

    def _critic(self, named: Rows, obs: Tensor, actions: Tensor) -> Tensor:
        states = obs.expand(*actions.shape[:-1], obs.shape[-1])
        outputs: Tensor = functional_call(self.modules["q"], named, (states, actions))
        return outputs

    def values(self, parameters: Tensor, obs: Tensor, actions: Tensor) -> Tensor:
        """Q of the target critic.  [B, O], [..., B, D] -> [..., B]"""
        return self.head.values(self.target_critic(parameters, obs, actions))

    def sampled(self, state: Tree, obs: Tensor, noise: Tensor) -> Rows:
        """Actions of the target policy, and what the target critic says of them.  [..., B, O], [N, ..., B, D]"""
        mean, log_std = self.policy(state["policy_target"], obs)
        actions = sampled_actions(mean, log_std, noise)
        outputs = self.target_critic(state["q_target"], obs, actions)
        return {"old_mean": mean, "old_log_std": log_std, "actions": actions, "outputs": outputs}

    def step(self, name: str, state: Tree, gradient: Tensor, learning_rate: Tensor, max_norm: Tensor) -> Tree:
        """The state after one step of the parameters called `name` along all processes' gradient, clipped."""
        clipped = clip_by_norm(self.ranks.mean(gradient), max_norm)
        parameters, moments = self.optimizer.step(state[name], clipped, state["moments"][name], learning_rate)
        return {**state, name: parameters, "moments": {**state["moments"], name: moments}}
