"""SAC's agent: acting, and the update: evaluate the policy with two critics, improve it by their gradient."""

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from minerva.compute.flat import FlatParameters
from minerva.compute.tree import Tree
from minerva.distributions import SquashedGaussian
from minerva.loop.agent import Array, OffPolicyAgent, Rows
from minerva.networks.bounds import Bound
from minerva.networks.critics import Critic, Critics
from minerva.networks.encoders import relu_layers
from minerva.networks.policies import DiagonalGaussianPolicy, FunctionalPolicy
from minerva.trainers.sac.config import SACConfig
from minerva.trainers.sac.evaluate import PolicyEvaluation
from minerva.trainers.sac.improve import PolicyImprovement
from minerva.trainers.sac.metrics import METRICS


class SACAgent(OffPolicyAgent):
    """SAC: acts, and learns from batches of transitions.

    `policy`, `q` and `q_target` are modules whose parameters are views of `state`:
    ```
    state
    ├── policy                  [P]
    ├── q, q_target             [Q]  both critics, online and target
    ├── log_temperature         []
    └── moments
        └── policy, q, log_temperature
    ```
    `data` is a batch: `obs`, `next_obs` [B, O], `actions_executed` [B, D], `rewards`, `terminated` [B].
    """

    CONFIG = SACConfig
    VMAPPED_METHODS = ("acted", "updated")
    COMPILED_METHODS = ("acted",)
    ACTING_STATE = ("policy",)
    POLICY_MODULES = ("policy", "q", "q_target")
    COMPILE_WHOLE_UPDATE = True
    METRICS = METRICS

    config: SACConfig

    def _make(self, obs_dim: int, act_dim: int, action_low: Bound | None, action_high: Bound | None) -> None:
        config, bounds = self.config, (action_low, action_high)
        self.policy = DiagonalGaussianPolicy(
            obs_dim, act_dim, config.policy_layer_sizes, *bounds, make_layers=relu_layers
        ).to(self.device)
        sizes = (obs_dim, act_dim, config.critic_layer_sizes)
        self.q = Critics(Critic(*sizes, *bounds, make_layers=relu_layers) for _ in range(2)).to(self.device)
        self.q_target = copy.deepcopy(self.q)
        self.squashed = SquashedGaussian(self.policy.action_low, self.policy.action_high)
        self.policy_function = FunctionalPolicy(self.policy, self.squashed)
        self.evaluated = PolicyEvaluation(self.policy_function, self.q, self.optimizer, self.ranks)
        self.improved = PolicyImprovement(self.policy_function, self.evaluated.critics, self.optimizer, self.ranks)
        self.flats = {
            "policy": self.policy_function.flat,
            "q": self.evaluated.critics.flat,
            "q_target": FlatParameters(self.q_target),
        }

    # --- acting ---------------------------------------------------------------------------------------------

    def acted(self, state: Tree, obs: Tensor, noise: Tensor) -> Rows:
        """Return raw and executed actions."""
        raw = self.distribution.sample(self.policy_function.params(state["policy"], obs), noise)
        return {"actions_raw": raw, "actions_executed": self.distribution.executed(raw)}

    @torch.no_grad()
    def policy_action(self, obs: Array | Tensor, deterministic: bool = True) -> Tensor:
        """Return the policy's actions within the bounds.  [..., O] -> [..., D]"""
        params = self.policy_function.params(self.state["policy"], self._tensor(obs))
        if deterministic:
            return self.distribution.executed(self.distribution.mode(params))
        return self.distribution.executed(self.distribution.sample(params, self.draw_actions(obs.shape[:-1])))

    def sample_uniform(self, shape: tuple[int, ...]) -> Rows:
        """Draw actions uniformly between their bounds, in a dict with the keys of `acted`."""
        low, high = self.policy.action_low, self.policy.action_high
        actions = self.uniform_actions(low, high, shape)
        return {"actions_raw": self.squashed.recovered(actions), "actions_executed": actions}

    # --- learning -------------------------------------------------------------------------------------------

    def update(self, batch: Mapping[str, Array | Tensor], remaining: float = 1.0) -> dict[str, float]:
        """Learn from a caller's batch, `obs, actions, rewards, next_obs, dones`, and return the metrics."""
        return self.learn(self.prepared(batch), remaining)

    def updated(self, state: Tree, data: Rows, noise: Rows, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state after one update, and metrics."""
        evaluated, critic_metrics = self.evaluated(state, data, noise["next_actions"], hyper)
        improved, policy_metrics = self.improved(evaluated, data["obs"], noise["actions"], hyper)
        return improved, {**critic_metrics, **policy_metrics, "charts/learning_rate": hyper["policy_lr"]}

    def prepared(self, batch: Mapping[str, Array | Tensor]) -> Rows:
        """Return a caller's or the replay's transitions under internal names."""
        rows = self.renamed(batch, ("obs", "next_obs", "actions_executed", "rewards", "terminated"))
        scalars = {name: rows[name].reshape(rows["obs"].shape[:1]) for name in ("rewards", "terminated")}
        return {**rows, **scalars}

    def draw_update(self, data: Rows) -> Rows:
        """Draw the noise of one update: of the next states' actions, and of the states' own."""
        size = data["rewards"].shape[0]
        drawn = self.ranks.local_shard(self.draw_actions((2, self.ranks.count * size)), 1)
        return {"next_actions": drawn[0], "actions": drawn[1]}

    def _derived_numbers(self, remaining: float) -> dict[str, Any]:
        numbers = {"policy_lr": self.config.policy_lr * remaining, "q_lr": self.config.q_lr * remaining}
        if self.config.target_entropy is None:
            numbers["target_entropy"] = -float(self.distribution.noise_size)
        return numbers

    # --- state ----------------------------------------------------------------------------------------------

    def _initial_state(self) -> Tree:
        vectors = {name: flat.vector for name, flat in self.flats.items()}
        start = torch.full((), math.log(self.config.temperature_init), device=self.device)
        learned = {"policy": vectors["policy"], "q": vectors["q"], "log_temperature": start}
        moments = {name: self.optimizer.initial_moments(values) for name, values in learned.items()}
        return {**vectors, "log_temperature": start, "moments": moments}
