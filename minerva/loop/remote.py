"""Environments in blocks, each stepped by a worker that acts with weights the learner publishes.

A worker is a function of what it is sent: the state of its simulators, weights, and the noise of its actions. So one
that dies is replaced by another that is sent the same, and what it collects does not depend on where it runs. The noise
is drawn by the learner: rollouts are those of one process that acts in the same blocks of environments.
"""

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from minerva.compute.tree import Tree, copy_, mapped
from minerva.envs.ids import EnvLike
from minerva.envs.vector import EngineName, Episode, VectorEnv, make_vector
from minerva.errors import ConfigError, EnvError
from minerva.loop.agent import Agent, Array, Rows
from minerva.loop.stacking import Stack

logger = logging.getLogger("minerva")

State = dict[str, Any]


class CollectRequest(NamedTuple):
    """What a worker is to collect."""

    number: int
    """Of orders before this one: a worker that has carried out so many is where it should be."""
    state: State
    """Of its environments before this order."""
    weights: Tree
    draws: Tensor | Rows
    """Noise of the actions [T, E, D], or the actions themselves as `Agent.acted` gives them."""


class CollectResult(NamedTuple):
    """What a worker sends back: its steps by field [T, E, ...], episodes that ended, its environments after them."""

    fields: dict[str, Array]
    episodes: list[Episode]
    state: State


class ActorWorker:
    """A worker's part: environments, and an agent to act in them."""

    def __init__(self, agent: Agent, env: EnvLike, num_envs: int, engine: EngineName, calls: int) -> None:
        """`calls` to act are to come: making that quick has to be worth it."""
        self.envs = make_vector(env, num_envs, engine)
        self.agent, self.stack = agent, Stack([agent], "auto", calls)
        self.number = -1

    def describe(self) -> dict[str, Any]:
        """The environments' shape."""
        envs = self.envs
        bounds = {"action_low": envs.action_low, "action_high": envs.action_high}
        return {"name": envs.engine, "env_name": envs.name, "obs_dim": envs.obs_dim, **bounds}

    def reset(self, seeds: Sequence[int]) -> State:
        """Begin new episodes; the state of the environments."""
        self.envs.reset(seeds)
        self.number = 0
        return self.envs.state_dict()

    def restore(self, number: int, state: State) -> str:
        """Put the environments where they were after so many orders; why that cannot be, or nothing."""
        self.number = number
        return self.envs.load_state_dict(state)

    def collect(self, order: CollectRequest) -> CollectResult:
        """Carry out an order."""
        if order.number != self.number:  # a new worker in the place of one that died
            self._catch_up(order)
        copy_(self.agent.state, order.weights)
        self.stack.invalidate_cached_weights()
        rows: list[dict[str, Array]] = []
        episodes: list[Episode] = []
        for draws in _steps(order.draws):
            obs = self.envs.obs
            done = self.stack.act_with([draws]) if isinstance(draws, dict) else self._acted(obs, draws)
            step = self.envs.step(done["actions_executed"])
            seen = {"obs": obs, "next_obs": step.next_obs, "rewards": step.rewards}
            rows.append({**done, **seen, "terminated": step.terminated, "truncated": step.truncated})
            episodes += step.episodes
        self.number += 1
        fields = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        return CollectResult(fields, episodes, self.envs.state_dict())

    def _acted(self, obs: Array, noise: Tensor) -> dict[str, Array]:
        return self.stack.act(torch.from_numpy(obs), noise)

    def _catch_up(self, order: CollectRequest) -> None:
        obstacle = self.restore(order.number, order.state)
        if obstacle:
            logger.warning("A worker was replaced, and its environments start new episodes (%s).", obstacle)
            words = np.random.SeedSequence([order.number]).generate_state(self.envs.num_envs)
            self.envs.reset([int(word) for word in words])


def _steps(draws: Tensor | Rows) -> list[Any]:
    """The draws of each step."""
    if isinstance(draws, Tensor):
        return list(draws.unbind())
    return [{name: rows[t] for name, rows in draws.items()} for t in range(len(draws["actions_raw"]))]


class Worker(Protocol):
    """Something that has a `Block` and does what it is asked, here or elsewhere."""

    def begin(self, name: str, *arguments: Any) -> Any:
        """Ask for a call of the block's method."""

    def result(self, begun: Any) -> Any:
        """What the call gave."""

    def close(self) -> None:
        """Free the environments."""


