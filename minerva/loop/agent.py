"""Base of all agents: a state, which is one tree of tensors, and pure functions from a state to a new one."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from minerva.compute.cuda_graph import InPlace
from minerva.compute.flat import FlatParameters
from minerva.compute.optim import Optimizer
from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.seeding import generator, seeded
from minerva.compute.tree import Tree, copy_, leaves, mapped
from minerva.config import LOOP, TENSOR, Config
from minerva.data.fields import OBSERVATIONS
from minerva.distributions import Distribution
from minerva.errors import ConfigError, TrainingError
from minerva.metrics import Metric
from minerva.networks.bounds import Bound
from minerva.networks.encoders import MakeLayers
from minerva.networks.observations import EncoderFactory, Observed
from minerva.networks.own import OwnNetworks, checked_parts, hidden_layers
from minerva.networks.policies import FunctionalPolicy
from minerva.spec import ActionSpec, ObservationSpec

Array = np.ndarray[Any, np.dtype[Any]]
Rows = dict[str, Tensor]
"""Tensors by name."""
PUBLIC_NAMES = {"actions": "actions_executed", "actions_exec": "actions_executed", "dones": "terminated"}
"""Internal names of the fields of a caller's batch, by their public names."""


class Agent(ABC):
    """An agent that acts and learns. `state` holds all that learning changes; the modules' parameters are views of it.

    Names follow `sort` and `sorted`: methods that take a `state` (`acted`, `evaluated`, `improved`, `updated`) are
    pure functions of tensors and return new values; `act`, `learn`, `update` and `load_state_dict` use or change
    the agent's own state.

    `updated(state, data, noise, hyper) -> (state, metrics)` is a whole update, a loop around the methods named in
    `VMAPPED_METHODS`. Those are functions of one agent's tensors and can be compiled, or mapped over many agents'
    stacked tensors; the loop works on both. `learn(data)` draws the noise, calls `updated` and keeps the new state;
    `update(batch)` does so for a batch under the public names. Each agent's docstring draws the tree of its `state` and
    lists the keys of its `data`.
    """

    CONFIG: ClassVar[type[Config]]
    """Class of the agent's config."""
    LAYER_SIZES: ClassVar[tuple[str, ...]] = ("policy_layer_sizes", "critic_layer_sizes")
    """Fields of the config that the constructor takes as positional arguments after the device, in this order."""
    BY_HAND: ClassVar[Mapping[str, Any]] = {}
    """Defaults of an agent that is constructed directly, where they differ from the config's."""
    VMAPPED_METHODS: ClassVar[tuple[str, ...]]
    """Methods that are mapped over the agents of a stack; `improved.m_step` is the method of an attribute."""
    COMPILED_METHODS: ClassVar[tuple[str, ...]]
    """Those of `VMAPPED_METHODS` that are compiled separately."""
    ACTIONS: ClassVar[tuple[str, ...]] = ("continuous",)
    """Kinds of actions that the agent has a policy for."""
    METRICS: ClassVar[Sequence[Metric]]
    """Declarations of the metrics that an update returns."""
    POLICY_MODULES: ClassVar[tuple[str, ...]]
    """Entries of `state_dict` that `load_policy` loads, beside a `normalizer`."""
    ACTING_STATE: ClassVar[tuple[str, ...]] = ("parameters", "normalizer", "old")
    """Entries of the state that acting needs; an agent may lack some."""
    COMPILE_WHOLE_UPDATE: ClassVar[bool] = False
    """Whether the update is compiled as a whole, because it has no long loop."""

    config: Any
    state: Tree
    observation: ObservationSpec
    """Spec of the observations."""
    action: ActionSpec
    """Spec of the actions."""
    policy_function: FunctionalPolicy
    """The acting network as a function of its parameters."""

    def __init__(
        self,
        obs_dim: int | ObservationSpec,
        act_dim: int | ActionSpec,
        action_low: Bound | None = None,
        action_high: Bound | None = None,
        device: str | torch.device = "cpu",
        *layer_sizes: Sequence[int],
        seed: int = 0,
        ranks: Ranks = SINGLE,
        config: Config | None = None,
        own_networks: OwnNetworks | None = None,
        **hyperparameters: Any,
    ) -> None:
        """Make an agent from a `config`, or from `hyperparameters`, which are fields of the config.

        Bounds default to -1 and 1. `layer_sizes` are the widths of the networks' hidden layers; `own_networks` are
        factories of modules that take the place of the encoder, or of the hidden layers of policy or critic. The
        agent's state is replicated on all data-parallel `ranks`.
        """
        self.config = self._config_by_hand(layer_sizes, hyperparameters) if config is None else config
        if config is not None and (layer_sizes or hyperparameters):
            raise ConfigError(f"{self.CONFIG.__name__} is given as config: give no other hyperparameters beside it.")
        self.device, self.ranks = torch.device(device), ranks
        self.generator = generator(seed, "agent", self.device)
        self.optimizer = Optimizer.of(self.config)
        self.observation, self.own_networks = ObservationSpec.of(obs_dim), checked_parts(own_networks)
        self.action = self._usable(act_dim)
        with seeded(seed, "networks"):
            self._make(self.observation.size, self.action, action_low, action_high)
        self.state = self._initial_state()

    @classmethod
    def from_config(
        cls,
        obs_dim: int | ObservationSpec,
        act_dim: int | ActionSpec,
        config: Config,
        *,
        seed: int = 0,
        device: str | torch.device = "cpu",
        ranks: Ranks = SINGLE,
        own_networks: OwnNetworks | None = None,
    ) -> Self:
        """Make an agent of any algorithm with actions in [-1, 1], as trainers and `load_policy` do."""
        return cls(obs_dim, act_dim, device=device, seed=seed, ranks=ranks, config=config, own_networks=own_networks)

    @classmethod
    def stored_settings(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return a checkpoint's settings; one that did not exist yet has the value that stands for its absence."""
        return {**cls.BY_HAND, **stored}

    @classmethod
    def _config_by_hand(cls, layer_sizes: Sequence[Sequence[int]], hyperparameters: Mapping[str, Any]) -> Config:
        trainer = cls.CONFIG.__name__.replace("Config", "Trainer")
        for name in cls.CONFIG.fields_with(LOOP):
            if name in hyperparameters:
                raise ConfigError(f"{name} is a setting of {trainer} and means nothing to an agent: leave it out.")
        sizes = dict(zip(cls.LAYER_SIZES, layer_sizes, strict=False))
        return cls.CONFIG.from_dict({**cls.BY_HAND, **sizes, **hyperparameters})

    @abstractmethod
    def _make(self, obs_dim: int, action: ActionSpec, action_low: Bound | None, action_high: Bound | None) -> None:
        """Make the networks and the parts of the update from the config."""

    @classmethod
    def _usable(cls, act_dim: int | ActionSpec) -> ActionSpec:
        """Return the spec of the actions; raise ConfigError if the agent has no policy for their kind."""
        action = ActionSpec.of(act_dim)
        if action.kind not in cls.ACTIONS:
            raise ConfigError(
                f"The actions are {action.kind}, and {cls.__name__} takes {' or '.join(cls.ACTIONS)} ones: train with "
                f"PPO or V-MPO, which take all{', or with MPO' if action.kind == 'discrete' else ''}."
            )
        return action

    @property
    def own_encoder(self) -> EncoderFactory | None:
        """The user's factory of the encoder, if there is one."""
        return self.own_networks.get("encoder")

    def hidden_layers(self, part: str, usual: MakeLayers) -> MakeLayers:
        """Return what makes the hidden layers of "policy" or "critic", which is usually `usual`."""
        return hidden_layers(self.own_networks, part, usual, self.config.activation)

    @abstractmethod
    def _initial_state(self) -> Tree:
        """Return the state before the first update."""

    @property
    def flat(self) -> FlatParameters:
        """The parameters of the acting network, as one vector."""
        return self.policy_function.flat

    @property
    def distribution(self) -> Distribution:
        """The distribution of the policy's actions."""
        return self.policy_function.distribution

    @abstractmethod
    def move(self, state: Tree) -> None:
        """Use these tensors, which hold equal values, as the storage of the state."""

    @abstractmethod
    def state_dict(self) -> Tree:
        """Return everything that the agent needs to continue training exactly."""

    @abstractmethod
    def load_state_dict(self, state: Tree) -> None:
        """Load a state made by `state_dict`."""

    @abstractmethod
    def load_policy(self, state: Tree) -> None:
        """Load the networks and the normaliser alone: to act, or to start training from them."""

    # --- acting ---------------------------------------------------------------------------------------------

    @abstractmethod
    def acted(self, state: Tree, obs: Tensor, noise: Tensor) -> Rows:
        """Return `actions_raw` as sampled, `actions_executed` within the bounds, and whatever else learning needs."""

    def draw_actions(self, shape: tuple[int, ...]) -> Tensor:
        """Draw action noise for a batch of this shape.  -> [..., noise size]"""
        return self.distribution.draw_noise(shape, self.generator, self.flat.vector.dtype)

    def draw_local_actions(self, shape: tuple[int, ...]) -> Tensor:
        """Draw the action noise of all ranks' environments and return this rank's slice.  [..., E]"""
        *before, envs = shape
        return self.ranks.local_shard(self.draw_actions((*before, envs * self.ranks.count)), -2)

    @abstractmethod
    def policy_action(self, obs: Array | Tensor, deterministic: bool = True) -> Tensor:
        """Return the policy's actions within the bounds.  [..., O] -> [..., D]"""

    def act(self, obs: Array | Tensor, deterministic: bool = False) -> Any:
        """Return executed actions of the policy.  [..., O] -> [..., D]"""
        return self.policy_action(obs, deterministic)

    @torch.no_grad()
    def explore(self, obs: Array | Tensor) -> Rows:
        """Return sampled actions for observations, with all that `update` needs of them beside what the step gives.

        The environment is given `actions_executed`.  [..., O] -> `obs` and actions by name
        """
        seen = self._rows(obs)
        return {"obs": seen, **self.acted(self.state, seen, self.draw_actions(seen.shape[:-1]))}

    # --- learning -------------------------------------------------------------------------------------------

    def renamed(self, batch: Mapping[str, Array | Tensor], needed: Sequence[str], optional: Sequence[str] = ()) -> Rows:
        """Return fields of a caller's batch under internal names, as tensors; raise ConfigError if one is missing."""
        named = {PUBLIC_NAMES.get(name, name): values for name, values in batch.items()}
        missing = sorted(name for name in needed if name not in named)
        if missing:
            raise ConfigError(f"The batch lacks {', '.join(missing)}: it holds {', '.join(sorted(batch))}.")
        taken = [name for name in (*needed, *optional) if name in named]
        return {name: (self._rows if name in OBSERVATIONS else self._tensor)(named[name]) for name in taken}

    def rollout(self, batch: Mapping[str, Array | Tensor]) -> Rows:
        """Return a caller's rollout [T, E, ...] in the form that an on-policy agent learns from."""
        ends = "ended" if "ended" in batch else "truncated"
        rows = self.renamed(batch, ("obs", "next_obs", "actions_raw", "rewards", "terminated", ends))
        rows["ended"] = rows["ended"] if ends == "ended" else torch.maximum(rows["terminated"], rows.pop("truncated"))
        shape = rows["obs"].shape[:2]
        for name, values in rows.items():
            wanted = 3 if name in ("obs", "next_obs", "actions_raw") else 2
            sized = name not in OBSERVATIONS or values.shape[2:] == self.observation.shape
            if values.ndim != wanted or values.shape[:2] != shape or not sized:
                raise ConfigError(
                    f"{name} has shape {tuple(values.shape)}, and obs {tuple(rows['obs'].shape)}: give a rollout of "
                    f"[steps, environments{', size' * (wanted == 3)}]."
                )
        return rows

    def learn(self, data: Rows, remaining: float = 1.0, noise: Any = None) -> dict[str, float]:
        """Update the agent on a rollout or a prepared batch and return the metrics.

        `remaining` falls from 1 to 0 over a run with annealed rates. If `noise` is None, `draw_update` draws it.
        """
        noise = self.draw_update(data) if noise is None else noise
        metrics = self.update_in_place(self.updated, data, noise, self.hyper(remaining))
        return self.reported(metrics_to_host(metrics, self.ranks, self.METRICS)[0])

    @torch.no_grad()
    def update_in_place(self, updated: Callable[..., tuple[Tree, Rows]], *inputs: Any) -> Rows:
        """Write the state that `updated(state, *inputs)` returns over the old one, and return the metrics.

        Raise TrainingError, with the old state kept, if that would put a non-finite value into it.
        """
        before = mapped(torch.clone, self.state)
        metrics: Rows = InPlace(updated, self.state, "off")(*inputs)
        if _all_finite(before) and not _all_finite(self.state):
            copy_(self.state, before)
            raise TrainingError(
                "The update led to a value that is not finite, and is undone: give finite data, or lower the learning "
                "rate."
            )
        return metrics

    @abstractmethod
    def updated(self, state: Tree, data: Rows, noise: Any, hyper: Rows) -> tuple[Tree, Rows]:
        """Return the state after one update on `data`, and its metrics."""

    @abstractmethod
    def draw_update(self, data: Rows) -> Any:
        """Draw the noise of one update on `data`: a tree of tensors."""

    def draw_orders(self, *shape: int) -> Tensor:
        """Draw random permutations of this rank's rows; the last number of `shape` is their count.  [..., rows]"""
        *before, rows = shape
        drawn = torch.rand((*before, self.ranks.count * rows), generator=self.generator, device=self.device)
        return self.ranks.local_shard(drawn, -1).argsort(-1)

    def hyper(self, remaining: float = 1.0) -> Rows:
        """Return the config's TENSOR fields as tensors, which can vary in a captured graph and among stacked agents.

        `remaining` falls from 1 to 0 over a run with annealed rates.
        """
        fields = {name: getattr(self.config, name) for name in self.config.fields_with(TENSOR)}
        return as_tensors({**fields, **self._derived_numbers(remaining)}, self.flat.vector)

    @abstractmethod
    def _derived_numbers(self, remaining: float) -> dict[str, Any]:
        """Return the numbers of an update that are derived from the config, such as annealed rates."""

    def reported(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return an update's metrics in the form that is logged."""
        return metrics

    def policy_state(self) -> Tree:
        """Return the entries of `state_dict` that `load_policy` loads: networks and normaliser."""
        return {name: part for name, part in self.state_dict().items() if name in (*self.POLICY_MODULES, "normalizer")}

    def weights(self) -> Tree:
        """Return the entries of the state with which another agent of equal config acts as this one does."""
        return {name: part for name, part in self.state.items() if name in self.ACTING_STATE}

    def calls(self, piece: str) -> int:
        """Return how often an update calls a method of `VMAPPED_METHODS`."""
        return 1

    def lifted(self, lift: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Self:
        """Return a copy in which each method of `VMAPPED_METHODS` is replaced by `lift(name, method)`."""
        other = copy.copy(self)
        for name in self.VMAPPED_METHODS:
            part, _, method = name.rpartition(".")
            mine, theirs = (getattr(agent, part) if part else agent for agent in (self, other))
            if mine is theirs:
                theirs = copy.copy(mine)
                setattr(other, part, theirs)
            setattr(theirs, method, lift(name, getattr(mine, method)))
        return other

    def _tensor(self, values: Array | Tensor) -> Tensor:
        return torch.as_tensor(values, dtype=self.flat.vector.dtype, device=self.device)

    def _rows(self, obs: Any) -> Any:
        """Return observations, as the environment gives them or as rows, as rows on the agent's device."""
        if isinstance(obs, Observed):
            return obs
        images = bool(self.observation.images)
        if isinstance(obs, Tensor):
            if obs.shape[-1:] == self.observation.shape and (not images or obs.dtype == torch.uint8):
                return obs.to(self.device) if images else self._tensor(obs)
            obs = obs.cpu().numpy()
        try:
            rows = self.observation.flatten(obs)
        except ValueError as error:
            raise ConfigError(f"The observations do not fit those of the agent's spec: {error}.") from None
        if rows.shape[-1:] != self.observation.shape:
            raise ConfigError(
                f"The observations have shape {rows.shape}, and those of the agent's spec are rows of "
                f"{self.observation.size}: give them as the environment does."
            )
        return torch.as_tensor(rows, device=self.device) if images else self._tensor(rows)


def _all_finite(state: Tree) -> bool:
    return all(bool(torch.isfinite(leaf).all()) for leaf in leaves(state))


def as_tensors(numbers: Mapping[str, float | Sequence[float]], like: Tensor) -> Rows:
    """Return numbers and lists of numbers as tensors of the dtype and device of `like`, sent in one transfer."""
    lists = {name: list(value) if isinstance(value, Sequence) else [value] for name, value in numbers.items()}
    packed = torch.tensor([number for part in lists.values() for number in part], dtype=like.dtype, device=like.device)
    parts = packed.split([len(part) for part in lists.values()])
    return {
        name: part if isinstance(numbers[name], Sequence) else part.squeeze(0)
        for name, part in zip(lists, parts, strict=True)
    }


def metrics_to_host(metrics: Rows, ranks: Ranks = SINGLE, declared: Iterable[Metric] = ()) -> list[dict[str, float]]:
    """Return metrics as floats, in one transfer: of one agent reduced over ranks, or of each stacked agent."""
    columns = torch.stack([value.detach().to(torch.float64) for value in metrics.values()]).unsqueeze(-1)
    if ranks.count > 1:
        columns = _over_ranks(list(metrics), torch.stack([part for (part,) in ranks.each(columns)]), declared)
    rows = columns.flatten(1).T.tolist() if columns.ndim == 2 else columns.squeeze(-1).T.tolist()
    return [dict(zip(metrics, row, strict=True)) for row in rows]


def _over_ranks(names: Sequence[str], columns: Tensor, declared: Iterable[Metric]) -> Tensor:
    """Reduce each metric over ranks as its declaration says, by default to the mean.  [W, M, 1] -> [M, 1]"""
    chosen = {"min": columns.amin(0), "max": columns.amax(0), "mean": columns.mean(0)}
    reduce = {metric.name: metric.reduce for metric in declared}
    return torch.stack([chosen[reduce.get(name, "mean")][row] for row, name in enumerate(names)])
