"""MPO's agent: acting, and the update: evaluate the policy with a critic, improve it by an E-step and an M-step."""

import copy
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from minerva.compute.flat import FlatParameters
from minerva.compute.tree import Tree, select
from minerva.data.fields import Field
from minerva.loop.agent import Array, Rows
from minerva.loop.off_policy_agent import OffPolicyAgent
from minerva.networks.bounds import Bound
from minerva.networks.choices import ChoiceCritic, ChoicePolicy
from minerva.networks.critics import Critic, Critics
from minerva.networks.encoders import LayerNormMLP, MakeLayers, SmallInitLinear, layer_norm_layers, residual_layers
from minerva.networks.policies import DiagonalGaussianPolicy, FunctionalPolicy
from minerva.presets import preset_for
from minerva.spec import ActionSpec
from minerva.trainers.mpo.config import MPOConfig
from minerva.trainers.mpo.evaluate import ExactEvaluation, PolicyEvaluation, make_head
from minerva.trainers.mpo.improve import DualParameters, ExactImprovement, PolicyImprovement
from minerva.trainers.mpo.metrics import METRICS

__all__ = ["Critic", "DiagonalGaussianPolicy", "LayerNormMLP", "MPOAgent", "SmallInitLinear"]

logger = logging.getLogger("minerva")

Batch = Mapping[str, Array | Tensor]


