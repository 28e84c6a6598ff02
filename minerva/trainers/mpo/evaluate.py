"""Policy evaluation: the critic's target, from the target networks, and one gradient step towards it.

The critic predicts a value, or a distribution of the return over atoms: its head decodes outputs to values and encodes
targets. A target is built either from the outputs at the next state (`td_target`) or from a scalar return (`encoded`,
for Retrace). A distributional critic encodes a scalar return as two-hot or as a histogram around it.
"""

import torch
from torch import Tensor

from minerva.compute.functional import descend
from minerva.compute.optim import Optimizer
from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.torch_private import multiplies_bfloat16
from minerva.compute.tree import Tree
from minerva.distributions import Gaussian
from minerva.formulas.categorical import cross_entropy, expectation, expected_value, gaussian_histogram, projection
from minerva.formulas.gaussian import mirrored
from minerva.formulas.optimizers import decayed
from minerva.formulas.returns import bootstrapped, n_step_transition, retrace, td_errors, trace_coefficients
from minerva.networks.choices import ChoiceCritic
from minerva.networks.critics import Critic, Critics, FunctionalCritics
from minerva.networks.policies import FunctionalPolicy
from minerva.trainers.mpo.config import MPOConfig
from minerva.trainers.mpo.losses import critic_loss, reduced_values

Rows = dict[str, Tensor]


