"""V-MPO as policy iteration: evaluate a rollout, weigh its samples (E-step), fit the policy to them (M-step).

Everything the agent learns with is one tree of tensors, `state`, and an update is a function of tensors:
`updated(state, rollout, noise, hyper) -> (state, metrics)` for a whole rollout, `fitted` for a batch.
"""

import math
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor
from torch.func import functional_call

from minerva.compute.cuda_graph import InPlace
from minerva.compute.flat import FlatParameters
from minerva.compute.gradient import gradient
from minerva.compute.optim import Optimizer
from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.seeding import generator, restore_generator, seeded
from minerva.compute.tree import Tree, copy_, select
from minerva.data.normalizers import RunningNorm, refreshed
from minerva.errors import ConfigError
from minerva.formulas.gaussian import gaussian_entropy, sampled_actions
from minerva.formulas.lagrange import positive, unconstrained
from minerva.formulas.optimizers import clip_by_norm
from minerva.formulas.returns import explained_variance, standardize
from minerva.loop.agent import Agent, Array, Rows, as_tensors, metrics_to_host
from minerva.trainers.vmpo.batch import completed, indices, minibatch
from minerva.trainers.vmpo.config import VMPOConfig
from minerva.trainers.vmpo.duals import dual, multipliers_moved
from minerva.trainers.vmpo.e_step import e_step
from minerva.trainers.vmpo.gaussian_mlp_policy import AllOutputs, Bounds, SquashedGaussianPolicy
from minerva.trainers.vmpo.losses import constraints, estimated, mean_over, penalized, spreads, value_loss, weighted_nll
from minerva.trainers.vmpo.metrics import METRICS

LOOP = ("num_envs", "rollout_steps", "normalize_rewards", "anneal_lr", "anneal_bounds")
"""Fields of the config that belong to the trainer's loop."""
HYPER = ("gamma", "gae_lambda", "epsilon_eta", "temperature_lr", "alpha_lr", "max_grad_norm", "old_policy_period")


