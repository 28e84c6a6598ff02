"""Agents of one shape as one: what they own lies stacked along a leading axis, what they compute is one batched call.

A single agent is a stack without that axis; nothing of it is moved or mapped. Shapes: S agents of E environments each.
Environments come as one axis of S * E, agent by agent; data to learn from as [S, ...].
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from minerva.compute import tree
from minerva.compute.compiled import PAYS_FROM, CompileMode, compiled, options_for
from minerva.compute.cuda_graph import InPlace
from minerva.compute.malloc import keep_freed_memory
from minerva.compute.numpy_function import HostFunction, NotOnHostError
from minerva.compute.tree import Tree, mapped
from minerva.loop.agent import Agent, Array, Rows, metrics_to_host


class Stackable(Protocol):
    """Owns a tree of tensors that can be moved."""

    state: Tree

    def move(self, state: Tree) -> None:
        """Keep the state in these tensors from now on."""


def joined_state(owners: Sequence[Stackable]) -> Tree:
    """The states of all owners in one tree, of which theirs are views from now on."""
    if len(owners) == 1:
        return owners[0].state
    state: Tree = tree.stacked([owner.state for owner in owners])
    for n, owner in enumerate(owners):
        owner.move(mapped(lambda tensor, n=n: tensor[n], state))
    return state


class Stack:
    """Acts and learns for all its agents at once. Each draws its own noise, so it does what it would do alone."""

    def __init__(self, agents: Sequence[Agent], mode: CompileMode, updates: int) -> None:
        """`updates` are those to come: compiling has to be worth it."""
        self.agents = list(agents)
        self.many = len(self.agents) > 1
        first = self.agents[0]
        self.mode, self.updates = mode, updates
        self.alone = first.ranks.count == 1
        """Whether learning meets no other processes on its way."""
        self.device = first.device
        if self.device.type == "cpu":
            keep_freed_memory()
        self.state = joined_state(self.agents)
        self._functions = first.lifted(self._lift)
        self._act = InPlace(self._packed_actions, self.state, mode)
        options = functools.partial(options_for, self.device, self.many, self.alone)
        self._update = InPlace(
            self._updated, self.state, mode, updates if first.COMPILE_WHOLE_UPDATE else 0, options, alone=self.alone
        )
        self.prepare: Callable[[Any], Rows] = lambda data: data
        """Makes what the agents learn from out of what `learn` is given; a part of the update."""
        self._hosts: list[HostFunction] = []
        self._try_host = mode == "auto" and self.device.type == "cpu"
        self._example: Rows = {}
        self._widths: dict[str, int] = {}
        self._metrics: Rows = {}

    def lift(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of one agent's tensors as a function of the stack's."""
        return torch.func.vmap(function) if self.many else function

    def stacked(self, parts: Sequence[Any]) -> Any:
        """One tree out of one for each agent."""
        return tree.stacked(parts) if self.many else parts[0]

    # --- acting ---------------------------------------------------------------------------------------------

    def draw_actions(self, shape: tuple[int, ...]) -> Tensor:
        """Noise for actions of `shape` environments (or steps and environments) of each agent, agents before those."""
        drawn: Tensor = self.stacked([agent.draw_own_actions(shape) for agent in self.agents])
        return drawn

    @torch.no_grad()
    def act(self, obs: Tensor, noise: Tensor) -> dict[str, Array]:
        """What the agents' `acted` gives, on the host.  [S * E, O], [S, E, D] -> [S * E, width] by name"""
        own = obs.unflatten(0, (len(self.agents), -1)) if self.many else obs
        if self._try_host:
            self._try_host = False
            self._hosts = self._on_numpy(own, noise)
        if not self._hosts:
            return self.on_host(self._act(own, noise))
        if not self.many:
            return self._hosts[0](obs.numpy(), noise.numpy())
        parts = [host(*inputs) for host, *inputs in zip(self._hosts, own.numpy(), noise.numpy(), strict=True)]
        return _finite({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})

    def invalidate_cached_weights(self) -> None:
        """Act on what the agents' networks hold now: somebody else, as a callback, may have written to them."""
        for host in self._hosts:
            host.invalidate_cached_weights()

    def act_with(self, parts: Sequence[Rows]) -> dict[str, Array]:
        """The same for actions that each agent has drawn some other way."""
        return self.on_host(self._packed(self.stacked(parts)))

    def on_host(self, packed: Tensor) -> dict[str, Array]:
        """The columns of packed actions by name."""
        rows = packed.flatten(0, 1) if self.many else packed
        columns = rows.cpu().split(list(self._widths.values()), -1)
        actions = {name: part.numpy() for name, part in zip(self._widths, columns, strict=True)}
        return _finite(actions) if self.many else actions

    # --- learning -------------------------------------------------------------------------------------------

    @torch.no_grad()
    def learn(self, data: Any, hyper: Rows) -> None:
        """Learn from each agent's own data, without waiting for the device."""
        if not self._example:  # noise depends on the data's shapes alone, and those stay
            rows = self.prepare(mapped(lambda tensor: tensor.to(self.device), data))
            self._example = mapped(lambda tensor: tensor[0], rows) if self.many else rows
        noise = self.stacked([agent.draw_update(self._example) for agent in self.agents])
        self._metrics = self._update(data, noise, hyper)
        self.invalidate_cached_weights()  # compiled code writes without being counted

    def hyper(self, remaining: float = 1.0) -> Rows:
        """Each agent's numbers."""
        numbers: Rows = self.stacked([agent.hyper(remaining) for agent in self.agents])
        return numbers

    def metrics(self) -> list[dict[str, float]]:
        """What each agent has to report of the last update, fetched in one transfer; nothing if there was none."""
        if not self._metrics:
            return []
        rows = metrics_to_host(self._metrics, self.agents[0].ranks)
        return [agent.reported(row) for agent, row in zip(self.agents, rows, strict=True)]

    # --- details --------------------------------------------------------------------------------------------

    def _lift(self, name: str, piece: Callable[..., Any]) -> Callable[..., Any]:
        first = self.agents[0]
        if name not in first.COMPILED_METHODS or (name == "acted" and self.device.type == "cuda"):
            return self.lift(piece)
        alone = self.alone or name == "acted"
        options = functools.partial(options_for, self.device, self.many, alone)
        return compiled(self.lift(piece), self.mode, self.updates * first.calls(name), options, alone)

    def _on_numpy(self, obs: Tensor, noise: Tensor) -> list[HostFunction]:
        """Acting as calls of NumPy, agent by agent, if that is quicker and there are enough of them."""
        if self.updates * self.agents[0].calls("acted") < PAYS_FROM:
            return []
        inputs = zip(obs, noise, strict=True) if self.many else [(obs, noise)]
        try:
            return [
                HostFunction(agent.acted, agent.state, *own) for agent, own in zip(self.agents, inputs, strict=True)
            ]
        except NotOnHostError:
            return []

    def _updated(self, state: Tree, data: Any, noise: Any, hyper: Rows) -> tuple[Tree, Rows]:
        return self._functions.updated(state, self.prepare(data), noise, hyper)

    def _packed_actions(self, state: Tree, obs: Tensor, noise: Tensor) -> tuple[Tree, Tensor]:
        return {}, self._packed(self._functions.acted(state, obs, noise))

    def _packed(self, outputs: Rows) -> Tensor:
        """All columns in one tensor: one transfer to the host."""
        self._widths = {name: value.shape[-1] for name, value in outputs.items()}
        return torch.cat(list(outputs.values()), -1)


def _finite(actions: dict[str, Array]) -> dict[str, Array]:
    """Actions that environments can be given: one agent gone astray is stopped by its own losses, not the others."""
    np.nan_to_num(actions["actions_executed"], copy=False, nan=0.0, posinf=1.0, neginf=-1.0)
    return actions