class MPOAgent(OffPolicyAgent):
    """MPO: acts, and learns from batches of transitions or sequences.

    A discrete action is one choice, counted from 0. Its critics have outputs for every choice, and the E-step weights
    all of them instead of samples.

    `policy`, `policy_target`, `q`, `q_target` and `duals` are modules whose parameters are views of `state`:
    ```
    state
    ├── policy, policy_target   [P]  online and target policy
    ├── q, q_target             [Q]  online and target critics
    ├── duals                   [1 or 2 temperatures + 2 D multipliers, or 1 for a choice], unconstrained
    ├── moments
    │   └── policy, q, duals    step [], first and second: shaped as the vectors above
    ├── normalizer              mean, var, active [O], count []; empty without normalisation
    └── counters                updates [], skipped [], terminated []
    ```
    `data` are K batches of B rows, one for each critic step, with time first, T = 1 for transitions: `obs`, `next_obs`
    [T, K * B, O], `actions_executed` [T, K * B, D], `rewards`, `terminated`, `ended` [T, K * B]; for Retrace also
    `actions_raw` [T, K * B, D] and `behaviour_logp` [T, K * B].
    """

    CONFIG = MPOConfig
    BY_HAND = preset_for("mpo", "", "source").values
    VMAPPED_METHODS = ("acted", "updated")
    COMPILED_METHODS = ("acted",)
    ACTING_STATE = ("policy", "policy_target", "normalizer")
    POLICY_MODULES = ("policy", "policy_target", "q", "q_target")
    COMPILE_WHOLE_UPDATE = True
    ACTIONS = ("continuous", "discrete")
    METRICS = METRICS

    config: MPOConfig

    def _make(self, obs_dim: int, action: ActionSpec, action_low: Bound | None, action_high: Bound | None) -> None:
        config, discrete = self.config, action.kind == "discrete"
        head = make_head(config, self.device)
        make = self._make_choice if discrete else self._make_gaussian
        policy, critics = make(action, head.outputs, action_low, action_high)
        self.policy: DiagonalGaussianPolicy | ChoicePolicy = policy.to(self.device)
        critic = Critics(critics) if config.critics > 1 else critics[0]
        self.q: Critic | ChoiceCritic | Critics = critic.to(self.device)
        self.normalizer = self.make_normalizer(policy.obs_encoder.numbers, config.normalize_observations)
        self.policy_target, self.q_target = copy.deepcopy(self.policy), copy.deepcopy(self.q)
        self.duals = DualParameters(self.policy.distribution.trust_regions, config).to(self.device)
        self.policy_function = FunctionalPolicy(self.policy)
        options = (config, self.optimizer, self.ranks)
        evaluation, improvement = (
            (ExactEvaluation, ExactImprovement) if discrete else (PolicyEvaluation, PolicyImprovement)
        )
        self.evaluated = evaluation(self.policy_function, self.q, head, *options)
        self.improved = improvement(self.policy_function, self.duals, *options)
        self.flats = {
            "policy": self.policy_function.flat,
            "q": self.evaluated.critics.flat,
            "duals": self.improved.flat_duals,
            "policy_target": FlatParameters(self.policy_target),
            "q_target": FlatParameters(self.q_target),
        }
        self.skipped = 0

    def _make_gaussian(
        self, action: ActionSpec, outputs: int, low: Bound | None, high: Bound | None
    ) -> tuple[DiagonalGaussianPolicy, Sequence[Critic]]:
        """Return the networks for continuous actions."""
        config, act_dim = self.config, action.size
        policy_size = (act_dim, config.policy_layer_sizes, low, high)
        critic_size = (act_dim, config.critic_layer_sizes, low, high)
        gain, encoder = 0.01 if config.encoder == "residual" else None, self.make_encoder(action)
        policy = DiagonalGaussianPolicy(encoder, *policy_size, config.first_std(act_dim), self._layers("policy"), gain)
        layers = self._layers("critic")
        critics = [Critic(self.make_encoder(action), *critic_size, outputs, layers) for _ in range(config.critics)]
        return policy, critics

    def _make_choice(
        self, action: ActionSpec, outputs: int, low: Bound | None, high: Bound | None
    ) -> tuple[ChoicePolicy, Sequence[ChoiceCritic]]:
        """Return the networks for one discrete action, which has no bounds."""
        config, (choices,) = self.config, action.counts
        policy = ChoicePolicy(self.make_encoder(action), choices, config.policy_layer_sizes, self._layers("policy"))
        size = (choices, config.critic_layer_sizes, outputs, self._layers("critic"))
        return policy, [ChoiceCritic(self.make_encoder(action), *size) for _ in range(config.critics)]

    def _layers(self, part: str) -> MakeLayers:
        usual = residual_layers if self.config.encoder == "residual" else layer_norm_layers
        return self.hidden_layers(part, usual)

    @property
    def sequence_length(self) -> int:
        """Number of rows that one target is computed from."""
        return self.config.sequence_length

    @property
    def batches(self) -> int:
        """Batches that one update learns from: one for each critic step."""
        return self.config.critic_steps

    @property
    def scales_rewards(self) -> bool:
        """Whether the rewards of a batch are to be scaled."""
        return self.config.scale_rewards

    @property
    def acts_with_pink_noise(self) -> bool:
        """Whether the actions that collect experience have pink noise."""
        wanted = self.config.exploration_noise == "pink" and not self.config.use_retrace
        return wanted and isinstance(self.policy, DiagonalGaussianPolicy)

    def action_fields(self, action: Field) -> dict[str, Field]:
        """Return the replay fields that only Retrace needs: raw actions and their log-density; none without Retrace."""
        return {"actions_raw": action, "behaviour_logp": Field((1,))} if self.config.use_retrace else {}

    # --- acting ---------------------------------------------------------------------------------------------

    def acted(self, state: Tree, obs: Tensor, noise: Tensor) -> Rows:
        """Return raw and executed actions of the collecting policy (config.acting_policy), and their log-density."""
        acting = "policy_target" if self.config.acting_policy == "target" else "policy"
        params = self.policy_function.params(state[acting], self.normalized(state, obs))
        actions = self.distribution.sample(params, noise)
        log_prob = self.distribution.log_prob(params, actions).unsqueeze(-1)
        executed = self.distribution.executed(actions)
        return {"actions_raw": actions, "actions_executed": executed, "behaviour_logp": log_prob}

    @torch.no_grad()
    def act(self, obs: Array | Tensor, deterministic: bool = False) -> Tensor:
        """Return executed actions of the online policy.  [..., O] -> [..., D]"""
        return self.distribution.executed(self._online(obs, deterministic)[1])

    def policy_action(self, obs: Array | Tensor, deterministic: bool = True) -> Tensor:
        """Return executed actions: the interface that all agents share.  [..., O] -> [..., D]"""
        return self.act(obs, deterministic)

    @torch.no_grad()
    def act_with_logp(self, obs: Array | Tensor, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Return executed action, raw action and the raw action's log-density, of the online policy.

        [..., O] -> [..., D], [..., D], [..., 1]
        """
        params, raw = self._online(obs, deterministic)
        return self.distribution.executed(raw), raw, self.distribution.log_prob(params, raw).unsqueeze(-1)

    def _online(self, obs: Array | Tensor, deterministic: bool) -> tuple[Rows, Tensor]:
        """Return the online policy's parameters, and raw actions: its mode, or samples."""
        params = self.distribution.params(*self.policy(self.normalized(self.state, self._rows(obs))))
        if deterministic:
            return params, self.distribution.mode(params)
        shape = next(iter(params.values())).shape[:-1]
        return params, self.distribution.sample(params, self.draw_actions(shape))

    @torch.no_grad()
    def sample(self, obs: Array | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return executed action, raw action and its log-density, of the collecting policy.

        [..., O] -> [..., D], [..., D], [..., 1]
        """
        seen = self._rows(obs)
        acted = self.acted(self.state, seen, self.draw_actions(seen.shape[:-1]))
        return acted["actions_executed"], acted["actions_raw"], acted["behaviour_logp"]

    def sample_uniform(self, shape: tuple[int, ...]) -> Rows | Tensor:
        """Draw actions uniformly between their bounds, in a dict with the keys of `acted`.

        Of choices, return noise: the first policy is uniform over those that its observation's mask allows.
        """
        if isinstance(self.policy, ChoicePolicy):
            return self.draw_actions(shape)
        low, high = self.policy.action_low, self.policy.action_high
        actions = self.uniform_actions(low, high, shape)
        # LaTeX: \log b(a|s) = -\sum_j \log(a_j^{high} - a_j^{low})
        log_prob = -torch.log(high - low).sum()
        return {"actions_raw": actions, "actions_executed": actions, "behaviour_logp": log_prob.expand(*shape, 1)}

    # --- learning -------------------------------------------------------------------------------------------

    def update(self, batch: Batch, noise: Rows | None = None, remaining: float = 1.0) -> dict[str, float] | None:
        """Learn from a caller's batch and return the metrics, or None if a value was not finite: the update is skipped.

        Transitions hold `obs, actions_exec` (or `actions`)`, rewards, next_obs, dones`; sequences have a time axis
        after the batch axis, may add `truncated`, and for Retrace need `actions_raw, behaviour_logp`. `noise` is what
        `draw_update` returns; None draws it. `remaining` scales the learning rates.
        """
        return self.learn(self.prepared(batch), remaining, noise) or None

    def reported(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return the metrics to log, or an empty dict for a skipped update, which is logged as a warning instead."""
        finite, skipped = metrics.pop("finite"), int(metrics.pop("skipped"))
        for count in range(self.skipped + 1, skipped + 1):
            if count <= 5 or count % 100 == 0:
                logger.warning("MPO skipped a batch that contained or produced a non-finite value (%d so far)", count)
        self.skipped = skipped
        return metrics if finite else {}

    def updated(self, state: Tree, data: Rows, noise: Rows, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state after one update, and metrics. If any value is not finite, return the state unchanged."""
        fresh = self._with_fresh_targets(self._with_terminated(state, data), hyper)
        seen = {**data, **{name: self.normalized(state, data[name]) for name in ("obs", "next_obs")}}
        target, samples = self.evaluated.targets(fresh, seen, noise, hyper)
        evaluated, critic_metrics = self.evaluated(fresh, seen, target, hyper)
        improved, policy_metrics = self.improved(evaluated, self.evaluated.improved_states(seen), samples, hyper)
        metrics = {**critic_metrics, **policy_metrics}
        checked = [*self.numbers_of(data), *(metrics.pop(name) for name in ("target", "outputs", "sampled_q"))]
        checked += [metrics[name] for name in ("loss/q", "loss/dual", "loss/policy")]
        each = [torch.isfinite(values).all() for values in checked]  # joined first, they are slow to reduce on a GPU
        finite = self.ranks.all(torch.stack(each).all())
        counters = state["counters"]
        after = {**improved, "counters": {**fresh["counters"], "updates": counters["updates"] + 1}}
        before = {**state, "counters": {**counters, "skipped": counters["skipped"] + 1}}
        chosen = select(finite, after, before)
        outcome = {"finite": finite, "skipped": chosen["counters"]["skipped"]}
        return chosen, {**metrics, "charts/learning_rate": hyper["policy_lr"], **outcome}

    def prepared(self, batch: Batch) -> Rows:
        """Return a caller's transitions (T = 1) or sequences under internal names, with time first, [T, B, ...]."""
        needed = ["obs", "actions_executed", "next_obs", "rewards", "terminated"]
        sequences = "obs" in batch and self._rows(batch["obs"]).ndim == 3
        along_time = sequences and self.config.use_retrace and self.config.retrace_steps > 1
        if along_time:
            needed += ["actions_raw", "behaviour_logp"]
        rows = self.renamed(batch, needed, ["truncated"])
        return self.with_time_first(rows, None if along_time else self.config.n_step)

    def draw_update(self, data: Rows) -> Rows:
        """Draw the noise of one update: `critic` for the critic's target, `actions` for the E-step's samples.

        Choices need none.
        """
        if isinstance(self.policy, ChoicePolicy):
            return {}
        steps, size = data["rewards"].shape
        config, width = self.config, self.distribution.noise_size
        improved = (self.evaluated.drawn_actions, size // config.critic_steps)
        along_time = "behaviour_logp" in data
        next_samples = config.bootstrap_samples or config.action_samples
        critic = (config.retrace_mc_actions, size * steps) if along_time else (next_samples, size)
        sizes = (math.prod(critic), math.prod(improved))
        drawn = self.draw_actions((self.ranks.count * sum(sizes),))  # in one draw: one kernel launch fewer on a GPU
        parts = self.ranks.local_shard(drawn).split(sizes)
        return {"critic": parts[0].view(*critic, width), "actions": parts[1].view(*improved, width)}

    def _with_terminated(self, state: Tree, data: Rows) -> Tree:
        """Return the state with the terminated rows of the batch counted."""
        counters = state["counters"]
        found = (self.ranks.mean(data["terminated"].sum()) * self.ranks.count).round().long()
        return {**state, "counters": {**counters, "terminated": counters["terminated"] + found}}

    def _with_fresh_targets(self, state: Tree, hyper: Rows) -> Tree:
        """Return the state with both networks copied into their targets, once every target_networks_update_period."""
        due = state["counters"]["updates"] % hyper["target_networks_update_period"] == 0
        online = {"policy_target": state["policy"], "q_target": state["q"]}
        return {**state, **select(due, online, state)}

    def hyper(self, remaining: float = 1.0) -> Rows:
        """Return the config's TENSOR fields as tensors; `remaining` scales the learning rates of policy and critic."""
        period = torch.tensor(
            self.config.target_networks_update_period, device=self.device
        )  # an integer, so that it is not rounded
        return {**super().hyper(remaining), "target_networks_update_period": period}

    def _derived_numbers(self, remaining: float) -> dict[str, Any]:
        # LaTeX: \beta = \frac{\beta_\pi}{M}
        policy_lr = self.config.policy_lr / self.config.m_steps
        numbers = {"policy_lr": policy_lr * remaining, "q_lr": self.config.q_lr * remaining}
        if self.config.mstep_kl_epsilon_std is None:
            numbers["mstep_kl_epsilon_std"] = self.config.mstep_kl_epsilon
        return numbers

    # --- state ----------------------------------------------------------------------------------------------

    def _initial_state(self) -> Tree:
        vectors = {name: flat.vector for name, flat in self.flats.items()}
        moments = {name: self.optimizer.initial_moments(vectors[name]) for name in ("policy", "q", "duals")}
        zero = torch.zeros((), dtype=torch.int64, device=self.device)
        counters = {name: zero.clone() for name in ("updates", "skipped", "terminated")}
        normalizer = dict(self.normalizer.named_buffers())
        return {**vectors, "moments": moments, "normalizer": normalizer, "counters": counters}

    def load_state_dict(self, state: Tree) -> None:
        """Load a state that `state_dict` returned."""
        super().load_state_dict(state)
        self.skipped = int(self.state["counters"]["skipped"])
