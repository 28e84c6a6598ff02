"""PPO as policy iteration: evaluate a rollout, improve the policy on it.

Everything the agent learns with is one tree of tensors, `state`, and `updated` is a function of tensors,
`(state, rollout, orders, hyper) -> (state, metrics)`. `update` draws the random orders, calls it and writes the
new state where the networks see it.
"""

from typing import Any, Self

import torch
from torch import Tensor
from torch.func import functional_call

from minerva.compute.cuda_graph import InPlace
from minerva.compute.flat import FlatParameters
from minerva.compute.gradient import gradient, transformed
from minerva.compute.optim import Optimizer
from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.seeding import generator, restore_generator, seeded
from minerva.compute.tree import Tree, copy_, select, take
from minerva.data.normalizers import refreshed
from minerva.formulas.gaussian import gaussian_entropy, gaussian_log_prob, sampled_actions
from minerva.formulas.optimizers import clip_by_norm
from minerva.formulas.returns import discounted_returns, explained_variance, gae, normalize, td_errors
from minerva.loop.agent import Agent, Array, Rows, as_tensors, metrics_to_host
from minerva.networks import ActorCritic
from minerva.trainers.ppo.config import PPOConfig
from minerva.trainers.ppo.losses import (
    approximate_kl,
    clip_fraction,
    clipped_surrogate,
    clipped_value_loss,
    log_ratio,
    value_loss,
)
from minerva.trainers.ppo.metrics import METRICS

ACTOR = "actor_mean."
HYPER = ("gamma", "gae_lambda", "clip_ratio", "ent_coef", "vf_coef", "max_grad_norm")


