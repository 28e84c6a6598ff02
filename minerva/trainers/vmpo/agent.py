"""V-MPO's agent: acting, and the update: evaluate a rollout, weight its rows (E-step), fit the policy (M-step)."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor

from minerva.compute.seeding import restore_generator
from minerva.compute.tree import Tree, copy_
from minerva.data.horizon import discount_metric, settings_before_episodes, with_settings_of
from minerva.data.normalizers import RunningNorm, begun, blind, refreshed
from minerva.data.pace import with_pace
from minerva.errors import ConfigError
from minerva.formulas.exploration import first_log_std
from minerva.formulas.lagrange import positive, unconstrained
from minerva.formulas.returns import explained_variance
from minerva.loop.agent import Agent, Array, Rows, metrics_to_host
from minerva.networks.bounds import Bound
from minerva.networks.observations import ObservationEncoder
from minerva.networks.policies import FunctionalPolicy, SquashedGaussianPolicy
from minerva.presets import preset_for
from minerva.spec import ActionKind, ActionSpec
from minerva.trainers.vmpo.config import VMPOConfig
from minerva.trainers.vmpo.evaluate import PolicyEvaluation
from minerva.trainers.vmpo.improve import PolicyImprovement, dual
from minerva.trainers.vmpo.losses import mean_std_metrics, selection_size
from minerva.trainers.vmpo.metrics import METRICS

SCALAR_FIELDS = ("returns", "advantages", "restarting_weights", "importance_weights")
"""Fields of a caller's batch with one number per row, given as [n] or [n, 1]."""
BOUND_SETTINGS = {"mean": "epsilon_mu", "std": "epsilon_sigma", "choice": "epsilon_alpha"}
"""The config field that bounds each trust region's KL."""
LEAST_SHARES = {"mean": 0.1, "std": 0.1, "choice": 0.02}
"""Each trust region's lowest multiplier with centered weights, beside the one that a policy without a network needs."""
OLD_PARAMETERS = {"mean": "old_means", "log_std": "old_log_stds", "logits": "old_logits"}
"""Fields of a caller's batch with the old policy's parameters, by parameter."""


