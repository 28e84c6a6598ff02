"""The remote collector: environments in equal parts, each stepped by a worker with weights the learner publishes.

A worker is a function of what it is sent: the state of its simulators, weights, and the noise of its actions. So one
that dies is replaced by another that is sent the same, and what it collects does not depend on where it runs. The noise
is drawn by the learner: rollouts are those of one process that acts in the same parts of the environments.
"""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from minerva.compute.tree import Tree, copy_, mapped
from minerva.data.replay import ReplayWriter
from minerva.data.rollout import RolloutWriter
from minerva.envs.engine import Episode
from minerva.envs.engines.registry import EngineName, make_engine
from minerva.envs.ids import EnvLike
from minerva.errors import ConfigError
from minerva.loop.agent import Agent, Rows
from minerva.loop.collector import Collected, Collector, Interrupted, ReplayPlan, steps_of
from minerva.loop.stacking import Stack
from minerva.spec import ActionSpec, ObservationSpec

logger = logging.getLogger("minerva")

State = dict[str, Any]

ROUND = 25
"""Steps of each environment that workers collect at once for a replay."""


class CollectRequest(NamedTuple):
    """What a worker is to collect."""

    number: int
    """Requests before this one: a worker that has answered so many is where it should be."""
    state: State
    """Of its environments before this request."""
    weights: Tree
    draws: Tensor | Rows
    """Noise of the actions [T, E, D], or the actions themselves as `Agent.acted` gives them."""


class CollectResult(NamedTuple):
    """What a worker sends back: its steps by field [T, E, ...], episodes that ended, its environments after them."""

    fields: dict[str, Tensor]
    episodes: list[Episode]
    state: State


class ActorWorker:
    """A worker's part: environments, and an agent to act in them."""

    def __init__(self, agent: Agent, env: EnvLike, num_envs: int, engine: EngineName, calls: int) -> None:
        """`calls` to act are to come: making that quick has to be worth it."""
        self.envs = make_engine(env, num_envs, engine)
        self.agent, self.stack = agent, Stack([agent], "auto", calls)
        self.number = -1

    def describe(self) -> dict[str, Any]:
        """Return what the environments look like."""
        envs = self.envs
        specs = {"observation": envs.observation, "action": envs.action}
        return {"name": envs.name, "env_name": envs.env_name, "exact": envs.resumes_exactly, **specs}

    def reset(self, seeds: Sequence[int]) -> State:
        """Begin new episodes and return the state of the environments."""
        self.envs.reset(seeds)
        self.number = 0
        return self.envs.state_dict()

    def restore(self, number: int, state: State) -> str:
        """Put the environments where they were after so many requests; return why that fails, if it does."""
        self.number = number
        return self.envs.load_state_dict(state)

    def collect(self, request: CollectRequest) -> CollectResult:
        """Answer a request."""
        if request.number != self.number:  # a new worker in the place of one that died
            self._catch_up(request)
        copy_(self.agent.state, request.weights)
        self.stack.invalidate_cached_weights()
        rows: list[Rows] = []
        for draws in steps_of(request.draws):
            obs = self.envs.obs
            acted = self.stack.act(obs, draws)
            transition = self.envs.step(acted["actions_executed"])
            rows.append({**acted, "obs": obs, **transition._asdict()})
        self.number += 1
        fields = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        return CollectResult(fields, self.envs.take_episodes(), self.envs.state_dict())

    def _catch_up(self, request: CollectRequest) -> None:
        reason = self.restore(request.number, request.state)
        if reason:
            logger.warning("A worker was replaced, and its environments start new episodes (%s).", reason)
            words = np.random.SeedSequence([request.number]).generate_state(self.envs.num_envs)
            self.envs.reset([int(word) for word in words])


class Worker(Protocol):
    """Something that has an `ActorWorker` and does what it is asked, here or elsewhere."""

    def begin(self, name: str, *arguments: Any) -> Any:
        """Ask for a call of the worker's method."""

    def result(self, begun: Any) -> Any:
        """Return what the call gave."""

    def close(self) -> None:
        """Free the environments."""


class LocalWorker:
    """A worker in this process, which does what it was asked when the result is wanted."""

    def __init__(self, block: ActorWorker) -> None:
        self.block = block

    def begin(self, name: str, *arguments: Any) -> Any:
        """Note the call."""
        return name, arguments

    def result(self, begun: Any) -> Any:
        """Carry the call out."""
        name, arguments = begun
        return getattr(self.block, name)(*arguments)

    def close(self) -> None:
        """Close the environments."""
        self.block.envs.close()


