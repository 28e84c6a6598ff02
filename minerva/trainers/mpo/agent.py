"""MPO as policy iteration: evaluate the policy with a critic, improve it by an E-step and an M-step.

Everything the agent learns with is one tree of tensors, `state`, and `updated` is a function of tensors,
`(state, batch, noise, hyper) -> (state, metrics)`. `update` draws the noise, calls it and writes the new state where
the networks see it.
"""

import copy
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from minerva.compute.cuda_graph import InPlace
from minerva.compute.flat import FlatParameters
from minerva.compute.optim import Optimizer
from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.seeding import generator, restore_generator, seeded
from minerva.compute.tree import Tree, copy_, select
from minerva.errors import ConfigError
from minerva.formulas.gaussian import sampled_actions
from minerva.loop.agent import Array, OffPolicyAgent, Rows, as_tensors, metrics_to_host
from minerva.networks import Bound, Critic, DiagonalGaussianPolicy, LayerNormMLP, SmallInitLinear
from minerva.trainers.mpo.config import MPOConfig
from minerva.trainers.mpo.duals import Duals
from minerva.trainers.mpo.evaluate import Evaluation
from minerva.trainers.mpo.heads import make_head
from minerva.trainers.mpo.improve import Improvement
from minerva.trainers.mpo.learner import Learner
from minerva.trainers.mpo.metrics import METRICS

__all__ = ["Critic", "DiagonalGaussianPolicy", "LayerNormMLP", "MPOAgent", "SmallInitLinear"]

logger = logging.getLogger("minerva")

Batch = Mapping[str, Array | Tensor]

LOOP = ("num_envs", "replay_size", "batch_size", "update_after", "warmup", "updates_per_step", "anneal_lr")
"""Settings of the trainer's loop, which mean nothing to an agent."""

HYPER = (
    "gamma",
    "retrace_lambda",
    "kl_epsilon",
    "epsilon_penalty",
    "mstep_kl_epsilon",
    "mstep_kl_epsilon_std",
    "q_lr",
    "policy_lr",
    "temperature_lr",
    "lambda_lr",
    "max_grad_norm",
)

SCALARS = {"rewards", "terminated", "ended", "behaviour_logp"}
"""What a row has one number of."""

PUBLIC_NAMES = {"actions": "actions_executed", "actions_exec": "actions_executed", "dones": "terminated"}
"""What a caller's batch calls a field, and what it is called inside."""

MODULES = ("policy", "policy_target", "q", "q_target", "duals")