class VMPOAgent(Agent):
    """Acts, and learns from rollouts or from batches. Rollouts hold actions as sampled, before squashing.

    `hyperparameters` are the fields of `VMPOConfig`, without those of the trainer's loop. An agent made by hand takes
    observations as they are unless `normalize_observations` is set.

    The trust region is around the old policy. With `old_policy` "rollout" that is the one that collected. With
    "updates" it is replaced every `old_policy_period` updates, also across rollouts, and is the one that collects, as
    in Song et al. (2019). With "kl" it is replaced as soon as a KL reaches its bound, or after that many updates.
    """

    VMAPPED_METHODS = ("acted", "evaluated", "standardized", "e_step", "m_step", "replaced", "diagnosed", "observed")
    COMPILED_METHODS = ("acted", "m_step")
    INPUTS = (*HYPER, "policy_lr", "value_lr", "epsilon_mu", "epsilon_sigma")
    METRICS = METRICS

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        action_low: Bounds = None,
        action_high: Bounds = None,
        device: str | torch.device = "cpu",
        *,
        seed: int = 0,
        ranks: Ranks = SINGLE,
        **hyperparameters: Any,
    ) -> None:
        for name in LOOP:
            if name in hyperparameters:
                raise ConfigError(f"{name} is a setting of VMPOTrainer and means nothing to an agent: leave it out.")
        self.config = config = VMPOConfig.from_dict({"normalize_observations": False, **hyperparameters})
        self.act_dim, self.device, self.ranks = act_dim, torch.device(device), ranks
        sizes = (obs_dim, act_dim, config.policy_layer_sizes, config.value_layer_sizes)
        kind = (config.shared_encoder, config.ppo_like_backbone)
        with seeded(seed, "networks"):
            self.policy = SquashedGaussianPolicy(
                *(*sizes, action_low, action_high, *kind),
                squash=config.squash,
                normalize_observations=config.normalize_observations,
                initial_log_std=config.initial_log_std,
            ).to(self.device)
        self.network = AllOutputs(self.policy)
        self.generator = generator(seed, "agent", self.device)
        self.optimizer = Optimizer(config.optimizer_type, config.sgd_momentum)
        self.flat = FlatParameters(self.policy)
        self.of_value = self.flat.mark(("value_encoder", "value_head"))
        self.state: Tree = self._initial_state()
        if config.old_policy != "rollout":
            self.state["old"] = {"parameters": self.flat.vector.clone(), "age": self.flat.vector.new_zeros(())}

    @classmethod
    def from_config(
        cls,
        obs_dim: int,
        act_dim: int,
        config: VMPOConfig,
        *,
        seed: int = 0,
        device: str | torch.device = "cpu",
        ranks: Ranks = SINGLE,
    ) -> Self:
        """How trainers and `load_policy` make an agent of any algorithm: its actions live in [-1, 1]."""
        settings = {name: value for name, value in config.to_dict().items() if name not in LOOP}
        agent = cls(obs_dim, act_dim, None, None, device, seed=seed, ranks=ranks, **settings)
        agent.config = config  # with the loop's settings
        return agent

    # --- acting ---------------------------------------------------------------------------------------------

    def acted(self, state: Tree, obs: Tensor, noise: Tensor) -> Rows:
        """See `Agent`.  [..., O], [..., D] -> [..., D] twice"""
        actions = sampled_actions(*self._policy_outputs(self._acting(state), state["normalizer"], obs), noise)
        return {"actions_raw": actions, "actions_executed": self.execute(actions)}

    def draw_actions(self, shape: tuple[int, ...]) -> Tensor:
        """See `Agent`."""
        size = (*shape, self.act_dim)
        return torch.randn(size, generator=self.generator, device=self.device, dtype=self.flat.vector.dtype)

    @torch.no_grad()
    def act(self, obs: Array | Tensor, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(action, value, mean, log_std) for one observation or a batch; the action is within the bounds.

        [..., O] -> [..., D], [..., 1], [..., D], [..., D]
        """
        seen = self._tensor(obs)
        parameters = self.state["parameters"] if deterministic else self._acting(self.state)
        mean, log_std = self._policy_outputs(parameters, self.state["normalizer"], seen)
        raw = mean if deterministic else sampled_actions(mean, log_std, self.draw_actions(seen.shape[:-1]))
        return self.policy.execute(raw), self.policy.get_value(seen), mean, log_std

    @torch.no_grad()
    def value(self, obs: Array | Tensor) -> Tensor:
        """Value of each observation.  [..., O] -> [..., 1]"""
        return self.policy.get_value(self._tensor(obs))

    @torch.no_grad()
    def sample(self, obs: Array | Tensor) -> Tensor:
        """One action for each observation, as drawn, before squashing.  [E, O] -> [E, D]"""
        return self.acted(self.state, self._tensor(obs), self.draw_actions(obs.shape[:-1]))["actions_raw"]

    def execute(self, actions: Tensor) -> Tensor:
        """What the environment gets of a sampled action."""
        return self.policy.execute(actions)

    @torch.no_grad()
    def policy_action(self, obs: Array | Tensor, deterministic: bool = True) -> Tensor:
        """Actions within the bounds, and nothing else.  [..., O] -> [..., D]"""
        actions = self.policy(self._tensor(obs))[0] if deterministic else self.sample(obs)
        return self.execute(actions)

    # --- learning -------------------------------------------------------------------------------------------

    def calls(self, piece: str) -> int:
        """See `Agent`."""
        config, steps = self.config, self.config.m_steps * self.config.minibatches
        return config.rollout_steps if piece == "acted" else config.updates_per_rollout * steps

    def update(self, batch: Mapping[str, Array | Tensor]) -> dict[str, float]:
        """Learn from a batch: `obs, actions, old_means, old_log_stds, returns, advantages`.

        Optional are `actions_raw` (pre-squash, used instead of the executed `actions`), `restarting_weights` (0 where
        an episode restarts) and `importance_weights`.
        """
        rows = {name: self._tensor(values) for name, values in batch.items()}
        rows = completed(rows, self.policy, self.config.topk_fraction)
        metrics = InPlace(self.fitted, self.state, "off")(rows, self._orders(rows["obs"].shape[0], 1), self.hyper())
        return metrics_to_host(metrics, self.ranks, self.METRICS)[0]

    def learn(self, rollout: Rows, remaining: float = 1.0) -> dict[str, float]:
        """Learn from a rollout [T, E, ...]; `remaining` scales the learning rates of policy and value."""
        noise = self.draw_update(rollout)
        metrics = InPlace(self.updated, self.state, "off")(rollout, noise, self.hyper(remaining))
        return metrics_to_host(metrics, self.ranks, self.METRICS)[0]

    def draw_update(self, data: Rows) -> Rows:
        """See `Agent`: the orders in which minibatches take the rows."""
        return self._orders(data["rewards"].numel(), self.config.updates_per_rollout)

    def _orders(self, rows: int, updates: int) -> Rows:
        """A random order of the rows for each pass, if it takes minibatches.  [updates, passes, rows]"""
        if not self.config.minibatch_size:
            return {}
        return {"orders": self.draw_orders(updates, self.config.m_steps, rows)}

    def updated(self, state: Tree, rollout: Rows, noise: Rows, hyper: Rows) -> tuple[Tree, Rows]:
        """A rollout's updates as a function of tensors; the normaliser is refreshed after them."""
        batch = self.evaluated(state, rollout, hyper)
        state, metrics = self.fitted(state, batch, noise, hyper, self.config.updates_per_rollout)
        over = {"health/kl_mean": metrics["kl/mean_sel"] / hyper["bounds"][..., 0]}
        over["health/kl_std"] = metrics["kl/std_sel"] / hyper["bounds"][..., 1]
        return self.observed(state, batch), {**metrics, **over, "charts/learning_rate": hyper["policy_lr"]}

    def fitted(self, state: Tree, batch: Rows, noise: Rows, hyper: Rows, updates: int = 1) -> tuple[Tree, Rows]:
        """`updates` updates on the same batch, replacing the old policy when its time has come."""
        before, rows = state["parameters"], self.standardized(batch)
        metrics: Rows = {}
        for steps in indices(self.config, noise, updates):
            state, target, e_metrics = self.e_step(state, rows, hyper)
            m_metrics: Rows = {}
            for index in steps:
                state, m_metrics = self.m_step(state, rows, target, hyper, *index)
            if "old" in state:
                state, rows = self.replaced(state, rows, target, hyper)
            metrics = {**m_metrics, **e_metrics}
        return state, {**metrics, **self.diagnosed(before, state, batch)}

    def evaluated(self, state: Tree, rollout: Rows, hyper: Rows) -> Rows:
        """Advantages, returns and what the old policy said of each row.  [T, E, ...] -> [T * E, ...]"""
        mean, log_std, values = self._outputs(state, rollout["obs"])
        _, _, next_values = self._outputs(state, rollout["next_obs"])
        if "old" in state:
            mean, log_std = self._policy_outputs(state["old"]["parameters"], state["normalizer"], rollout["obs"])
        advantages, returns = estimated(self.config.advantage_estimator, rollout, values, next_values, hyper)
        batch = {
            "obs": rollout["obs"],
            "actions_raw": rollout["actions_raw"],
            "old_means": mean,
            "old_log_stds": log_std,
            "returns": returns,
            "advantages": advantages,
            "restarting_weights": torch.ones_like(returns),
            "importance_weights": torch.ones_like(returns),
        }
        return {name: rows.flatten(0, 1) for name, rows in batch.items()}

    def standardized(self, batch: Rows) -> Rows:
        """The batch with its advantages at zero mean and unit spread, if the config wants that."""
        if not self.config.normalize_advantages:
            return batch
        advantages = standardize(self.ranks.all_gathered(batch["advantages"]))
        return {**batch, "advantages": self.ranks.local_shard(advantages)}

    def e_step(self, state: Tree, batch: Rows, hyper: Rows) -> tuple[Tree, Rows, Rows]:
        """The temperature moved, and the rows weighed by it."""
        moved = e_step(state["temperature"], batch, hyper, self.config, self.optimizer, self.ranks)
        return {**state, "temperature": moved[0]}, *moved[1:]

    def m_step(self, state: Tree, batch: Rows, target: Rows, hyper: Rows, *index: Tensor) -> tuple[Tree, Rows]:
        """One step on all rows, or on those of an index: multipliers first, then policy and value."""
        if index:
            batch, target = minibatch(batch, target, index[0], self.ranks)
        learned = {name: state[name] for name in ("multipliers", "normalizer")}
        slope, seen = gradient(self.loss, state["parameters"], learned, batch, target, hyper)
        slope = clip_by_norm(self.ranks.mean(slope), hyper["max_grad_norm"])
        rates = torch.where(self.of_value, hyper["value_lr"], hyper["policy_lr"])
        parameters, moments = self.optimizer.step(state["parameters"], slope, state["moments"], rates)
        after = {"parameters": parameters, "moments": moments, "multipliers": seen["multipliers"]}
        return {**state, **after}, seen["metrics"]

    def loss(self, parameters: Tensor, state: Tree, batch: Rows, target: Rows, hyper: Rows) -> tuple[Tensor, Tree]:
        """Weighted likelihood, KL penalties and value loss; the multipliers' step is taken on the way."""
        mean, log_std, values = self._outputs({**state, "parameters": parameters}, batch["obs"])
        kls, kl_metrics = constraints(mean, log_std, batch, target["selected"], target["count"])
        of_all = self.ranks.mean(kls.detach())
        multipliers, alpha_loss = multipliers_moved(state["multipliers"], of_all, hyper, self.config, self.optimizer)
        alphas = positive(multipliers["parameter"]).detach()
        log_prob = self.policy.log_prob_raw(mean, log_std, batch["actions_raw"]).squeeze(-1)
        nll = weighted_nll(target["weights"], log_prob)
        policy, mean_penalty, std_penalty = penalized(nll, alphas, kls)
        value = value_loss(values, batch["returns"])
        # LaTeX: \mathcal{L} = \mathcal{L}_\pi + \mathcal{L}_V
        total = policy + value
        metrics = {
            "loss/total": total,
            "loss/value": value,
            "loss/policy": policy,
            "loss/policy_weighted_nll": nll,
            "loss/policy_kl_mean_pen": mean_penalty,
            "loss/policy_kl_std_pen": std_penalty,
            "loss/alpha": alpha_loss,
            **kl_metrics,
            "vmpo/alpha_mu": alphas[0],
            "vmpo/alpha_sigma": alphas[1],
            "train/entropy": mean_over(gaussian_entropy(log_std), target["selected"], target["count"]),
        }
        return total, {"multipliers": multipliers, "metrics": metrics}

    def replaced(self, state: Tree, batch: Rows, target: Rows, hyper: Rows) -> tuple[Tree, Rows]:
        """Replace the old policy after `old_policy_period` updates or, with "kl", once a KL reaches its bound.

        What the batch says of the old policy is then taken from the policy that is now old.
        """
        mean, log_std = self._policy_outputs(state["parameters"], state["normalizer"], batch["obs"])
        age = state["old"]["age"] + 1
        due = age >= hyper["old_policy_period"]
        if self.config.old_policy == "kl":
            kls, _ = constraints(mean, log_std, batch, target["selected"], target["count"])
            due = due | (self.ranks.mean(kls) >= hyper["bounds"]).any()
        now = {"parameters": state["parameters"], "age": torch.zeros_like(age)}
        old = select(due, now, {"parameters": state["old"]["parameters"], "age": age})
        said = {"old_means": mean, "old_log_stds": log_std}
        return {**state, "old": old}, {**batch, **select(due, said, {name: batch[name] for name in said})}

    def diagnosed(self, before: Tensor, state: Tree, batch: Rows) -> Rows:
        """What the update did to the parameters from `before` it, and what it learned from."""
        mean, _, values = self._outputs(state, batch["obs"])
        advantages, returns, values = map(self.ranks.all_gathered, (batch["advantages"], batch["returns"], values))
        return {
            "train/param_delta": torch.sqrt(((state["parameters"] - before) ** 2).sum()),
            "train/mean_abs_action": self.policy.execute(mean).abs().mean(),
            **spreads({"adv/raw": advantages, "returns/raw": returns, "value/pred": values}),
            "value/explained_var": explained_variance(values, returns),
        }

    def observed(self, state: Tree, batch: Rows) -> Tree:
        """The normaliser refreshed: it was frozen from collecting the rollout until here."""
        return {**state, "normalizer": refreshed(state["normalizer"], batch["obs"], self.ranks)}

    # --- what the agent owns --------------------------------------------------------------------------------

    @property
    def eta(self) -> float:
        """The temperature."""
        return float(positive(self.state["temperature"]["parameter"]))

    @property
    def alpha_mu(self) -> float:
        """The multiplier of the mean's KL."""
        return float(positive(self.state["multipliers"]["parameter"])[0])

    @property
    def alpha_sigma(self) -> float:
        """The multiplier of the spread's KL."""
        return float(positive(self.state["multipliers"]["parameter"])[1])

    def move(self, state: Tree) -> None:
        """See `Agent`."""
        self.state = state
        self.flat.move(state["parameters"])
        if isinstance(self.policy.obs_normalizer, RunningNorm):
            self.policy.obs_normalizer.move(state["normalizer"])

    def state_dict(self) -> Tree:
        """Everything the agent needs to go on as if nothing had happened."""
        owned = {name: part for name, part in self.state.items() if name not in ("parameters", "normalizer")}
        return {"policy": dict(self.policy.state_dict()), **owned, "generator": self.generator.get_state()}

    def load_state_dict(self, state: Tree) -> None:
        """Take over a state made by `state_dict`."""
        self.load_policy(state)
        for name in self.state.keys() - {"parameters", "normalizer"}:
            copy_(self.state[name], state[name])
        restore_generator(self.generator, state["generator"])

    def load_policy(self, state: Tree) -> None:
        """Take over the networks and the normaliser alone: to act, or to start training from them."""
        self.policy.load_state_dict(state["policy"])
        if "old" in self.state:
            self.state["old"]["parameters"].copy_(self.flat.vector)

    # --- details --------------------------------------------------------------------------------------------

    def _initial_state(self) -> Tree:
        vector = self.flat.vector
        temperature = vector.new_tensor(unconstrained(self.config.temperature_init))
        multipliers = vector.new_tensor([unconstrained(1.0), unconstrained(1.0)])
        return {
            "parameters": vector,
            "moments": self.optimizer.initial_moments(vector),
            "temperature": dual(temperature, self.optimizer),
            "multipliers": dual(multipliers, self.optimizer),
            "normalizer": dict(self.policy.obs_normalizer.named_buffers()),
        }

    def _acting(self, state: Tree) -> Tensor:
        """Parameters of the policy that collects: with `old_policy` "updates" the old one, as Song et al. do."""
        owner: Rows = state["old"] if self.config.old_policy == "updates" else state
        return owner["parameters"]

    def _outputs(self, state: Tree, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, log-std and value [...] as functions of the parameters and of the normaliser's statistics."""
        named = self._named(state["parameters"], state["normalizer"]).items()
        mean, log_std, value = functional_call(self.network, {f"policy.{name}": part for name, part in named}, obs)
        return mean, log_std, value.squeeze(-1)

    def _policy_outputs(self, parameters: Tensor, normalizer: Rows, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-std alone."""
        outputs: tuple[Tensor, Tensor] = functional_call(self.policy, self._named(parameters, normalizer), obs)
        return outputs

    def _named(self, parameters: Tensor, normalizer: Rows) -> Rows:
        buffers = {f"obs_normalizer.{name}": value for name, value in normalizer.items()}
        return {**self.flat.by_name(parameters), **buffers}

    def hyper(self, remaining: float = 1.0) -> Rows:
        """See `Agent`."""
        numbers: dict[str, Any] = {name: getattr(self.config, name) for name in HYPER}
        # LaTeX: \beta'_\alpha = \frac{\beta_\alpha}{\sqrt{M}}
        alpha_lr = self.config.alpha_lr / math.sqrt(self.config.m_steps)
        numbers["alpha_lr"] = alpha_lr
        numbers["policy_lr"], numbers["value_lr"] = remaining * self.config.policy_lr, remaining * self.config.value_lr
        share = max(remaining, 0.01) ** 2 if self.config.anneal_bounds else 1.0
        numbers["bounds"] = [share * self.config.epsilon_mu, share * self.config.epsilon_sigma]
        return as_tensors(numbers, self.flat.vector)

    def _tensor(self, values: Array | Tensor) -> Tensor:
        return torch.as_tensor(values, dtype=self.flat.vector.dtype, device=self.device)