class RemoteEnvs:
    """The environments of all workers as a trainer sees them. They are not stepped here, but collected from."""

    def __init__(self, workers: Sequence[Worker], num_envs: int) -> None:
        if num_envs % len(workers):
            raise ConfigError(f"num_envs is {num_envs}: give a multiple of the number of actors, {len(workers)}.")
        described = workers[0].result(workers[0].begin("describe"))
        self.name: str = described["name"]
        self.env_name: str = described["env_name"]
        self.resumes_exactly: bool = described["exact"]
        self.observation: ObservationSpec = described["observation"]
        self.action: ActionSpec = described["action"]
        self.device = torch.device("cpu")
        self.num_envs, self.each = num_envs, num_envs // len(workers)
        self.workers = list(workers)
        self.states: list[State] = []
        self.number = 0

    def reset(self, seeds: Sequence[int]) -> None:
        """Begin new episodes everywhere, environment i seeded with `seeds[i]`."""
        self.number = 0
        parts = [seeds[n * self.each : (n + 1) * self.each] for n in range(len(self.workers))]
        self.states = self._all("reset", *([part] for part in parts))

    def state_dict(self) -> State:
        """Return the state of one engine with all environments."""
        if not self.states:
            return {"simulators": [], "obstacle": "nothing was begun"}
        whole = {name: torch.cat([state[name] for state in self.states]) for name in ("obs", "returns", "lengths")}
        simulators = [one for state in self.states for one in state["simulators"]]
        reason = next((state["obstacle"] for state in self.states if state["obstacle"]), "")
        return {**whole, "simulators": simulators, "obstacle": reason}

    def load_state_dict(self, state: State) -> str:
        """Go on where `state_dict` was made. Return why that cannot be done, if so: then reset the environments."""
        if state["obstacle"]:
            return str(state["obstacle"])
        self.number, self.states = 0, []
        for n in range(len(self.workers)):
            own = slice(n * self.each, (n + 1) * self.each)
            self.states.append({name: part if name == "obstacle" else part[own] for name, part in state.items()})
        reasons = self._all("restore", *([0, part] for part in self.states))
        return next(filter(None, reasons), "")

    def close(self) -> None:
        """Close every worker."""
        for worker in self.workers:
            worker.close()

    def _all(self, name: str, *arguments: Sequence[Any]) -> list[Any]:
        begun = [worker.begin(name, *own) for worker, own in zip(self.workers, arguments, strict=True)]
        return [worker.result(one) for worker, one in zip(self.workers, begun, strict=True)]


class RemoteCollector(Collector):
    """Lets workers act by themselves, each in an equal part of the environments."""

    envs: RemoteEnvs

    def __init__(self, workers: Sequence[Worker], num_envs: int) -> None:
        self.envs = RemoteEnvs(workers, num_envs)
        self.workers_count = len(workers)
        self._begun: list[Any] = []

    def fill_rollouts(self, stack: Stack, writer: RolloutWriter, interrupted: Interrupted) -> list[Episode]:
        """Let the workers collect the whole rollout; it is not interrupted on the way."""
        (agent,), (rollout,) = stack.agents, writer.rollouts
        rollout.begin(agent.draw_own_actions)
        self.begin(agent.weights(), rollout.noise)
        fields, episodes = self.finish()
        writer.fill(fields)
        return episodes

    def fill_replay(self, stack: Stack, writer: ReplayWriter, plan: ReplayPlan) -> Collected:
        """Learn from one round while workers collect the next.

        So they act with weights that lack the updates of one round, and of no more. No round is under way at the end:
        what is saved then is all there is.
        """
        (agent,), by, step, stale = stack.agents, self.envs.num_envs, plan.step, 0
        left = min(-(-(plan.until - step) // by), (plan.total_steps - step) // by)
        rounds = [min(ROUND, left - begun) for begun in range(0, left, ROUND)]
        episodes: list[Episode] = []
        self.begin(agent.weights(), plan.draw(step, (rounds[0], by)))
        for size, next_size in zip(rounds, [*rounds[1:], 0], strict=True):
            fields, ended = self.finish()
            episodes += ended
            for row in steps_of(fields):
                writer.add(row)
            before, step = step, step + size * by
            if next_size:
                self.begin(agent.weights(), plan.draw(step, (next_size, by)))
            due = plan.learn(before, step)
            stale = max(stale, due) if next_size else stale
        return Collected(step, episodes, {"actors/staleness": stale})

    def begin(self, weights: Tree, draws: Any) -> None:
        """Let the workers collect with these weights; `draws` are noise [T, E, D], or actions by name."""
        envs = self.envs
        published = self.publish(mapped(lambda tensor: tensor.detach().cpu().clone(), weights))
        own = [mapped(lambda rows, n=n: self._part(rows.cpu(), n), draws) for n in range(len(envs.workers))]
        requests = [
            CollectRequest(envs.number, state, published, part) for state, part in zip(envs.states, own, strict=True)
        ]
        self._begun = [worker.begin("collect", one) for worker, one in zip(envs.workers, requests, strict=True)]

    def finish(self) -> tuple[dict[str, Tensor], list[Episode]]:
        """Return what they have collected: steps by field [T, E, ...], and episodes."""
        envs = self.envs
        begun = zip(envs.workers, self._begun, strict=True)
        parts: list[CollectResult] = [worker.result(one) for worker, one in begun]
        self._begun, envs.states = [], [part.state for part in parts]
        envs.number += 1
        fields = {name: torch.cat([part.fields[name] for part in parts], 1) for name in parts[0].fields}
        episodes = [e._replace(env=n * envs.each + e.env) for n, part in enumerate(parts) for e in part.episodes]
        return fields, episodes

    def publish(self, weights: Tree) -> Any:
        """Return the weights as requests hold them: sent once, where workers are elsewhere."""
        return weights

    def _part(self, rows: Tensor, n: int) -> Tensor:
        return rows[:, n * self.envs.each : (n + 1) * self.envs.each]