class PPOAgent(Agent):
    """Acts, and learns from rollouts. Actions live in [-1, 1]; rollouts hold them as sampled, before clipping."""

    VMAPPED_METHODS = ("acted", "evaluated", "minibatch_step", "concluded")
    COMPILED_METHODS = ("acted", "minibatch_step")
    INPUTS = (*HYPER, "policy_lr", "target_kl")
    METRICS = METRICS

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        config: PPOConfig | None = None,
        *,
        seed: int = 0,
        device: str | torch.device = "cpu",
        ranks: Ranks = SINGLE,
    ) -> None:
        self.config, self.ranks = config or PPOConfig(), ranks
        self.device = torch.device(device)
        sizes = (self.config.policy_layer_sizes, self.config.critic_layer_sizes)
        with seeded(seed, "networks"):
            self.network = ActorCritic(obs_dim, act_dim, *sizes, self.config.initial_log_std).to(self.device)
        self.generator = generator(seed, "agent", self.device)
        self.optimizer = Optimizer(self.config.optimizer_type, self.config.sgd_momentum)
        self.flat = FlatParameters(self.network)
        self.state: Tree = {
            "parameters": self.flat.vector,
            "moments": self.optimizer.initial_moments(self.flat.vector),
            "normalizer": dict(self.network.obs_normalizer.named_buffers()),
        }

    @classmethod
    def from_config(
        cls,
        obs_dim: int,
        act_dim: int,
        config: PPOConfig,
        *,
        seed: int = 0,
        device: str | torch.device = "cpu",
        ranks: Ranks = SINGLE,
    ) -> Self:
        """How trainers and `load_policy` make an agent of any algorithm."""
        return cls(obs_dim, act_dim, config, seed=seed, device=device, ranks=ranks)

    # --- acting ---------------------------------------------------------------------------------------------

    def acted(self, state: Tree, obs: Tensor, noise: Tensor) -> Rows:
        """See `Agent`.  [..., O], [..., D] -> [..., D] twice"""
        normalized = functional_call(self.network.obs_normalizer, state["normalizer"], (obs,))
        parameters = self.flat.by_name(state["parameters"])
        policy = {name[len(ACTOR) :]: part for name, part in parameters.items() if name.startswith(ACTOR)}
        mean = functional_call(self.network.actor_mean, policy, (normalized,))
        actions = sampled_actions(mean, parameters["actor_logstd"], noise)
        return {"actions_raw": actions, "actions_executed": self.execute(actions)}

    def draw_actions(self, shape: tuple[int, ...]) -> Tensor:
        """See `Agent`."""
        size = (*shape, self.network.actor_logstd.shape[0])
        return torch.randn(size, generator=self.generator, device=self.device, dtype=self.flat.vector.dtype)

    @torch.no_grad()
    def sample(self, obs: Array | Tensor) -> Tensor:
        """One action for each observation, as drawn: it may lie outside [-1, 1].  [E, O] -> [E, D]"""
        return self.acted(self.state, self._tensor(obs), self.draw_actions(obs.shape[:-1]))["actions_raw"]

    @staticmethod
    def execute(actions: Tensor) -> Tensor:
        """What the environment gets of a sampled action."""
        return torch.clamp(actions, -1, 1)

    @torch.no_grad()
    def act(self, obs: Array | Tensor, deterministic: bool = False) -> Tensor:
        """Actions in [-1, 1].  [..., O] -> [..., D]"""
        if not deterministic:
            return self.execute(self.sample(obs))
        return self.execute(self.network.get_deterministic_action(self._tensor(obs)))

    def policy_action(self, obs: Array | Tensor, deterministic: bool = True) -> Tensor:
        """`act` under the name that all algorithms have for it: actions, and nothing else.  [..., O] -> [..., D]"""
        return self.act(obs, deterministic)

    # --- learning -------------------------------------------------------------------------------------------

    def calls(self, piece: str) -> int:
        """See `Agent`."""
        minibatches = -(-self.config.batch_size // self.config.minibatch_size)
        return {"acted": self.config.rollout_steps, "minibatch_step": self.config.update_epochs * minibatches}[piece]

    def update(self, rollout: Rows, remaining: float = 1.0) -> dict[str, float]:
        """Learn from a rollout [T, E, ...]; `remaining` scales the learning rate."""
        orders = self.draw_update(rollout)
        metrics = InPlace(self.updated, self.state, "off")(rollout, orders, self.hyper(remaining))
        return metrics_to_host(metrics, self.ranks, self.METRICS)[0]

    def draw_update(self, rollout: Rows) -> Tensor:
        """A random order of the rows for each epoch.  [epochs, rows]"""
        return self.draw_orders(self.config.update_epochs, rollout["rewards"].numel())

    def updated(self, state: Tree, rollout: Rows, orders: Tensor, hyper: Rows) -> tuple[Tree, Rows]:
        """The whole update as a function of tensors."""
        batch = self.evaluated(state, rollout, hyper)
        state, metrics = self.improved(state, batch, orders, hyper)
        return self.concluded(state, batch, rollout, metrics, hyper)

    def evaluated(self, state: Tree, rollout: Rows, hyper: Rows) -> Rows:
        """Advantages, returns and what the old policy said of each row.  [T, E, ...] -> [T * E, ...]"""
        mean, log_std, values = self._forward(state["parameters"], state["normalizer"], rollout["obs"])
        _, _, next_values = self._forward(state["parameters"], state["normalizer"], rollout["next_obs"])
        rewards, terminated, ended = rollout["rewards"], rollout["terminated"], rollout["ended"]
        if self.config.advantage_estimator == "gae":
            deltas = td_errors(rewards, values, next_values, terminated, hyper["gamma"])
            advantages = gae(deltas, ended, hyper["gamma"], hyper["gae_lambda"])
            # LaTeX: G_t = A_t + V(s_t)
            returns = advantages + values
        else:
            returns = discounted_returns(rewards, next_values, terminated, ended, hyper["gamma"])
            # LaTeX: A_t = G_t - V(s_t)
            advantages = returns - values
        batch = {
            "obs": rollout["obs"],
            "actions_raw": rollout["actions_raw"],
            "old_log_prob": gaussian_log_prob(mean, log_std, rollout["actions_raw"]),
            "old_values": values,
            "advantages": advantages,
            "returns": returns,
        }
        return {name: rows.flatten(0, 1) for name, rows in batch.items()}

    def improved(self, state: Tree, batch: Rows, orders: Tensor, hyper: Rows) -> tuple[Tree, Rows]:
        """Epochs of minibatch steps, until the KL estimate passes its target.

        The stop is a selection on the device. Where looking at it costs nothing, the epochs left are not run.
        """
        alive = torch.ones_like(hyper["gamma"], dtype=torch.bool)
        metrics: Rows = {}
        clipped = []
        for order in orders.unbind(-2):
            after, seen = state, metrics
            for index in order.split(self.config.minibatch_size, -1):
                after, seen = self.minibatch_step(after, batch, index, hyper)
                clipped.append(torch.where(alive, seen["losses/clipfrac"], torch.nan))
            state = select(alive, after, state)
            metrics = select(alive, seen, metrics) if metrics else seen
            if self.config.target_kl:
                alive = alive & (self.ranks.mean(metrics["losses/approx_kl"]) <= hyper["target_kl"])
                if alive.device.type == "cpu" and not transformed() and not alive.any():
                    break
        return state, {**metrics, "losses/clipfrac": torch.stack(clipped).nanmean(0)}

    def minibatch_step(self, state: Tree, batch: Rows, index: Tensor, hyper: Rows) -> tuple[Tree, Rows]:
        """Loss, gradient, clip, optimiser: one step on the rows of `index`."""
        rows = take(batch, index)
        slope, metrics = gradient(self.loss, state["parameters"], state["normalizer"], rows, hyper)
        slope = clip_by_norm(self.ranks.mean(slope), hyper["max_grad_norm"])
        parameters, moments = self.optimizer.step(state["parameters"], slope, state["moments"], hyper["learning_rate"])
        return {**state, "parameters": parameters, "moments": moments}, metrics

    def concluded(self, state: Tree, batch: Rows, rollout: Rows, metrics: Rows, hyper: Rows) -> tuple[Tree, Rows]:
        """The normaliser refreshed, which was frozen from collecting the rollout until here; the last metrics."""
        all_gathered = self.ranks.all_gathered
        explained = explained_variance(all_gathered(batch["old_values"]), all_gathered(batch["returns"]))
        metrics = {**metrics, "losses/explained_variance": explained, "charts/learning_rate": hyper["learning_rate"]}
        normalizer = refreshed(state["normalizer"], rollout["obs"].flatten(0, 1), self.ranks)
        return {**state, "normalizer": normalizer}, metrics

    def loss(self, parameters: Tensor, normalizer: Rows, rows: Rows, hyper: Rows) -> tuple[Tensor, Rows]:
        """Clipped surrogate, value loss and entropy bonus of one minibatch."""
        mean, log_std, values = self._forward(parameters, normalizer, rows["obs"])
        ratio_log = log_ratio(gaussian_log_prob(mean, log_std, rows["actions_raw"]), rows["old_log_prob"])
        # LaTeX: \rho_t = \exp(\ell_t)
        ratio = torch.exp(ratio_log)
        advantages = self._normalized(rows["advantages"]) if self.config.norm_adv else rows["advantages"]
        policy = clipped_surrogate(ratio, advantages, hyper["clip_ratio"])
        if self.config.clip_vloss:
            value = clipped_value_loss(values, rows["old_values"], rows["returns"], hyper["clip_ratio"])
        else:
            value = value_loss(values, rows["returns"])
        entropy = gaussian_entropy(log_std).mean()
        # LaTeX: \mathcal{L} = \mathcal{L}_{pg} - c_H \mathcal{H} + c_V \mathcal{L}_V
        total = policy - hyper["ent_coef"] * entropy + hyper["vf_coef"] * value
        return total, {
            "losses/policy_loss": policy,
            "losses/value_loss": value,
            "losses/entropy": entropy,
            "losses/old_approx_kl": -ratio_log.mean(),
            "losses/approx_kl": approximate_kl(ratio, ratio_log),
            "losses/clipfrac": clip_fraction(ratio, hyper["clip_ratio"]),
        }

    # --- what the agent owns --------------------------------------------------------------------------------

    def move(self, state: Tree) -> None:
        """See `Agent`."""
        self.state = state
        self.flat.move(state["parameters"])
        self.network.obs_normalizer.move(state["normalizer"])

    def state_dict(self) -> Tree:
        """Everything the agent needs to go on as if nothing had happened."""
        return {
            "network": dict(self.network.state_dict()),
            "moments": self.state["moments"],
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Tree) -> None:
        """Take over a state made by `state_dict`."""
        self.load_policy(state)
        copy_(self.state["moments"], state["moments"])
        restore_generator(self.generator, state["generator"])

    def load_policy(self, state: Tree) -> None:
        """Take over the networks and the normaliser alone: to act, or to start training from them."""
        self.network.load_state_dict(state["network"])

    # --- details --------------------------------------------------------------------------------------------

    def _normalized(self, advantages: Tensor) -> Tensor:
        """Normalised over the minibatches of all processes."""
        return self.ranks.local_shard(normalize(self.ranks.all_gathered(advantages)))

    def _forward(self, parameters: Tensor, normalizer: Rows, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The network as a function of its parameters and its normaliser's statistics."""
        buffers = {f"obs_normalizer.{name}": value for name, value in normalizer.items()}
        outputs: tuple[Tensor, Tensor, Tensor] = functional_call(
            self.network, {**self.flat.by_name(parameters), **buffers}, (obs,)
        )
        return outputs

    def hyper(self, remaining: float = 1.0) -> Rows:
        """The numbers an update uses, as tensors: a captured graph or stacked agents can vary them."""
        # LaTeX: \beta_u = f_u \beta_0
        learning_rate = remaining * self.config.policy_lr
        numbers: dict[str, Any] = {name: getattr(self.config, name) for name in HYPER}
        numbers |= {"learning_rate": learning_rate, "target_kl": self.config.target_kl or torch.inf}
        return as_tensors(numbers, self.flat.vector)

    def _tensor(self, obs: Array | Tensor) -> Tensor:
        return torch.as_tensor(obs, dtype=self.flat.vector.dtype, device=self.device)