class PolicyEvaluation:
    """`(state, batch, target, hyper) -> (state, metrics)`. The batch has time first, and rows for all critic steps.

    Shapes: C critics, K critic steps on B rows each, [T, K * B, ...].
    """

    def __init__(
        self,
        policy: FunctionalPolicy,
        critic: Critic | ChoiceCritic | Critics,
        head: "ScalarHead",
        config: MPOConfig,
        optimizer: Optimizer,
        ranks: Ranks = SINGLE,
    ) -> None:
        self.policy, self.critics, self.head = policy, FunctionalCritics(critic), head
        self.config = config
        self.mirrored = config.mirrored_samples and isinstance(policy.distribution, Gaussian)
        self.drawn_actions = -(-config.action_samples // 2) if self.mirrored else config.action_samples
        self.weights = self.critics.flat.matrices()
        vector, given = self.critics.flat.vector, config.bfloat16_targets
        fast = vector.dtype == torch.float32 and multiplies_bfloat16(vector.device)
        self.bfloat16 = fast if given is None else given
        """Whether the target critics' hidden layers are evaluated in bfloat16."""
        self.optimizer, self.ranks = optimizer, ranks

    def __call__(self, state: Tree, batch: Rows, target: Tensor, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state after K gradient steps of the critics towards the targets of first rows; and metrics."""
        q, moments = state["q"], state["moments"]["q"]
        rows = (batch["obs"][0], batch["actions_executed"][0], target)
        for obs, actions, part in zip(*(row.chunk(self.config.critic_steps) for row in rows), strict=True):
            before = q
            q, moments, metrics = descend(
                self.loss,
                q,
                moments,
                *(obs, actions, part),
                optimizer=self.optimizer,
                learning_rate=hyper["q_lr"],
                max_norm=hyper["max_grad_norm"],
                ranks=self.ranks,
            )
            if self.config.weight_decay > 0:
                q = decayed(q, before, hyper["weight_decay"] * self.weights, hyper["q_lr"])
        metrics = {**metrics, **self.head.health(target), "target": target}
        return {**state, "q": q, "moments": {**state["moments"], "q": moments}}, metrics

    def loss(self, parameters: Tensor, obs: Tensor, actions: Tensor, target: Tensor) -> tuple[Tensor, Rows]:
        """Return the loss of all critics and metrics.  [B, O], [B, D], target -> []"""
        outputs = self.outputs(parameters, obs, actions)
        losses = torch.stack([self.head.loss(part, target) for part in outputs])
        # LaTeX: \mathcal{L}_Q = \sum_c \mathcal{L}_{Q,c}
        loss = losses.sum()
        return loss, {"loss/q": loss, "outputs": outputs}

    def outputs(self, parameters: Tensor, obs: Tensor, actions: Tensor) -> Tensor:
        """Return all critics' outputs for the actions that were taken.  [B, O], [B, D] -> [C, B, A]"""
        return self.critics(parameters, obs, actions)

    # --- targets --------------------------------------------------------------------------------------------

    def targets(self, state: Tree, batch: Rows, noise: Rows, hyper: Rows) -> tuple[Tensor, Tree]:
        """Return the critic's target, and the E-step's samples in the first row's states: `old`, `actions`, `q`."""
        obs = self.improved_states(batch)
        around = mirrored(noise["actions"], self.config.action_samples) if self.mirrored else noise["actions"]
        old, actions = self.sampled(state, obs, around)
        if "behaviour_logp" in batch:
            samples = {"old": old, "actions": actions, "q": self.target_values(state, obs, actions)}
            return self.retrace_target(state, batch, noise["critic"], hyper), samples
        rewards, discount, terminated, next_obs = n_step_transition(batch, hyper["gamma"])
        _, next_actions = self.sampled(state, next_obs, noise["critic"])
        outputs, next_outputs = self.target_outputs(state["q_target"], (obs, actions), (next_obs, next_actions))
        samples = {"old": old, "actions": actions, "q": self.head.values(outputs, self.smaller(state))}
        return self.head.td_target(rewards, discount, terminated, next_outputs, self.smaller(state)), samples

    def improved_states(self, batch: Rows) -> Tensor:
        """Return the states in which the policy is improved: those of the last critic step.  -> [B, O]"""
        return batch["obs"][0].chunk(self.config.critic_steps)[-1]

    def smaller(self, state: Tree) -> Tensor:
        """Return whether an action's value is the smaller of the critics', or their mean.  -> bool []"""
        terminated = state["counters"]["terminated"]
        rule = self.config.critic_reduction
        return terminated > 0 if rule == "auto" else torch.full_like(terminated, rule == "min", dtype=torch.bool)

    def sampled(self, state: Tree, obs: Tensor, noise: Tensor) -> tuple[Rows, Tensor]:
        """Return the target policy's parameters and actions.  [B, O], [N, B, D] -> [B, D] each, [N, B, D]"""
        old = self.policy.params(state["policy_target"], obs)
        return old, self.policy.distribution.sample(old, noise)

    def retrace_target(self, state: Tree, batch: Rows, noise: Tensor, hyper: Rows) -> Tensor:
        """Return Retrace's target for the first row of each sequence, encoded by the head."""
        steps, size = batch["rewards"].shape
        by_time = noise.unflatten(1, (size, steps)).transpose(1, 2)  # drawn as [B * T] rows, used as [T, B]
        _, next_actions = self.sampled(state, batch["next_obs"], by_time)
        next_q = self.target_values(state, batch["next_obs"], next_actions)
        # LaTeX: V(s_{t+1}) = \frac{1}{K} \sum_k Q'(s_{t+1}, a_k)
        next_values = next_q.mean(0)
        return self.retraced(state, batch, next_values, hyper)

    def retraced(self, state: Tree, batch: Rows, next_values: Tensor, hyper: Rows) -> Tensor:
        """Return Retrace's target for the first row of each sequence, from the values of next states [T, B]."""
        values = self.target_values(state, batch["obs"], batch["actions_executed"])
        deltas = td_errors(batch["rewards"], values, next_values, batch["terminated"], hyper["gamma"])
        params = self.policy.params(state["policy_target"], batch["obs"])
        log_prob = self.policy.distribution.log_prob(params, batch["actions_raw"])
        traces = trace_coefficients(log_prob, batch["behaviour_logp"], hyper["retrace_lambda"])
        return self.head.encoded(retrace(values, deltas, traces, batch["ended"], hyper["gamma"]))

    def target_values(self, state: Tree, obs: Tensor, actions: Tensor) -> Tensor:
        """Return Q' of one or more actions per state.  [B, O], [..., B, D] -> [..., B]"""
        (outputs,) = self.target_outputs(state["q_target"], (obs, actions))
        return self.head.values(outputs, self.smaller(state))

    def target_outputs(self, parameters: Tensor, *pairs: tuple[Tensor, Tensor]) -> list[Tensor]:
        """Return the target critics' outputs for each of `pairs`, states and actions, which are evaluated in one call.

        [B, O] and [..., B, D] -> [C, ..., B, A] for each pair
        """
        shapes = [actions.shape[:-1] for _, actions in pairs]
        obs = torch.cat([states.flatten(0, -2) for states, _ in pairs])
        numbers = torch.arange(len(obs), device=obs.device).split([states.shape[:-1].numel() for states, _ in pairs])
        each = [number.expand(shape.numel() // len(number), -1) for number, shape in zip(numbers, shapes, strict=True)]
        executed = torch.cat([actions.flatten(0, -2) for _, actions in pairs])
        states = torch.cat([number.flatten() for number in each])
        outputs = self.critics(parameters, obs, executed, states, bfloat16=self.bfloat16)
        parts = outputs.split([shape.numel() for shape in shapes], 1)
        return [part.unflatten(1, shape) for part, shape in zip(parts, shapes, strict=True)]


class ExactEvaluation(PolicyEvaluation):
    """Evaluation of a policy of one choice: expectations are sums over all choices, and no action is sampled.

    The critics have outputs for each of the L choices, [C, B, L, A].
    """

    def outputs(self, parameters: Tensor, obs: Tensor, actions: Tensor) -> Tensor:
        """Return all critics' outputs for the choices that were made.  [B, O], [B, 1] -> [C, B, A]"""
        return _chosen(self.critics(parameters, obs), actions)

    def targets(self, state: Tree, batch: Rows, noise: Rows, hyper: Rows) -> tuple[Tensor, Tree]:
        """Return the critic's target, and for the E-step all choices: `old`, `actions`, `q` and `log_prior` [L, B]."""
        obs, smaller = self.improved_states(batch), self.smaller(state)
        old, actions, log_prior = self.all_choices(state, obs)
        if "behaviour_logp" in batch:
            outputs, next_outputs = self.all_outputs(state, obs, batch["next_obs"])
            _, _, next_log_prior = self.all_choices(state, batch["next_obs"])
            next_values = expectation(self.head.values(next_outputs, smaller), next_log_prior)
            target = self.retraced(state, batch, next_values, hyper)
        else:
            rewards, discount, terminated, next_obs = n_step_transition(batch, hyper["gamma"])
            outputs, next_outputs = self.all_outputs(state, obs, next_obs)
            _, _, next_log_prior = self.all_choices(state, next_obs)
            target = self.head.td_target(rewards, discount, terminated, next_outputs, smaller, next_log_prior)
        q = self.head.values(outputs, smaller)
        return target, {"old": old, "actions": actions, "q": q, "log_prior": log_prior}

    def all_choices(self, state: Tree, obs: Tensor) -> tuple[Rows, Tensor, Tensor]:
        """Return the target policy's logits, all choices and their log-probabilities.  -> [B, L], [L, B, 1], [L, B]"""
        old = self.policy.params(state["policy_target"], obs)
        choices = torch.arange(old["logits"].shape[-1], device=obs.device)
        actions = choices.view(-1, *(1,) * obs.ndim).expand(-1, *obs.shape[:-1], 1)
        return old, actions, self.policy.distribution.log_prob(old, actions)

    def all_outputs(self, state: Tree, *parts: Tensor) -> list[Tensor]:
        """Return the target critics' outputs for all choices in several parts' states, evaluated in one call.

        [..., O] -> [C, L, ..., A] for each part
        """
        shapes = [obs.shape[:-1] for obs in parts]
        obs = torch.cat([part.flatten(0, -2) for part in parts])
        outputs = self.critics(state["q_target"], obs, bfloat16=self.bfloat16).transpose(1, 2)
        each = outputs.split([shape.numel() for shape in shapes], 2)
        return [part.unflatten(2, shape) for part, shape in zip(each, shapes, strict=True)]

    def target_values(self, state: Tree, obs: Tensor, actions: Tensor) -> Tensor:
        """Return Q' of the choice made in each state.  [..., O], [..., 1] -> [...]"""
        outputs = self.critics(state["q_target"], obs, bfloat16=self.bfloat16)
        return self.head.values(_chosen(outputs, actions), self.smaller(state))


def _chosen(outputs: Tensor, actions: Tensor) -> Tensor:
    """Return the critics' outputs for one choice in each state.  [C, ..., L, A], [..., 1] -> [C, ..., A]"""
    return torch.take_along_dim(outputs, actions.long().unsqueeze(-1).unsqueeze(0), -2).squeeze(-2)


# --- heads ------------------------------------------------------------------------------------------------------


class ScalarHead:
    """The head of a critic with one output: the value itself."""

    outputs = 1

    def decoded(self, outputs: Tensor) -> Tensor:
        """Return a critic's values from its outputs.  [..., 1] -> [...]"""
        return outputs.squeeze(-1)

    def values(self, outputs: Tensor, smaller: Tensor) -> Tensor:
        """Return Q from the critics' outputs: the smaller value, or the mean.  [C, ..., A] -> [...]"""
        values = self.decoded(outputs)
        return values[0] if values.shape[0] == 1 else reduced_values(values, smaller)

    def td_target(
        self,
        rewards: Tensor,
        discount: Tensor,
        terminated: Tensor,
        next_outputs: Tensor,
        smaller: Tensor,
        log_prior: Tensor | None = None,
    ) -> Tensor:
        """Return the TD target, from the outputs for N next actions.  [B] thrice, [C, N, B, A], [] -> target

        The actions are samples, or all choices with their log-probabilities `log_prior` [N, B].
        """
        next_q = self.values(next_outputs, smaller)
        if log_prior is not None:
            return self.encoded(bootstrapped(rewards, discount, expectation(next_q, log_prior), terminated))
        # LaTeX: V(s'_b) = \frac{1}{N} \sum_i Q'(s'_b, a'_{b,i})
        next_values = next_q.mean(0)
        return self.encoded(bootstrapped(rewards, discount, next_values, terminated))

    def encoded(self, returns: Tensor) -> Tensor:
        """Return the target for a scalar return: the return itself.  [B] -> [B]"""
        return returns

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the mean squared error of a critic's values.  [B, 1], [B] -> []"""
        return critic_loss(self.decoded(outputs), target)

    def health(self, target: Tensor) -> Rows:
        """Return what the targets tell about the critic's range: nothing, since a number has none."""
        return {}


class HistogramHead(ScalarHead):
    """The head of a critic with logits over atoms; the target is a Gaussian around the expected return (HL-Gauss)."""

    def __init__(self, atoms: Tensor) -> None:
        self.atoms = atoms
        self.outputs = atoms.shape[0]

    def decoded(self, outputs: Tensor) -> Tensor:
        """Return the mean of each distribution.  [..., A] -> [...]"""
        return expected_value(outputs, self.atoms)

    def encoded(self, returns: Tensor) -> Tensor:
        """Return the Gaussian histogram around a scalar return.  [B] -> [B, A]"""
        return gaussian_histogram(returns, self.atoms)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy of the outputs from the target.  [B, A], [B, A] -> []"""
        return cross_entropy(outputs, target)

    def health(self, target: Tensor) -> Rows:
        """Return the share of targets that lie at an end of the atoms' range, or beyond it.  [B, A] -> []"""
        at_limit = torch.maximum(target[..., 0], target[..., -1]) > 0.5  # a histogram within has less than half there
        return {"health/targets_at_limit": at_limit.to(target.dtype).mean()}


class CategoricalHead(HistogramHead):
    """The head of a critic with logits over atoms; the target is a projected distribution (C51, DMPO)."""

    def td_target(
        self,
        rewards: Tensor,
        discount: Tensor,
        terminated: Tensor,
        next_outputs: Tensor,
        smaller: Tensor,
        log_prior: Tensor | None = None,
    ) -> Tensor:
        """Return the distribution averaged over N next actions, its atoms shifted and projected.  -> [B, A]"""
        if log_prior is not None:
            mixture = expectation(torch.softmax(next_outputs[0], -1), log_prior.unsqueeze(-1))
        else:
            # LaTeX: \bar{p}_{b,k} = \frac{1}{N} \sum_i \frac{\exp(\ell_{b,i,k})}{\sum_l \exp(\ell_{b,i,l})}
            mixture = torch.softmax(next_outputs[0], -1).mean(0)
        rewards, discount, terminated = (part.unsqueeze(-1) for part in (rewards, discount, terminated))
        positions = bootstrapped(rewards, discount, self.atoms, terminated)
        return projection(positions, mixture, self.atoms)

    def encoded(self, returns: Tensor) -> Tensor:
        """Return the two-hot encoding of a scalar return.  [B] -> [B, A]"""
        return projection(returns.unsqueeze(-1), torch.ones_like(returns).unsqueeze(-1), self.atoms)


def make_head(config: MPOConfig, device: torch.device) -> ScalarHead:
    """Return the critic's head that the config selects."""
    if config.critic == "scalar":
        return ScalarHead()
    atoms = torch.linspace(-config.critic_range, config.critic_range, config.critic_atoms, device=device)
    return HistogramHead(atoms) if config.critic == "hl_gauss" else CategoricalHead(atoms)
