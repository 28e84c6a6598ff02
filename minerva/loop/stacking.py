"""Agents of one shape as one: what they own lies stacked along a leading axis, what they compute is one batched call.

A single agent is a stack without that axis; nothing of it is moved or mapped. Shapes: S agents of E environments each.
Environments come as one axis of S * E, agent by agent; data to learn from as [S, ...].
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from minerva.compute import tree
from minerva.compute.compiled import MIN_CALLS_TO_COMPILE, CompileMode, compiled, options_for
from minerva.compute.cuda_graph import InPlace
from minerva.compute.malloc import keep_freed_memory
from minerva.compute.numpy_function import HostFunction, NotOnHostError
from minerva.compute.tree import Tree, mapped
from minerva.loop.agent import Agent, Rows, metrics_to_host


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
        self.distributed = first.ranks.count > 1
        """Whether an update meets other ranks on its way."""
        self.device = first.device
        if self.device.type == "cpu":
            keep_freed_memory()
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
        """Makes what the agents learn from out of what `learn` is given; a part of the update."""
        self._numpy_functions: list[HostFunction] = []
        self._try_numpy = mode == "auto" and self.device.type == "cpu"
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
    def act(self, obs: Tensor, draws: Any) -> dict[str, Tensor]:
        """Return what the agents' `acted` gives, on the device of `obs`.  [S * E, O], draws -> [S * E, width] by name

        `draws` are the noise of the actions [S, E, D], or the actions themselves as each agent has drawn them.
        """
        if isinstance(draws, dict):
            return self._unpacked(self._packed(draws), obs.device)
        own = obs.unflatten(0, (len(self.agents), -1)) if self.many else obs
        if self._try_numpy:
            self._try_numpy = False
            self._numpy_functions = self._as_numpy(own, draws)
        if not self._numpy_functions:
            return self._unpacked(self._act(own, draws), obs.device)
        if not self.many:
            done = self._numpy_functions[0](obs.numpy(), draws.numpy())
            return {name: torch.from_numpy(values) for name, values in done.items()}
        inputs = zip(self._numpy_functions, own.numpy(), draws.numpy(), strict=True)
        parts = [function(*its_own) for function, *its_own in inputs]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return _finite({name: torch.from_numpy(values) for name, values in joined.items()})

    def invalidate_cached_weights(self) -> None:
        """Act on what the agents' networks hold now: somebody else, as a callback, may have written to them."""
        for function in self._numpy_functions:
            function.invalidate_cached_weights()

    def _unpacked(self, packed: Tensor, device: torch.device) -> dict[str, Tensor]:
        """Return the columns of packed actions by name, sent to `device` in one transfer if they lie elsewhere."""
        rows = (packed.flatten(0, 1) if self.many else packed).to(device)
        columns = rows.split(list(self._widths.values()), -1)
        actions = dict(zip(self._widths, columns, strict=True))
        return _finite(actions) if self.many else actions

    # --- learning -------------------------------------------------------------------------------------------

    @torch.no_grad()
    def learn(self, data: Any, hyper: Rows) -> None:
        """Learn from each agent's own data, without waiting for the device."""
        if not self._example:  # noise depends on the data's shapes alone, and those stay
            rows = self.prepare(mapped(lambda tensor: tensor.to(self.device), data))
            one = mapped(lambda tensor: tensor[0], rows) if self.many else rows
            self._example = mapped(lambda tensor: torch.empty_like(tensor, device="meta"), one)  # holds no memory
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
        rows = metrics_to_host(self._metrics, self.agents[0].ranks, self.agents[0].METRICS)
        return [agent.reported(row) for agent, row in zip(self.agents, rows, strict=True)]

    # --- details --------------------------------------------------------------------------------------------

    def _lift(self, name: str, piece: Callable[..., Any]) -> Callable[..., Any]:
        first = self.agents[0]
        if name not in first.COMPILED_METHODS or (name == "acted" and self.device.type == "cuda"):
            return self.lift(piece)
        distributed = self.distributed and name != "acted"
        options = options_for(self.device, self.many, distributed=distributed)
        return compiled(self.lift(piece), self.mode, self.updates * first.calls(name), options, distributed=distributed)

    def _as_numpy(self, obs: Tensor, noise: Tensor) -> list[HostFunction]:
        """Acting as calls of NumPy, agent by agent, if that is quicker and there are enough of them."""
        if self.updates * self.agents[0].calls("acted") < MIN_CALLS_TO_COMPILE:
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


def _finite(actions: dict[str, Tensor]) -> dict[str, Tensor]:
    """Replace non-finite actions: an agent that has diverged is stopped by its own losses, and the others go on."""
    executed = torch.nan_to_num(actions["actions_executed"], nan=0.0, posinf=1.0, neginf=-1.0)
    return {**actions, "actions_executed": executed}
