"""What the agents share: one tree of tensors that they own, and pure functions that read and replace it."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.tree import Tree
from minerva.metrics import Metric

Array = np.ndarray[Any, np.dtype[Any]]
Rows = dict[str, Tensor]
"""Tensors by name."""


class Agent(ABC):
    """Acts and learns. `state` holds all that learning changes; the modules' parameters are views of it.

    An update is `updated(state, data, noise, hyper) -> (state, metrics)`, a loop around the methods named in
    `VMAPPED_METHODS`. Those are functions of one agent's tensors and can be compiled, or mapped over many agents'
    stacked tensors; the loop itself takes both as they come.
    """

    VMAPPED_METHODS: ClassVar[tuple[str, ...]]
    """Methods that are mapped over the agents of a stack."""
    COMPILED_METHODS: ClassVar[tuple[str, ...]]
    """Those of them that are worth compiling each."""
    INPUTS: ClassVar[tuple[str, ...]]
    """Fields of the config that an update takes as numbers: the agents of a stack may differ in them."""
    METRICS: ClassVar[Sequence[Metric]]
    """What an update reports."""
    ACTING_STATE: ClassVar[tuple[str, ...]] = ("parameters", "normalizer", "old")
    """What acting needs of the state, as far as there is such a part."""
    COMPILE_WHOLE_UPDATE: ClassVar[bool] = False
    """Whether the update has no long loop, so that it is compiled as a whole."""

    config: Any
    device: torch.device
    generator: torch.Generator
    state: Tree
    ranks: Ranks = SINGLE
    """Those it learns with. What it owns is the same in all of them."""

    @abstractmethod
    def move(self, state: Tree) -> None:
        """Keep the state in these tensors, which hold the same numbers, from now on."""

    @abstractmethod
    def state_dict(self) -> Tree:
        """Everything the agent needs to go on as if nothing had happened."""

    @abstractmethod
    def load_state_dict(self, state: Tree) -> None:
        """Take over a state made by `state_dict`."""

    @abstractmethod
    def load_policy(self, state: Tree) -> None:
        """Take over the networks and the normaliser alone: to act, or to start training from them."""

    # --- acting ---------------------------------------------------------------------------------------------

    @abstractmethod
    def acted(self, state: Tree, obs: Tensor, noise: Tensor) -> Rows:
        """`actions` as drawn, which learning uses, `executed` in [-1, 1], and what else learning wants to know."""

    @abstractmethod
    def draw_actions(self, shape: tuple[int, ...]) -> Tensor:
        """The noise of actions for observations of this shape without its last axis.  [..., D]"""

    def draw_own_actions(self, shape: tuple[int, ...]) -> Tensor:
        """The same for environments [..., E] of this process: its part of what is drawn for those of all."""
        *before, envs = shape
        return self.ranks.local_shard(self.draw_actions((*before, envs * self.ranks.count)), -2)

    @abstractmethod
    def policy_action(self, obs: Array | Tensor, deterministic: bool = True) -> Tensor:
        """Actions within the bounds, and nothing else.  [..., O] -> [..., D]"""

    # --- learning -------------------------------------------------------------------------------------------

    @abstractmethod
    def updated(self, state: Tree, data: Rows, noise: Any, hyper: Rows) -> tuple[Tree, Rows]:
        """The state after learning from `data`, and metrics."""

    @abstractmethod
    def draw_update(self, data: Rows) -> Any:
        """The noise of one update on `data`: a tree of tensors."""

    def draw_orders(self, *shape: int) -> Tensor:
        """Random orders of this process's rows, of which there are as many as the last axis is long.  [..., rows]"""
        *before, rows = shape
        drawn = torch.rand((*before, self.ranks.count * rows), generator=self.generator, device=self.device)
        return self.ranks.local_shard(drawn, -1).argsort(-1)

    @abstractmethod
    def hyper(self, remaining: float = 1.0) -> Rows:
        """The numbers an update uses, as tensors: a captured graph and stacked agents can vary them.

        `remaining` falls from 1 to 0 over a run whose rates are annealed.
        """

    def reported(self, metrics: dict[str, float]) -> dict[str, float]:
        """An update's metrics as they are logged."""
        return metrics

    def weights(self) -> Tree:
        """What another agent of the same config needs to act as this one does."""
        return {name: part for name, part in self.state.items() if name in self.ACTING_STATE}

    def calls(self, piece: str) -> int:
        """How often an update calls a piece."""
        return 1

    def lifted(self, lift: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Self:
        """The same agent with `lift(name, piece)` in the place of each piece."""
        other = copy.copy(self)
        for name in self.VMAPPED_METHODS:
            setattr(other, name, lift(name, getattr(self, name)))
        return other


class OffPolicyAgent(Agent):
    """An agent that learns from a replay."""

    skipped: int
    """Updates left out because a value was not finite."""

    @abstractmethod
    def sample_uniform(self, shape: tuple[int, ...]) -> Rows:
        """Actions at random, for observations of this shape without its last axis; as `acted` gives them."""

    @abstractmethod
    def prepared(self, batch: Mapping[str, Array | Tensor]) -> Rows:
        """A batch from the replay as `updated` takes it."""


def as_tensors(numbers: Mapping[str, float | Sequence[float]], like: Tensor) -> Rows:
    """Numbers and lists of numbers as tensors of one dtype, sent to the device together."""
    lists = {name: list(value) if isinstance(value, Sequence) else [value] for name, value in numbers.items()}
    packed = torch.tensor([number for part in lists.values() for number in part], dtype=like.dtype, device=like.device)
    parts = packed.split([len(part) for part in lists.values()])
    return {
        name: part if isinstance(numbers[name], Sequence) else part.squeeze(0)
        for name, part in zip(lists, parts, strict=True)
    }


def metrics_to_host(metrics: Rows, ranks: Ranks = SINGLE, declared: Iterable[Metric] = ()) -> list[dict[str, float]]:
    """Metrics as numbers, in one transfer: those of an agent over all processes, or of each agent of a stack."""
    columns = torch.stack([value.detach().to(torch.float64) for value in metrics.values()]).unsqueeze(-1)
    if ranks.count > 1:
        columns = _over_ranks(list(metrics), torch.stack([of for (of,) in ranks.each(columns)]), declared)
    rows = columns.flatten(1).T.tolist() if columns.ndim == 2 else columns.squeeze(-1).T.tolist()
    return [dict(zip(metrics, row, strict=True)) for row in rows]


def _over_ranks(names: Sequence[str], columns: Tensor, declared: Iterable[Metric]) -> Tensor:
    """Return one value for all ranks of each metric: what its declaration says, a mean if it has none.  [W, M, 1]"""
    chosen = {"min": columns.amin(0), "max": columns.amax(0), "mean": columns.mean(0)}
    reduce = {metric.name: metric.reduce for metric in declared}
    return torch.stack([chosen[reduce.get(name, "mean")][row] for row, name in enumerate(names)])