class LocalWorker:
    """A worker in this process, which does what it was asked when the result is wanted."""

    def __init__(self, block: ActorWorker) -> None:
        self.block = block

    def begin(self, name: str, *arguments: Any) -> Any:
        """See `Worker`."""
        return name, arguments

    def result(self, begun: Any) -> Any:
        """See `Worker`."""
        name, arguments = begun
        return getattr(self.block, name)(*arguments)

    def close(self) -> None:
        """See `Worker`."""
        self.block.envs.close()


class RemoteCollector(VectorEnv):
    """The environments of all workers, in equal blocks, as a trainer sees them. They are not stepped, but collected."""

    def __init__(self, workers: Sequence[Worker], num_envs: int) -> None:
        if num_envs % len(workers):
            raise ConfigError(f"num_envs is {num_envs}: give a multiple of the number of actors, {len(workers)}.")
        shape = workers[0].result(workers[0].begin("describe"))
        name = shape.pop("env_name")
        engine: Any = SimpleNamespace(**shape, num_envs=num_envs, close=self._close)
        super().__init__(engine, name)
        self.workers = list(workers)
        self.each = num_envs // len(workers)
        self._states: list[State] = []
        self._number = 0
        self._begun: list[Any] = []

    def reset(self, seeds: Sequence[int]) -> Array:
        """See `VectorEnv`."""
        self._number, self._begun = 0, []
        parts = [seeds[n * self.each : (n + 1) * self.each] for n in range(len(self.workers))]
        self._states = self._all("reset", *([part] for part in parts))
        self.obs = np.concatenate([state["obs"] for state in self._states])
        return self.obs

    def send(self, actions: Array) -> None:
        """Refused: the workers act."""
        raise EnvError(f"{self.name} is stepped by actors, which act themselves: use collect.")

    def begin(self, weights: Tree, draws: Tensor | Rows) -> None:
        """Let the workers collect with these weights; `draws` are noise [T, E, D], or actions by name."""
        published = self._published(mapped(lambda tensor: tensor.detach().cpu().clone(), weights))
        own = [mapped(lambda rows, n=n: self._block(rows.cpu(), n), draws) for n in range(len(self.workers))]
        orders = [
            CollectRequest(self._number, state, published, part) for state, part in zip(self._states, own, strict=True)
        ]
        self._begun = [worker.begin("collect", order) for worker, order in zip(self.workers, orders, strict=True)]

    def finish(self) -> tuple[dict[str, Array], list[Episode]]:
        """What they have collected: steps by field [T, E, ...], and episodes."""
        parts: list[CollectResult] = [
            worker.result(begun) for worker, begun in zip(self.workers, self._begun, strict=True)
        ]
        self._begun, self._states = [], [part.state for part in parts]
        self._number += 1
        fields = {name: np.concatenate([part.fields[name] for part in parts], 1) for name in parts[0].fields}
        episodes = [e._replace(env=n * self.each + e.env) for n, part in enumerate(parts) for e in part.episodes]
        return fields, episodes

    def state_dict(self) -> State:
        """See `VectorEnv`: that of one with all environments."""
        under_way = {"obs": self.obs, "returns": self._returns, "lengths": self._lengths}
        states = self._states or [{**under_way, "simulators": [], "obstacle": "nothing was begun"}]
        whole = {name: np.concatenate([state[name] for state in states]) for name in under_way}
        simulators = [one for state in states for one in state["simulators"]]
        obstacle = next((state["obstacle"] for state in states if state["obstacle"]), "")
        return {**whole, "simulators": simulators, "obstacle": obstacle}

    def load_state_dict(self, state: State) -> str:
        """See `VectorEnv`."""
        if state["obstacle"]:
            return str(state["obstacle"])
        self._number, self._states = 0, []
        for n in range(len(self.workers)):
            own = slice(n * self.each, (n + 1) * self.each)
            self._states.append({name: part if name == "obstacle" else part[own] for name, part in state.items()})
        obstacles = self._all("restore", *([0, part] for part in self._states))
        return next(filter(None, obstacles), "")

    def _all(self, name: str, *arguments: Sequence[Any]) -> list[Any]:
        begun = [worker.begin(name, *own) for worker, own in zip(self.workers, arguments, strict=True)]
        return [worker.result(one) for worker, one in zip(self.workers, begun, strict=True)]

    def _block(self, rows: Tensor, n: int) -> Tensor:
        return rows[:, n * self.each : (n + 1) * self.each]

    def _published(self, weights: Tree) -> Any:
        """The weights as orders hold them: sent once, where workers are elsewhere."""
        return weights

    def _close(self) -> None:
        for worker in self.workers:
            worker.close()
