"""A stack of agents of one shape: states stacked along a leading axis, computations in one batched call.

A single agent is a stack without that axis: its state is not copied and its methods are not mapped. Shapes: S agents of
E environments each. Environments are one axis of S * E, agent by agent; data to learn from is [S, ...].
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from minerva.compute import tree
from minerva.compute.compiled import MIN_CALLS_TO_COMPILE, compiled, options_for
from minerva.compute.cuda_graph import InPlace
from minerva.compute.modes import CompileMode
from minerva.compute.numpy_function import HostFunction, NotOnHostError
from minerva.compute.tree import Tree, mapped
from minerva.loop.agent import Agent, Rows, metrics_to_host


class Stackable(Protocol):
    """An object whose state is a tree of tensors in replaceable storage."""

    state: Tree

    def move(self, state: Tree) -> None:
        """Use these tensors, which hold equal values, as the storage of the state."""


def joined_state(owners: Sequence[Stackable]) -> Tree:
    """Stack the states of all owners in one tree and return it; the owners' states become views of it."""
    if len(owners) == 1:
        return owners[0].state
    state: Tree = mapped(_pinned_like, tree.stacked([owner.state for owner in owners]), owners[0].state)
    for n, owner in enumerate(owners):
        owner.move(mapped(lambda tensor, n=n: tensor[n], state))
    return state


def _pinned_like(tensor: Tensor, example: Tensor) -> Tensor:
    """Return the tensor in page-locked memory if the example's is, so that a GPU need not wait for its copy."""
    return tensor.pin_memory() if example.is_pinned() else tensor