class VMPOAgent(Agent):
    """V-MPO: acts, and learns from rollouts or from a caller's batches. Rollouts hold raw actions, before squashing.

    An agent constructed directly does not normalise observations unless `normalize_observations` is set.

    The trust region is centered on the old policy. With `old_policy` "rollout" that is the policy that collected the
    rollout. With "updates" it is replaced every `old_policy_period` updates, also across rollouts, and is the policy
    that collects, as in Song et al. (2019). With "kl" it is replaced as soon as a KL reaches its bound, or after
    `old_policy_period` updates.
    ```
    state
    ├── parameters    [P]  policy and value network
    ├── moments       step [], first [P], second [P]
    ├── temperature   parameter [] (unconstrained), moments
    ├── multipliers   parameter [2] (mean, std; unconstrained), moments; discrete actions have one
    ├── normalizer    mean [O], var [O], count []; empty without normalisation
    ├── advantages    [], their usual mean square
    └── old           parameters [P], age []; not with old_policy "rollout"
    ```
    `data` is a rollout: `obs`, `next_obs` [T, E, O], `actions_raw` [T, E, D], `rewards`, `terminated`, `ended` [T, E];
    `gamma` and `gae_lambda` [] if they follow from its task's horizon.
    """

    CONFIG = VMPOConfig
    ACTIONS = get_args(ActionKind)
    METRICS = METRICS
    LAYER_SIZES = ("policy_layer_sizes", "value_layer_sizes")
    POLICY_MODULES = ("policy",)
    BY_HAND: ClassVar = {**preset_for("vmpo", "", "source").values, "normalize_observations": False}
    VMAPPED_METHODS = (
        "acted",
        "scaled",
        "evaluated",
        "paced",
        "improved.standardized",
        "improved.e_step",
        "improved.m_step",
        "improved.maybe_replace_old_policy",
        "update_metrics",
        "refresh_normalizer",
    )
    COMPILED_METHODS = ("acted", "improved.m_step")

    config: VMPOConfig

    def _make(self, obs_dim: int, action: ActionSpec, action_low: Bound | None, action_high: Bound | None) -> None:
        config = self.config
        if config.shared_encoder and "critic" in self.own_networks:
            raise ConfigError(
                "own_networks has a critic, and with shared_encoder the critic has no layers: leave it out."
            )
        encoder = ObservationEncoder(self.observation, action.mask_size, config.image_encoder, self.own_encoder)
        act_dim, spread = len(action.low), config.initial_log_std
        sizes = (encoder, act_dim, config.policy_layer_sizes, config.value_layer_sizes)
        self.policy = SquashedGaussianPolicy(
            *(*sizes, action_low, action_high, config.shared_encoder, config.ppo_like_backbone),
            squash=config.squash,
            normalize_observations=config.normalize_observations,
            initial_log_std=first_log_std(max(act_dim, 1)) if spread == "auto" else spread,
            counts=action.counts,
            hidden=self.hidden_layers,
        ).to(self.device)
        self.policy_function = FunctionalPolicy(self.policy, everything="forward_all")
        self.evaluated = PolicyEvaluation(self.policy_function, config)
        self.improved = PolicyImprovement(self.policy_function, config, self.optimizer, self.ranks)
        self.remembers = config.memory_of_advantages(self.improved.loss_name) > 0

    @classmethod
    def stored_settings(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return a checkpoint's settings; until version 0.1 the loss of the M-step was a flag."""
        present = dict(stored)
        if "centered_weights" in present:
            present["m_step_loss"] = "centered" if present.pop("centered_weights") else "likelihood"
        return super().stored_settings(present)

    # --- acting ---------------------------------------------------------------------------------------------

    def acted(self, state: Tree, obs: Tensor, noise: Tensor) -> Rows:
        """Return sampled `actions_raw`, and `actions_executed` in the bounds.  [..., O], noise -> [..., D] each"""
        normalizer = blind(state["normalizer"]) if self.config.blind_first_rollout else state["normalizer"]
        params = self.policy_function.params(self._acting_parameters(state), obs, normalizer)
        actions = self.distribution.sample(params, noise)
        return {"actions_raw": actions, "actions_executed": self.distribution.executed(actions)}

    @torch.no_grad()
    def act(self, obs: Array | Tensor, deterministic: bool = False) -> tuple[Tensor, ...]:
        """Return (executed action, value, mean, log_std) for one observation or a batch.

        [..., O] -> [..., D], [..., 1], [..., D], [..., D]. Discrete actions have logits [..., C] in place of mean and
        log_std.
        """
        seen, distribution = self._rows(obs), self.distribution
        parameters = self.state["parameters"] if deterministic else self._acting_parameters(self.state)
        params = self.policy_function.params(parameters, seen, self.state["normalizer"])
        mode = distribution.mode(params)
        raw = mode if deterministic else distribution.sample(params, self.draw_actions(seen.shape[:-1]))
        return distribution.executed(raw), self.policy.get_value(seen), *params.values()

    @torch.no_grad()
    def value(self, obs: Array | Tensor) -> Tensor:
        """Return the value of each observation.  [..., O] -> [..., 1]"""
        return self.policy.get_value(self._rows(obs))

    @torch.no_grad()
    def sample(self, obs: Array | Tensor) -> Tensor:
        """Return one raw action for each observation, before squashing.  [E, O] -> [E, D]"""
        seen = self._rows(obs)
        return self.acted(self.state, seen, self.draw_actions(seen.shape[:-1]))["actions_raw"]

    def execute(self, actions: Tensor) -> Tensor:
        """Return the executed form of raw actions: squashed or clipped into the bounds.  [..., D] -> [..., D]"""
        return self.distribution.executed(actions)

    @torch.no_grad()
    def policy_action(self, obs: Array | Tensor, deterministic: bool = True) -> Tensor:
        """Return executed actions: the interface that all agents share.  [..., O] -> [..., D]"""
        if not deterministic:
            return self.execute(self.sample(obs))
        return self.execute(self.distribution.mode(self.distribution.params(*self.policy(self._rows(obs)))))

    # --- learning -------------------------------------------------------------------------------------------

    def calls(self, piece: str) -> int:
        """Return how often one rollout and its update call the method `piece`."""
        config, steps = self.config, self.config.m_steps * self.config.minibatches
        return config.rollout_steps if piece == "acted" else config.updates_per_rollout * steps

    def update(self, batch: Mapping[str, Array | Tensor]) -> dict[str, float]:
        """Learn from a caller's rollout or batch and return the metrics.

        A rollout [T, E, ...] holds `obs, actions_raw, rewards, next_obs, terminated, truncated`. A batch [n, ...] holds
        `obs, actions, old_means, old_log_stds, returns, advantages`, and optionally `actions_raw`
        (before squashing; replaces the executed `actions`), `restarting_weights` (0 where an episode restarts) and
        `importance_weights`. Choices [n, D] have `old_logits` instead of `old_means` and `old_log_stds`.
        """
        if "advantages" not in batch and ("rewards" in batch or "next_obs" in batch):
            return self.learn(self.rollout(batch))
        read = {name: (self._rows if name == "obs" else self._tensor)(values) for name, values in batch.items()}
        rows = self.validated_batch(read)
        orders = self._orders(rows["obs"].shape[0], 1)
        metrics = self.update_in_place(self.update_on_batch, rows, orders, self.hyper())
        return metrics_to_host(metrics, self.ranks, self.METRICS)[0]

    def draw_update(self, data: Rows) -> Rows:
        """Draw the permutations that split the rows into minibatches."""
        return self._orders(data["rewards"].numel(), self.config.updates_per_rollout)

    def _orders(self, rows: int, updates: int) -> Rows:
        """Draw a random permutation of the rows for each pass, if there are minibatches.  -> [updates, passes, rows]"""
        if not self.config.minibatch_size:
            return {}
        return {"orders": self.draw_orders(updates, self.config.m_steps, rows)}

    def updated(self, state: Tree, data: Rows, noise: Rows, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state after learning from a rollout, and metrics; the normaliser is updated last."""
        before, hyper = state["normalizer"], with_settings_of(data, hyper)
        if self.config.blind_first_rollout and before:
            state = self.scaled(state, data)
            batch = self.evaluated(state, data, hyper, before)
        else:
            batch = self.evaluated(state, data, hyper)
        state, numbers = self.paced(state, batch, hyper)
        state, metrics = self.update_on_batch(state, batch, noise, numbers, self.config.updates_per_rollout)
        for n, region in enumerate(self.distribution.trust_regions):
            metrics[f"health/kl_{region}"] = metrics[f"kl/{region}_sel"] / hyper["bounds"][..., n]
        if self.remembers:
            metrics["charts/pace"] = numbers["pace"]
        after = self.refresh_normalizer({**state, "normalizer": before}, batch)
        return after, {**metrics, "charts/learning_rate": hyper["policy_lr"], **discount_metric(data)}

    def scaled(self, state: Tree, rollout: Rows) -> Tree:
        """Return the state with the first rollout's observations in its normaliser; later on the state as it is."""
        seen = self.policy.obs_encoder.split(rollout["obs"].flatten(0, 1))
        return {**state, "normalizer": begun(state["normalizer"], seen.numbers, self.ranks)}

    def paced(self, state: Tree, batch: Tree, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state with the usual size of advantages, and the numbers with the rate for this rollout."""
        return with_pace(state, batch, hyper, self.ranks)

    def update_on_batch(
        self, state: Tree, batch: Tree, noise: Rows, hyper: Rows, updates: int = 1
    ) -> tuple[Tree, Rows]:
        """Return the state after `updates` updates on one batch, and metrics."""
        after, metrics = self.improved(state, batch, noise, hyper, updates)
        return after, {**metrics, **self.update_metrics(state["parameters"], after, batch)}

    def update_metrics(self, before: Tensor, state: Tree, batch: Tree) -> Rows:
        """Return metrics of a finished update: change from the parameters `before`, and statistics of its batch."""
        params, values = self.policy_function.params_and_values(state["parameters"], batch["obs"], state["normalizer"])
        advantages, returns, values = map(self.ranks.all_gathered, (batch["advantages"], batch["returns"], values))
        return {
            "train/param_delta": torch.sqrt(((state["parameters"] - before) ** 2).sum()),
            **self._size_of_actions(params),
            **mean_std_metrics({"adv/raw": advantages, "returns/raw": returns, "value/pred": values}),
            "value/explained_var": explained_variance(values, returns),
        }

    def _size_of_actions(self, params: Rows) -> Rows:
        """Return the mean absolute deterministic action as a metric, unless choices are among the actions."""
        if "logits" in params:
            return {}
        return {"train/mean_abs_action": self.distribution.executed(self.distribution.mode(params)).abs().mean()}

    def refresh_normalizer(self, state: Tree, batch: Tree) -> Tree:
        """Return the state, with the normaliser of the rollout's start, with the batch's observations added to it."""
        seen = self.policy.obs_encoder.split(batch["obs"])
        return {**state, "normalizer": refreshed(state["normalizer"], seen.numbers, self.ranks)}

    def _derived_numbers(self, remaining: float) -> dict[str, Any]:
        config = self.config
        # LaTeX: \beta'_\alpha = \frac{\beta_\alpha}{\sqrt{M}}
        alpha_lr = config.alpha_lr / math.sqrt(config.m_steps)
        # LaTeX: x = \begin{cases} \max(f, 0.01)^2 & a = 1 \\ 1 & \text{otherwise} \end{cases}
        share = max(remaining, 0.01) ** 2 if config.anneal_bounds else 1.0
        centered = self.improved.loss_name == "centered"
        return {
            **settings_before_episodes(config.to_dict()),
            "alpha_lr": alpha_lr,
            "policy_lr": remaining * config.policy_lr,
            "value_lr": remaining * config.value_lr,
            "bounds": [share * getattr(config, BOUND_SETTINGS[region]) for region in self.distribution.trust_regions],
            "advantage_memory": config.memory_of_advantages(self.improved.loss_name),
            "epsilon_eta": config.e_step_bound(self.improved.loss_name),
            "least_shares": [LEAST_SHARES[region] if centered else 0.0 for region in self.distribution.trust_regions],
        }

    # --- a caller's batch -----------------------------------------------------------------------------------

    def validated_batch(self, batch: Rows) -> Tree:
        """Return a caller's batch under internal names, with defaults filled in and scalar fields as [n]."""
        olds = {OLD_PARAMETERS[name]: name for name in self.distribution.parameters}
        self._check_batch(batch, ("obs", *olds, "returns", "advantages"))
        rows = batch["obs"].shape[0]
        ones = self.flat.vector.new_ones(rows)
        raw = batch["actions_raw"] if "actions_raw" in batch else self.distribution.recovered(batch["actions"])
        fields = {"restarting_weights": ones, "importance_weights": ones, **batch}
        return {
            "obs": batch["obs"],
            "actions_raw": raw,
            "old": {name: batch[public] for public, name in olds.items()},
            **{name: fields[name].reshape(rows) for name in SCALAR_FIELDS},
        }

    def _check_batch(self, batch: Rows, needed: tuple[str, ...]) -> None:
        """Raise ConfigError if a field is missing or unknown, if lengths differ, or if no row would be selected."""
        known = (*needed, "actions", "actions_raw", "restarting_weights", "importance_weights")
        missing = [name for name in needed if name not in batch]
        missing += [] if {"actions", "actions_raw"} & batch.keys() else ["actions"]
        if missing:
            raise ConfigError(f"The batch lacks {', '.join(missing)}: V-MPO needs {', '.join(needed)} and actions.")
        unknown = sorted(batch.keys() - {*known})
        if unknown:
            raise ConfigError(f"The batch holds {', '.join(unknown)}: V-MPO knows {', '.join(known)}.")
        rows, share = batch["obs"].shape[0], self.config.topk_fraction
        for name, values in batch.items():
            if values.shape[:1] != (rows,):
                raise ConfigError(
                    f"{name} has shape {tuple(values.shape)}, and obs has {rows} rows: give one entry per row."
                )
        if selection_size(share, rows) < 1:
            raise ConfigError(f"topk_fraction {share} of {rows} rows selects nothing: raise it, or give more rows.")

    # --- state ----------------------------------------------------------------------------------------------

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
        """The multiplier of the standard deviation's KL."""
        return float(positive(self.state["multipliers"]["parameter"])[1])

    def _initial_state(self) -> Tree:
        vector = self.flat.vector
        temperature = vector.new_tensor(unconstrained(self.config.temperature_init))
        multipliers = vector.new_tensor([unconstrained(1.0) for _ in self.distribution.trust_regions])
        state: Tree = {
            "parameters": vector,
            "moments": self.optimizer.initial_moments(vector),
            "temperature": dual(temperature, self.optimizer),
            "multipliers": dual(multipliers, self.optimizer),
            "normalizer": dict(self.policy.obs_normalizer.named_buffers()),
            "advantages": vector.new_zeros(()),
        }
        if self.config.old_policy != "rollout":
            state["old"] = {"parameters": vector.clone(), "age": vector.new_zeros(())}
        return state

    def _acting_parameters(self, state: Tree) -> Tensor:
        """Return the parameters of the collecting policy: with `old_policy` "updates" the old one, as in Song et al."""
        source: Rows = state["old"] if self.config.old_policy == "updates" else state
        return source["parameters"]

    def move(self, state: Tree) -> None:
        """Use these tensors, which hold equal values, as the agent's state from now on."""
        self.state = state
        self.flat.move(state["parameters"])
        if isinstance(self.policy.obs_normalizer, RunningNorm):
            self.policy.obs_normalizer.move(state["normalizer"])

    def state_dict(self) -> Tree:
        """Return everything that an exact continuation of training needs."""
        owned = {name: part for name, part in self.state.items() if name not in ("parameters", "normalizer")}
        return {"policy": dict(self.policy.state_dict()), **owned, "generator": self.generator.get_state()}

    def load_state_dict(self, state: Tree) -> None:
        """Load a state that `state_dict` returned."""
        self.load_policy(state)
        copy_(self.state, {name: state[name] for name in self.state.keys() - {"parameters", "normalizer"}})
        restore_generator(self.generator, state["generator"])

    def load_policy(self, state: Tree) -> None:
        """Load only the networks and the normaliser of a saved state: to act, or to start training from them."""
        self.policy.load_state_dict(state["policy"])
        if "old" in self.state:
            self.state["old"]["parameters"].copy_(self.flat.vector)
