"""Policy evaluation: the critic's target, from the target networks, and one gradient step towards it."""

import torch
from torch import Tensor

from minerva.compute.gradient import gradient
from minerva.compute.tree import Tree
from minerva.formulas.gaussian import gaussian_log_prob, sampled_actions
from minerva.formulas.returns import n_step_sums, retrace, td_errors, trace_coefficients
from minerva.trainers.mpo.learner import Learner, Rows


class Evaluation:
    """`(state, batch, target, hyper) -> (state, metrics)`. Rows of the batch are time first, [T, B, ...]."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.head = learner.head

    def __call__(self, state: Tree, batch: Rows, target: Tensor, hyper: Rows) -> tuple[Tree, Rows]:
        """The critic one gradient step closer to its target for the first row."""
        slope, metrics = gradient(self.loss, state["q"], batch["obs"][0], batch["actions_executed"][0], target)
        after = self.learner.step("q", state, slope, hyper["q_lr"], hyper["max_grad_norm"])
        return after, {**metrics, "target": target}

    def targets(self, state: Tree, batch: Rows, noise: Rows, hyper: Rows) -> tuple[Tensor, Rows]:
        """The critic's target, and the samples in the first row's states that the E-step will weigh."""
        obs = batch["obs"][0]
        if "behaviour_logp" in batch:
            here = self.learner.sampled(state, obs, noise["actions"])
            return self.retrace_target(state, batch, noise["critic"], hyper), here
        rewards, discount, terminated, next_obs = self.following(batch, hyper)
        # the target networks see both states in one pass
        both_noise = torch.stack((noise["critic"], noise["actions"]), 1)
        both = self.learner.sampled(state, torch.stack((next_obs, obs)), both_noise)
        target = self.head.td_target(rewards, discount, terminated, both["outputs"][:, 0])
        here = {name: value[1] if name.startswith("old") else value[:, 1] for name, value in both.items()}
        return target, here

    def loss(self, parameters: Tensor, obs: Tensor, actions: Tensor, target: Tensor) -> tuple[Tensor, Rows]:
        """How far the critic is from its target.  [B, O], [B, D], target -> []"""
        outputs = self.learner.critic(parameters, obs, actions)
        loss = self.head.loss(outputs, target)
        return loss, {"loss/q": loss, "outputs": outputs}

    def following(self, batch: Rows, hyper: Rows) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rewards until the n-th row or the episode's end; discount, end and observation of what follows."""
        rewards, discount, used = n_step_sums(batch["rewards"], batch["ended"], hyper["gamma"])
        last = used.long().unsqueeze(0) - 1
        terminated = torch.take_along_dim(batch["terminated"], last, 0).squeeze(0)
        next_obs = torch.take_along_dim(batch["next_obs"], last.unsqueeze(-1), 0).squeeze(0)
        return rewards, discount, terminated, next_obs

    def retrace_target(self, state: Tree, batch: Rows, noise: Tensor, hyper: Rows) -> Tensor:
        """Retrace along the sequence, for its first row."""
        policy, q = state["policy_target"], state["q_target"]
        steps, size = batch["rewards"].shape
        by_time = noise.unflatten(1, (size, steps)).transpose(1, 2)  # drawn for [B * T] rows, used as [T, B]
        next_actions = sampled_actions(*self.learner.policy(policy, batch["next_obs"]), by_time)
        next_q = self.learner.values(q, batch["next_obs"], next_actions)
        # LaTeX: V(s_{t+1}) = \frac{1}{K} \sum_k Q'(s_{t+1}, a_k)
        next_values = next_q.mean(0)
        values = self.learner.values(q, batch["obs"], batch["actions_executed"])
        deltas = td_errors(batch["rewards"], values, next_values, batch["terminated"], hyper["gamma"])
        log_prob = gaussian_log_prob(*self.learner.policy(policy, batch["obs"]), batch["actions_raw"])
        traces = trace_coefficients(log_prob, batch["behaviour_logp"], hyper["retrace_lambda"])
        return self.head.encoded(retrace(values, deltas, traces, batch["ended"], hyper["gamma"]))
