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
from minerva.loop.agent import Array, Rows
from minerva.loop.off_policy_agent import OffPolicyAgent
from minerva.networks.bounds import Bound
from minerva.networks.critics import Critic, Critics
from minerva.networks.encoders import relu_layers, residual_layers
from minerva.networks.policies import DiagonalGaussianPolicy, FunctionalPolicy
from minerva.spec import ActionSpec
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
    ├── moments
    │   └── policy, q, log_temperature
    └── normalizer              mean, var, active [O], count []; empty without normalisation
    ```
    `data` is a batch with time first, T = 1 for transitions: `obs`, `next_obs` [T, B, O], `actions_executed` [T, B, D],
    `rewards`, `terminated`, `ended` [T, B].
    """

    CONFIG = SACConfig
    VMAPPED_METHODS = ("acted", "updated")
    COMPILED_METHODS = ("acted",)
    ACTING_STATE = ("policy", "normalizer")
    POLICY_MODULES = ("policy", "q", "q_target")
    COMPILE_WHOLE_UPDATE = True
    METRICS = METRICS

    config: SACConfig

    def _make(self, obs_dim: int, action: ActionSpec, action_low: Bound | None, action_high: Bound | None) -> None:
        config, act_dim, bounds = self.config, action.size, (action_low, action_high)
        usual = residual_layers if config.encoder == "residual" else relu_layers
        of_policy, of_critic = (self.hidden_layers(part, usual) for part in ("policy", "critic"))
        policy_size, critic_size = (
            (act_dim, size, *bounds) for size in (config.policy_layer_sizes, config.critic_layer_sizes)
        )
        encoder = self.make_encoder(action)
        self.policy = DiagonalGaussianPolicy(encoder, *policy_size, make_layers=of_policy).to(self.device)
        atoms = torch.linspace(-config.critic_range, config.critic_range, config.critic_atoms, device=self.device)
        outputs = 1 if config.critic == "scalar" else config.critic_atoms
        critics = [Critic(self.make_encoder(action), *critic_size, outputs, of_critic) for _ in range(2)]
        self.q = Critics(critics).to(self.device)
        self.normalizer = self.make_normalizer(encoder.numbers, config.normalize_observations)
        self.q_target = copy.deepcopy(self.q)
        self.squashed = SquashedGaussian(self.policy.action_low, self.policy.action_high)
        self.policy_function = FunctionalPolicy(self.policy, self.squashed)
        options = (self.optimizer, self.ranks)
        used_atoms = None if config.critic == "scalar" else atoms
        self.evaluated = PolicyEvaluation(self.policy_function, self.q, used_atoms, config, *options)
        self.improved = PolicyImprovement(self.policy_function, self.evaluated.values, *options)
        self.flats = {
            "policy": self.policy_function.flat,
            "q": self.evaluated.critics.flat,
            "q_target": FlatParameters(self.q_target),
        }

    @property
    def sequence_length(self) -> int:
        """Number of rows that one target is computed from."""
        return self.config.n_step

    @property
    def scales_rewards(self) -> bool:
        """Whether the rewards of a batch are to be scaled."""
        return self.config.scale_rewards

    # --- acting ---------------------------------------------------------------------------------------------

    def acted(self, state: Tree, obs: Tensor, noise: Tensor) -> Rows:
        """Return raw and executed actions."""
        params = self.policy_function.params(state["policy"], self.normalized(state, obs))
        raw = self.distribution.sample(params, noise)
        return {"actions_raw": raw, "actions_executed": self.distribution.executed(raw)}

    @torch.no_grad()
    def policy_action(self, obs: Array | Tensor, deterministic: bool = True) -> Tensor:
        """Return the policy's actions within the bounds.  [..., O] -> [..., D]"""
        params = self.policy_function.params(self.state["policy"], self.normalized(self.state, self._rows(obs)))
        if deterministic:
            return self.distribution.executed(self.distribution.mode(params))
        noise = self.draw_actions(params["mean"].shape[:-1])
        return self.distribution.executed(self.distribution.sample(params, noise))

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
        seen = {**data, **{name: self.normalized(state, data[name]) for name in ("obs", "next_obs")}}
        evaluated, critic_metrics = self.evaluated(state, seen, noise["next_actions"], hyper)
        improved, policy_metrics = self.improved(evaluated, seen["obs"][0], noise["actions"], hyper)
        return improved, {**critic_metrics, **policy_metrics, "charts/learning_rate": hyper["policy_lr"]}

    def prepared(self, batch: Mapping[str, Array | Tensor]) -> Rows:
        """Return a caller's or the replay's transitions (T = 1) or sequences under internal names, with time first."""
        needed = ("obs", "next_obs", "actions_executed", "rewards", "terminated")
        return self.with_time_first(self.renamed(batch, needed, ["truncated"]), self.config.n_step)

    def draw_update(self, data: Rows) -> Rows:
        """Draw the noise of one update: of the next states' actions, and of the states' own."""
        size = data["rewards"].shape[1]
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
        normalizer = dict(self.normalizer.named_buffers())
        return {**vectors, "log_temperature": start, "moments": moments, "normalizer": normalizer}