class MPOAgent(OffPolicyAgent):
    """Acts, and learns from batches of transitions or sequences.

    `policy`, `policy_target`, `q`, `q_target` and `duals` are modules whose parameters are views of `state`.
    """

    VMAPPED_METHODS = ("acted", "updated")
    COMPILED_METHODS = ("acted",)
    ACTING_STATE = ("policy", "policy_target")
    COMPILE_WHOLE_UPDATE = True
    INPUTS = (*HYPER, "target_networks_update_period")
    METRICS = METRICS

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        action_low: Bound | None = None,
        action_high: Bound | None = None,
        device: str | torch.device = "cpu",
        policy_layer_sizes: Sequence[int] = MPOConfig.policy_layer_sizes,
        critic_layer_sizes: Sequence[int] = MPOConfig.critic_layer_sizes,
        *,
        seed: int = 0,
        ranks: Ranks = SINGLE,
        **hyperparameters: Any,
    ) -> None:
        """`hyperparameters` are the other fields of `MPOConfig`, without those of the trainer's loop."""
        for name in LOOP:
            if name in hyperparameters:
                raise ConfigError(f"{name} is a setting of MPOTrainer and means nothing to an agent: leave it out.")
        layers = {"policy_layer_sizes": policy_layer_sizes, "critic_layer_sizes": critic_layer_sizes}
        self.config = config = MPOConfig.from_dict({**layers, **hyperparameters})
        self.device, self.ranks = torch.device(device), ranks
        self.act_dim = act_dim
        head = make_head(config, self.device)
        policy_size = (obs_dim, act_dim, config.policy_layer_sizes, action_low, action_high)
        critic_size = (obs_dim, act_dim, config.critic_layer_sizes, action_low, action_high)
        with seeded(seed, "networks"):
            self.policy = DiagonalGaussianPolicy(*policy_size, config.initial_std).to(self.device)
            self.q = Critic(*critic_size, head.outputs).to(self.device)
        self.policy_target, self.q_target = copy.deepcopy(self.policy), copy.deepcopy(self.q)
        self.duals = Duals(act_dim, config).to(self.device)
        self.generator = generator(seed, "agent", self.device)
        optimizer = Optimizer(config.optimizer_type, config.sgd_momentum)
        self.learner = Learner(self.policy, self.q, self.duals, head, optimizer, config.bfloat16_targets, ranks)
        self.evaluate = Evaluation(self.learner)
        self.improve = Improvement(self.learner, config)
        targets = {"policy_target": FlatParameters(self.policy_target), "q_target": FlatParameters(self.q_target)}
        self._flat = {**self.learner.flat, **targets}
        self.state = self._initial_state()
        self.skipped = 0

    @classmethod
    def from_config(
        cls,
        obs_dim: int,
        act_dim: int,
        config: MPOConfig,
        *,
        seed: int = 0,
        device: str | torch.device = "cpu",
        ranks: Ranks = SINGLE,
    ) -> Self:
        """How trainers and `load_policy` make an agent of any algorithm: its actions live in [-1, 1]."""
        settings = {name: value for name, value in config.to_dict().items() if name not in LOOP}
        return cls(obs_dim, act_dim, -1.0, 1.0, device, seed=seed, ranks=ranks, **settings)

    # --- acting ---------------------------------------------------------------------------------------------

    def acted(self, state: Tree, obs: Tensor, noise: Tensor) -> Rows:
        """Actions of the policy that collects experience, `acting_policy`, and their log-density."""
        acting = "policy_target" if self.config.acting_policy == "target" else "policy"
        mean, log_std = self.learner.policy(state[acting], obs)
        actions = sampled_actions(mean, log_std, noise)
        log_prob = self.policy.log_prob(mean, log_std, actions)
        return {"actions_raw": actions, "actions_executed": self.policy.execute(actions), "behaviour_logp": log_prob}

    def draw_actions(self, shape: tuple[int, ...]) -> Tensor:
        """See `Agent`."""
        return self._normal((*shape, self.act_dim))

    def act(self, obs: Array | Tensor, deterministic: bool = False) -> Tensor:
        """Executed actions of the online policy.  [..., O] -> [..., D]"""
        return self.act_with_logp(obs, deterministic)[0]

    def policy_action(self, obs: Array | Tensor, deterministic: bool = True) -> Tensor:
        """`act` under the name that all algorithms have for it.  [..., O] -> [..., D]"""
        return self.act(obs, deterministic)

    def act_with_logp(self, obs: Array | Tensor, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Executed action, raw action and its log-density, online policy.  [..., O] -> [..., D], [..., D], [..., 1]"""
        return self._acted(self.policy, obs, deterministic)

    @torch.no_grad()
    def sample(self, obs: Array | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same of the policy that collects experience, `acting_policy`."""
        done = self.acted(self.state, self._tensor(obs), self.draw_actions(obs.shape[:-1]))
        return done["actions_executed"], done["actions_raw"], done["behaviour_logp"]

    def sample_uniform(self, shape: tuple[int, ...]) -> Rows:
        """Actions drawn uniformly between their bounds, as `acted` gives them."""
        low, high = self.policy.action_low, self.policy.action_high
        unit = torch.rand((*shape, self.act_dim), generator=self.generator, device=self.device, dtype=low.dtype)
        # LaTeX: a_j = a_j^{low} + u_j (a_j^{high} - a_j^{low})
        actions = low + unit * (high - low)
        # LaTeX: \log b(a|s) = -\sum_j \log(a_j^{high} - a_j^{low})
        log_prob = -torch.log(high - low).sum()
        return {"actions_raw": actions, "actions_executed": actions, "behaviour_logp": log_prob.expand(*shape, 1)}

    # --- learning -------------------------------------------------------------------------------------------

    def update(self, batch: Batch, noise: Rows | None = None, remaining: float = 1.0) -> dict[str, float] | None:
        """Learn from a batch; its metrics, or None if a value was not finite: then nothing has changed.

        `noise` as `draw_update` makes it; None: newly drawn. `remaining` scales the learning rates.
        """
        for flat in self._flat.values():
            flat.adopt()
        rows = self.prepared(batch)
        metrics = InPlace(self.updated, self.state, "off")(rows, noise or self.draw_update(rows), self.hyper(remaining))
        return self.reported(metrics_to_host(metrics, self.ranks, self.METRICS)[0]) or None

    def reported(self, metrics: dict[str, float]) -> dict[str, float]:
        """See `Agent`. Nothing is said of an update that was skipped, but for a warning."""
        finite, skipped = metrics.pop("finite"), int(metrics.pop("skipped"))
        for count in range(self.skipped + 1, skipped + 1):
            if count <= 5 or count % 100 == 0:
                logger.warning("MPO skipped a batch that held or led to a non-finite value (%d so far)", count)
        self.skipped = skipped
        return metrics if finite else {}

    def updated(self, state: Tree, batch: Rows, noise: Rows, hyper: Rows) -> tuple[Tree, Rows]:
        """The whole update as a function of tensors. If anything is not finite, the state stays as it was."""
        fresh = self._with_fresh_targets(state, hyper)
        target, sampled = self.evaluate.targets(fresh, batch, noise, hyper)
        evaluated, critic_metrics = self.evaluate(fresh, batch, target, hyper)
        improved, policy_metrics = self.improve(evaluated, batch["obs"][0], sampled, hyper)
        metrics = {**critic_metrics, **policy_metrics}
        checked = [*batch.values(), metrics.pop("target"), metrics.pop("outputs"), metrics.pop("sampled_q")]
        checked += [metrics[name] for name in ("loss/q", "loss/dual", "loss/policy")]
        finite = self.ranks.all(torch.isfinite(torch.cat([values.flatten() for values in checked])).all())
        counters = state["counters"]
        after = {**improved, "counters": {**counters, "updates": counters["updates"] + 1}}
        before = {**state, "counters": {**counters, "skipped": counters["skipped"] + 1}}
        chosen = select(finite, after, before)
        told = {"charts/learning_rate": hyper["policy_lr"], "finite": finite, "skipped": chosen["counters"]["skipped"]}
        return chosen, {**metrics, **told}

    def prepared(self, batch: Batch) -> Rows:
        """A batch of transitions or sequences as tensors with time first, [T, B, ...]; transitions have T = 1."""
        batch = {PUBLIC_NAMES.get(name, name): values for name, values in batch.items()}
        needed = ["obs", "actions_executed", "next_obs", "rewards", "terminated"]
        sequences = "obs" in batch and batch["obs"].ndim == 3
        along_time = sequences and self.config.use_retrace and self.config.retrace_steps > 1
        if along_time:
            needed += ["actions_raw", "behaviour_logp"]
        self._check_complete(batch, needed)
        rows = {name: self._tensor(batch[name]) for name in needed}
        truncated = self._tensor(batch["truncated"]) if "truncated" in batch else rows["terminated"]
        rows["ended"] = torch.maximum(rows["terminated"], truncated)
        for name in SCALARS & set(rows):
            rows[name] = rows[name].reshape(rows["obs"].shape[:-1])
        if not sequences:
            return {name: value.unsqueeze(0) for name, value in rows.items()}
        used = None if along_time else self.config.n_step
        return {name: value.transpose(0, 1)[:used] for name, value in rows.items()}

    @staticmethod
    def _check_complete(batch: Batch, needed: Sequence[str]) -> None:
        """Refuse a batch that lacks a field, in the words of the public interface."""
        public = {inner: name for name, inner in PUBLIC_NAMES.items() if name != "actions"}
        missing = sorted(public.get(name, name) for name in needed if name not in batch)
        if missing:
            held = ", ".join(sorted(public.get(name, name) for name in batch))
            raise ConfigError(f"The batch lacks {', '.join(missing)}: it holds {held}.")

    def draw_update(self, rows: Rows) -> Rows:
        """Standard-normal noise for one update: of the critic's target first, then of the E-step's samples."""
        steps, size = rows["rewards"].shape
        samples, width = self.config.action_samples, self.act_dim
        along_time = "behaviour_logp" in rows
        critic = (self.config.retrace_mc_actions, size * steps) if along_time else (samples, size)
        number = math.prod(critic) + samples * size
        drawn = self._normal((self.ranks.count * number, width))  # at once: a launch less for a GPU
        parts = self.ranks.local_shard(drawn).split((math.prod(critic), samples * size))
        return {"critic": parts[0].view(*critic, width), "actions": parts[1].view(samples, size, width)}

    # --- what the agent owns --------------------------------------------------------------------------------

    def move(self, state: Tree) -> None:
        """See `Agent`."""
        self.state = state
        for name, flat in self._flat.items():
            flat.move(state[name])

    def state_dict(self) -> Tree:
        """Everything the agent needs to go on as if nothing had happened."""
        modules = {name: dict(getattr(self, name).state_dict()) for name in MODULES}
        owned = {name: self.state[name] for name in ("moments", "counters")}
        return {**modules, **owned, "generator": self.generator.get_state()}

    def load_state_dict(self, state: Tree) -> None:
        """Take over a state made by `state_dict`."""
        self.load_policy(state)
        self.duals.load_state_dict(state["duals"])
        for name in ("moments", "counters"):
            copy_(self.state[name], state[name])
        restore_generator(self.generator, state["generator"])
        self.skipped = int(self.state["counters"]["skipped"])

    def load_policy(self, state: Tree) -> None:
        """Take over policy and critic alone: to act, or to start training from them."""
        for name in ("policy", "policy_target", "q", "q_target"):
            getattr(self, name).load_state_dict(state[name])

    # --- details --------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _acted(
        self, policy: DiagonalGaussianPolicy, obs: Array | Tensor, deterministic: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_std = policy(self._tensor(obs))
        raw, executed = policy.sample_action_raw_and_exec(mean, log_std, deterministic, self.generator)
        return executed, raw, policy.log_prob(mean, log_std, raw)

    def _with_fresh_targets(self, state: Tree, hyper: Rows) -> Tree:
        """Both networks copied into their targets whenever a period of completed updates begins."""
        due = state["counters"]["updates"] % hyper["target_networks_update_period"] == 0
        online = {"policy_target": state["policy"], "q_target": state["q"]}
        return {**state, **select(due, online, state)}

    def _initial_state(self) -> Tree:
        vectors = {name: flat.vector for name, flat in self._flat.items()}
        moments = {name: self.learner.optimizer.initial_moments(vectors[name]) for name in ("policy", "q", "duals")}
        zero = torch.zeros((), dtype=torch.int64, device=self.device)
        return {**vectors, "moments": moments, "counters": {"updates": zero.clone(), "skipped": zero}}

    def hyper(self, remaining: float = 1.0) -> Rows:
        """See `Agent`; `remaining` scales the learning rates of policy and critic."""
        numbers: dict[str, Any] = {name: getattr(self.config, name) for name in HYPER}
        if self.config.mstep_kl_epsilon_std is None:
            numbers["mstep_kl_epsilon_std"] = self.config.mstep_kl_epsilon
        # LaTeX: \beta = \frac{\beta_\pi}{M}
        numbers["policy_lr"] = self.config.policy_lr / self.config.m_steps
        for name in ("policy_lr", "q_lr"):
            numbers[name] *= remaining
        period = torch.tensor(self.config.target_networks_update_period, device=self.device)
        return {**as_tensors(numbers, self.state["policy"]), "target_networks_update_period": period}

    def _normal(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.device, dtype=self.state["policy"].dtype)

    def _tensor(self, values: Array | Tensor) -> Tensor:
        return torch.as_tensor(values, dtype=self.state["policy"].dtype, device=self.device)