class Stack:
    """Agents that act and learn in batched calls. Each draws its own noise, so it does what it would do alone."""

    def __init__(self, agents: Sequence[Agent], mode: CompileMode, updates: int) -> None:
        """Stack the agents' states; `updates` is the expected number of updates, which decides about compiling."""
        self.agents = list(agents)
        self.many = len(self.agents) > 1
        first = self.agents[0]
        self.mode, self.updates = mode, updates
        self.distributed = first.ranks.count > 1
        """Whether an update calls collectives."""
        self.device = first.device
        self.state = joined_state(self.agents)
        self._functions = first.lifted(self._lift)
        self._act = InPlace(self._packed_actions, self.state, mode)
        options = options_for(self.device, self.many, distributed=self.distributed)
        self._update = InPlace(
            self._updated,
            self.state,
            mode,
            updates if first.COMPILE_WHOLE_UPDATE else 0,
            options,
            distributed=self.distributed,
        )
        self.prepare: Callable[[Any], Rows] = lambda data: data
        """Maps the argument of `learn` to an update's data, inside the update; the off-policy loop sets it."""
        self._numpy_functions: list[HostFunction] = []
        self._try_numpy = mode == "auto" and self.device.type == "cpu"
        self._example: Rows = {}
        self._widths: dict[str, int] = {}
        self._metrics: Rows = {}

    def lift(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of one agent's tensors as a function of the stack's, by vmap."""
        return torch.func.vmap(function) if self.many else function

    def stacked(self, parts: Sequence[Any]) -> Any:
        """Stack one tree per agent into one tree."""
        return tree.stacked(parts) if self.many else parts[0]

    # --- acting ---------------------------------------------------------------------------------------------

    def draw_actions(self, shape: tuple[int, ...]) -> Tensor:
        """Draw each agent's action noise for `shape`, [E] or [T, E].  -> [S, ..., D], or [..., D] for one agent"""
        drawn: Tensor = self.stacked([agent.draw_local_actions(shape) for agent in self.agents])
        return drawn

    @torch.no_grad()
    def act(self, obs: Tensor, draws: Any) -> dict[str, Tensor]:
        """Call the agents' `acted`; the result is on the device of `obs`.  [S * E, O], draws -> [S * E, width] by name

        `draws` is the action noise [S, E, D], or the actions themselves as each agent has drawn them.
        """
        if isinstance(draws, dict):
            return self._unpacked(self._packed(draws), obs.device)
        by_agent = obs.unflatten(0, (len(self.agents), -1)) if self.many else obs
        if self._try_numpy:
            self._try_numpy = False
            self._numpy_functions = self._as_numpy(by_agent, draws)
        if not self._numpy_functions:
            return self._unpacked(self._act(by_agent, draws), obs.device)
        if not self.many:
            acted = self._numpy_functions[0](obs.numpy(), draws.numpy())
            return {name: torch.from_numpy(values) for name, values in acted.items()}
        inputs = zip(self._numpy_functions, by_agent.numpy(), draws.numpy(), strict=True)
        parts = [function(*arrays) for function, *arrays in inputs]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return _finite({name: torch.from_numpy(values) for name, values in joined.items()})

    def invalidate_cached_weights(self) -> None:
        """Reread the agents' weights at the next `act`; call it after writing to them, as a callback may."""
        for function in self._numpy_functions:
            function.invalidate_cached_weights()

    def _unpacked(self, packed: Tensor, device: torch.device) -> dict[str, Tensor]:
        """Split packed actions into columns by name, sent to `device` in one transfer."""
        rows = (packed.flatten(0, 1) if self.many else packed).to(device)
        columns = rows.split(list(self._widths.values()), -1)
        actions = dict(zip(self._widths, columns, strict=True))
        return _finite(actions) if self.many else actions

    # --- learning -------------------------------------------------------------------------------------------

    @torch.no_grad()
    def learn(self, data: Any, hyper: Rows) -> None:
        """Update every agent on its data, without waiting for the device."""
        if not self._example:  # noise depends only on the data's shapes, which are constant
            rows = self.prepare(mapped(lambda tensor: tensor.to(self.device), data))
            one = mapped(lambda tensor: tensor[0], rows) if self.many else rows
            self._example = mapped(lambda tensor: torch.empty_like(tensor, device="meta"), one)  # holds no memory
        noise = self.stacked([agent.draw_update(self._example) for agent in self.agents])
        self._metrics = self._update(data, noise, hyper)
        self.invalidate_cached_weights()  # compiled code does not advance version counters

    def hyper(self, remaining: float = 1.0) -> Rows:
        """Return the agents' hyperparameters as stacked tensors."""
        numbers: Rows = self.stacked([agent.hyper(remaining) for agent in self.agents])
        return numbers

    def metrics(self) -> list[dict[str, float]]:
        """Return each agent's metrics of the last update, in one transfer; an empty list before the first update."""
        if not self._metrics:
            return []
        rows = metrics_to_host(self._metrics, self.agents[0].ranks, self.agents[0].METRICS)
        return [agent.reported(row) for agent, row in zip(self.agents, rows, strict=True)]

    # --- details --------------------------------------------------------------------------------------------

    def _lift(self, name: str, piece: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method of the first agent mapped over the stack, and compiled if it is worth it."""
        first = self.agents[0]
        if name not in first.COMPILED_METHODS or (name == "acted" and self.device.type == "cuda"):
            return self.lift(piece)
        distributed = self.distributed and name != "acted"
        options = options_for(self.device, self.many, distributed=distributed)
        return compiled(self.lift(piece), self.mode, self.updates * first.calls(name), options, distributed=distributed)

    def _as_numpy(self, obs: Tensor, noise: Tensor) -> list[HostFunction]:
        """Return `acted` of each agent in NumPy; an empty list if PyTorch is faster or there are too few calls."""
        if self.updates * self.agents[0].calls("acted") < MIN_CALLS_TO_COMPILE:
            return []
        inputs = zip(obs, noise, strict=True) if self.many else [(obs, noise)]
        try:
            return [
                HostFunction(agent.acted, agent.state, *args) for agent, args in zip(self.agents, inputs, strict=True)
            ]
        except NotOnHostError:
            return []

    def _updated(self, state: Tree, data: Any, noise: Any, hyper: Rows) -> tuple[Tree, Rows]:
        return self._functions.updated(state, self.prepare(data), noise, hyper)

    def _packed_actions(self, state: Tree, obs: Tensor, noise: Tensor) -> tuple[Tree, Tensor]:
        return {}, self._packed(self._functions.acted(state, obs, noise))

    def _packed(self, outputs: Rows) -> Tensor:
        """Concatenate all columns into one tensor, for one transfer to the host."""
        self._widths = {name: value.shape[-1] for name, value in outputs.items()}
        return torch.cat(list(outputs.values()), -1)


def _finite(actions: dict[str, Tensor]) -> dict[str, Tensor]:
    """Replace non-finite actions: an agent that has diverged is stopped by its losses, and the others continue."""
    executed = torch.nan_to_num(actions["actions_executed"], nan=0.0, posinf=1.0, neginf=-1.0)
    return {**actions, "actions_executed": executed}
