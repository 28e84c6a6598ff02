"""PPO's agent: acting, and the update as policy evaluation followed by policy improvement."""

from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import Tensor

from minerva.compute.seeding import restore_generator
from minerva.compute.tree import Tree, copy_
from minerva.data.horizon import discount_metric, settings_before_episodes, with_settings_of
from minerva.data.normalizers import RunningNorm, begun, blind, refreshed
from minerva.data.pace import with_pace
from minerva.distributions import Gaussian, distribution_of
from minerva.formulas.exploration import first_log_std
from minerva.formulas.returns import explained_variance
from minerva.loop.agent import Agent, Array, Rows
from minerva.networks.bounds import Bound, action_bounds
from minerva.networks.observations import ObservationEncoder
from minerva.networks.policies import ActorCritic, FunctionalPolicy
from minerva.presets import preset_for
from minerva.spec import ActionKind, ActionSpec
from minerva.trainers.ppo.config import PPOConfig
from minerva.trainers.ppo.evaluate import PolicyEvaluation
from minerva.trainers.ppo.improve import PolicyImprovement
from minerva.trainers.ppo.metrics import METRICS


class PPOAgent(Agent):
    """PPO: acts, and learns from rollouts of raw actions; the environment receives them clipped to the bounds.

    Discrete actions are choices counted from 0, one in each of the D columns, and executed as they are.

    ```
    state
    ├── parameters   [P]  policy and value network
    ├── moments      step [], first [P], second [P]
    ├── normalizer   mean [O], var [O], count []; empty for images alone
    └── advantages   [], their usual mean square
    ```
    `data` is a rollout: `obs`, `next_obs` [T, E, O], `actions_raw` [T, E, D], `rewards`, `terminated`, `ended` [T, E];
    `gamma` and `gae_lambda` [] if they follow from its task's horizon.
    """

    CONFIG = PPOConfig
    BY_HAND = preset_for("ppo", "", "source").values
    ACTIONS = get_args(ActionKind)
    METRICS = METRICS
    VMAPPED_METHODS = (
        "acted",
        "scaled",
        "evaluated",
        "paced",
        "improved.standardized",
        "improved.minibatch_step",
        "finish_update",
    )
    COMPILED_METHODS = ("acted", "improved.minibatch_step")
    POLICY_MODULES = ("network",)

    config: PPOConfig

    def _make(self, obs_dim: int, action: ActionSpec, action_low: Bound | None, action_high: Bound | None) -> None:
        config, act_dim = self.config, len(action.low)
        sizes = config.policy_layer_sizes, config.critic_layer_sizes
        spread = first_log_std(max(act_dim, 1)) if config.initial_log_std == "auto" else config.initial_log_std
        encoder = ObservationEncoder(self.observation, action.mask_size, config.image_encoder, self.own_encoder)
        self.network = ActorCritic(encoder, act_dim, *sizes, spread, action.counts, self.hidden_layers).to(self.device)
        bounds = (bound.to(self.device) for bound in action_bounds(action_low, action_high, act_dim))
        distribution = distribution_of(Gaussian(*bounds), action.counts)
        self.policy_function = FunctionalPolicy(self.network, distribution, policy="forward_policy")
        self.evaluated = PolicyEvaluation(self.policy_function, config)
        self.improved = PolicyImprovement(self.policy_function, config, self.optimizer, self.ranks)

    # --- acting ---------------------------------------------------------------------------------------------

    def acted(self, state: Tree, obs: Tensor, noise: Tensor) -> Rows:
        """Return sampled `actions_raw` and the clipped `actions_executed`.  [..., O], noise -> [..., D] each"""
        normalizer = blind(state["normalizer"]) if self.config.blind_first_rollout else state["normalizer"]
        params = self.policy_function.params(state["parameters"], obs, normalizer)
        actions = self.distribution.sample(params, noise)
        return {"actions_raw": actions, "actions_executed": self.distribution.executed(actions)}

    @torch.no_grad()
    def sample(self, obs: Array | Tensor) -> Tensor:
        """Return one raw action for each observation; numbers may lie outside the bounds.  [E, O] -> [E, D]"""
        seen = self._rows(obs)
        return self.acted(self.state, seen, self.draw_actions(seen.shape[:-1]))["actions_raw"]

    def execute(self, actions: Tensor) -> Tensor:
        """Return the executed form of raw actions: clipped to the bounds.  [..., D] -> [..., D]"""
        return self.distribution.executed(actions)

    @torch.no_grad()
    def act(self, obs: Array | Tensor, deterministic: bool = False) -> Tensor:
        """Return executed actions: sampled, or the policy's mean or likeliest choices.  [..., O] -> [..., D]"""
        if not deterministic:
            return self.execute(self.sample(obs))
        return self.execute(self.network.get_deterministic_action(self._rows(obs)))

    def policy_action(self, obs: Array | Tensor, deterministic: bool = True) -> Tensor:
        """Return executed actions: the interface that all agents share.  [..., O] -> [..., D]"""
        return self.act(obs, deterministic)

    # --- learning -------------------------------------------------------------------------------------------

    def calls(self, piece: str) -> int:
        """Return how often one rollout and its update call the method `piece`."""
        minibatches = -(-self.config.batch_size // self.config.minibatch_size)
        steps = {"acted": self.config.rollout_steps, "improved.minibatch_step": self.config.update_epochs * minibatches}
        return steps[piece]

    def update(self, rollout: Mapping[str, Array | Tensor], remaining: float = 1.0) -> dict[str, float]:
        """Learn from a rollout [T, E, ...] and return the metrics; `remaining` scales the learning rate.

        It holds `obs, actions_raw, rewards, next_obs, terminated, truncated`, or `ended` in place of the last.
        """
        return self.learn(self.rollout(rollout), remaining)

    def draw_update(self, data: Rows) -> Tensor:
        """Draw a random permutation of the rows for each epoch.  -> [epochs, rows]"""
        return self.draw_orders(self.config.update_epochs, data["rewards"].numel())

    def updated(self, state: Tree, data: Rows, noise: Tensor, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state after learning from a rollout, and metrics; `noise` are the permutations of its rows."""
        before, hyper = state["normalizer"], with_settings_of(data, hyper)
        if self.config.blind_first_rollout:
            state = self.scaled(state, data)
            batch = self.evaluated(state, data, hyper, before)
        else:
            batch = self.evaluated(state, data, hyper)
        state, numbers = self.paced(state, batch, hyper)
        state, metrics = self.improved(state, batch, noise, numbers)
        state, metrics = self.finish_update({**state, "normalizer": before}, batch, data, metrics, hyper)
        charts = {"charts/pace": numbers["pace"]} if self.config.advantage_memory else {}
        return state, {**metrics, **charts, **discount_metric(data)}

    def scaled(self, state: Tree, rollout: Rows) -> Tree:
        """Return the state with the first rollout's observations in its normaliser; later on the state as it is."""
        seen = self.network.obs_encoder.split(rollout["obs"].flatten(0, 1))
        return {**state, "normalizer": begun(state["normalizer"], seen.numbers, self.ranks)}

    def paced(self, state: Tree, batch: Rows, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state with the usual size of advantages, and the numbers with the rate for this rollout."""
        return with_pace(state, batch, hyper, self.ranks)

    def finish_update(self, state: Tree, batch: Rows, rollout: Rows, metrics: Rows, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state with the rollout's observations added to its normaliser, and the remaining metrics.

        The state comes with the normaliser of the rollout's start.
        """
        all_gathered = self.ranks.all_gathered
        explained = explained_variance(all_gathered(batch["old_values"]), all_gathered(batch["returns"]))
        metrics = {**metrics, "losses/explained_variance": explained, "charts/learning_rate": hyper["policy_lr"]}
        seen = self.network.obs_encoder.split(rollout["obs"].flatten(0, 1))
        normalizer = refreshed(state["normalizer"], seen.numbers, self.ranks)
        return {**state, "normalizer": normalizer}, metrics

    def _derived_numbers(self, remaining: float) -> dict[str, Any]:
        # LaTeX: \beta_u = f_u \beta_0
        learning_rate = remaining * self.config.policy_lr
        rates = {"policy_lr": learning_rate, "value_lr": learning_rate}
        horizon = settings_before_episodes(self.config.to_dict())
        return {**horizon, **rates, "target_kl": self.config.target_kl or torch.inf}

    # --- state ----------------------------------------------------------------------------------------------

    def _initial_state(self) -> Tree:
        return {
            "parameters": self.flat.vector,
            "moments": self.optimizer.initial_moments(self.flat.vector),
            "normalizer": dict(self.network.obs_normalizer.named_buffers()),
            "advantages": self.flat.vector.new_zeros(()),
        }

    def move(self, state: Tree) -> None:
        """Use these tensors, which hold equal values, as the agent's state from now on."""
        self.state = state
        self.flat.move(state["parameters"])
        if isinstance(self.network.obs_normalizer, RunningNorm):
            self.network.obs_normalizer.move(state["normalizer"])

    def state_dict(self) -> Tree:
        """Return everything that an exact continuation of training needs."""
        return {
            "network": dict(self.network.state_dict()),
            "moments": self.state["moments"],
            "advantages": self.state["advantages"],
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Tree) -> None:
        """Load a state that `state_dict` returned."""
        self.load_policy(state)
        copy_(self.state, {name: state[name] for name in ("moments", "advantages")})
        restore_generator(self.generator, state["generator"])

    def load_policy(self, state: Tree) -> None:
        """Load only the networks and the normaliser of a saved state: to act, or to start training from them."""
        self.network.load_state_dict(state["network"])
