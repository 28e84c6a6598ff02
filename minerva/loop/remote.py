"""The remote collector: equal parts of the environments, each stepped by a worker with weights the learner publishes.

A worker is a function of what it is sent: the state of its simulators, weights, and action noise. So a worker that dies
is replaced by another that is sent the same request, and what it collects does not depend on where it runs. The learner
draws the noise: rollouts equal those of one process that acts in the same parts of the environments.
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
"""Steps per environment of one collection round for a replay."""


class CollectRequest(NamedTuple):
    """A learner's request to a worker to collect steps."""

    number: int
    """Number of requests before this one: a worker that has served as many is in the right state."""
    state: State
    """State of the worker's environments before this request."""
    weights: Tree
    draws: Tensor | Rows
    """Action noise [T, E, D], or the actions themselves in the form that `Agent.acted` returns."""


class CollectResult(NamedTuple):
    """A worker's reply: its steps by field [T, E, ...], episodes that ended, and its environments' new state."""

    fields: dict[str, Tensor]
    episodes: list[Episode]
    state: State


class ActorWorker:
    """The code that a worker runs: environments, and an agent that acts in them."""

    def __init__(self, agent: Agent, env: EnvLike, num_envs: int, engine: EngineName, calls: int) -> None:
        """Make the environments; `calls` is the expected number of calls to act, which decides about compiling."""
        self.envs = make_engine(env, num_envs, engine)
        self.agent, self.stack = agent, Stack([agent], "auto", calls)
        self.number = -1

    def describe(self) -> dict[str, Any]:
        """Return the name, engine and specs of the environments."""
        envs = self.envs
        specs = {"observation": envs.observation, "action": envs.action}
        return {"name": envs.name, "env_name": envs.env_name, "exact": envs.resumes_exactly, **specs}

    def reset(self, seeds: Sequence[int]) -> State:
        """Reset the environments with these seeds and return their state."""
        self.envs.reset(seeds)
        self.number = 0
        return self.envs.state_dict()

    def restore(self, number: int, state: State) -> str:
        """Restore the environments' state after `number` requests; return "", or why that is impossible."""
        self.number = number
        return self.envs.load_state_dict(state)

    def collect(self, request: CollectRequest) -> CollectResult:
        """Load the weights, act for the requested steps and return them."""
        if request.number != self.number:  # this worker replaces one that died
            self._restore_or_reset(request)
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

    def _restore_or_reset(self, request: CollectRequest) -> None:
        """Restore the state that the request holds; if that is impossible, warn and start new episodes."""
        reason = self.restore(request.number, request.state)
        if reason:
            logger.warning("A worker was replaced, and its environments start new episodes (%s).", reason)
            words = np.random.SeedSequence([request.number]).generate_state(self.envs.num_envs)
            self.envs.reset([int(word) for word in words])


class Worker(Protocol):
    """A handle of an `ActorWorker`, in this process or in another."""

    def begin(self, name: str, *arguments: Any) -> Any:
        """Start a call of the worker's method and return a handle of the call."""

    def result(self, begun: Any) -> Any:
        """Wait for a call and return its result."""

    def close(self) -> None:
        """Close the environments."""


class LocalWorker:
    """A worker in this process, which makes a call when its result is requested."""

    def __init__(self, worker: ActorWorker) -> None:
        self.worker = worker

    def begin(self, name: str, *arguments: Any) -> Any:
        """Return the call, to be made by `result`."""
        return name, arguments

    def result(self, begun: Any) -> Any:
        """Make the call and return its result."""
        name, arguments = begun
        return getattr(self.worker, name)(*arguments)

    def close(self) -> None:
        """Close the environments."""
        self.worker.envs.close()


class RemoteEnvs:
    """The environments of all workers as a trainer sees them. Only the workers step them."""

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
        """Reset every environment, environment i with `seeds[i]`."""
        self.number = 0
        parts = [seeds[n * self.each : (n + 1) * self.each] for n in range(len(self.workers))]
        self.states = self._call_all("reset", *([part] for part in parts))

    def state_dict(self) -> State:
        """Return the state in the form of one engine that has all environments."""
        if not self.states:
            return {"simulators": [], "unavailable_reason": "no episode was started"}
        whole = {name: torch.cat([state[name] for state in self.states]) for name in ("obs", "returns", "lengths")}
        simulators = [one for state in self.states for one in state["simulators"]]
        reason = next((state["unavailable_reason"] for state in self.states if state["unavailable_reason"]), "")
        return {**whole, "simulators": simulators, "unavailable_reason": reason}

    def load_state_dict(self, state: State) -> str:
        """Restore a state of `state_dict`; return "", or why that is impossible: then reset the environments."""
        if state["unavailable_reason"]:
            return str(state["unavailable_reason"])
        self.number, self.states = 0, []
        for n in range(len(self.workers)):
            envs = slice(n * self.each, (n + 1) * self.each)
            self.states.append(
                {name: part if name == "unavailable_reason" else part[envs] for name, part in state.items()}
            )
        reasons = self._call_all("restore", *([0, part] for part in self.states))
        return next(filter(None, reasons), "")

    def close(self) -> None:
        """Close every worker."""
        for worker in self.workers:
            worker.close()

    def _call_all(self, name: str, *arguments: Sequence[Any]) -> list[Any]:
        """Call a method of every worker with its arguments and return the results."""
        calls = [worker.begin(name, *args) for worker, args in zip(self.workers, arguments, strict=True)]
        return [worker.result(call) for worker, call in zip(self.workers, calls, strict=True)]


class RemoteCollector(Collector):
    """Collects from workers, each of which steps an equal part of the environments."""

    envs: RemoteEnvs

    def __init__(self, workers: Sequence[Worker], num_envs: int) -> None:
        self.envs = RemoteEnvs(workers, num_envs)
        self.workers_count = len(workers)
        self._calls: list[Any] = []

    def fill_rollouts(self, stack: Stack, writer: RolloutWriter, interrupted: Interrupted) -> list[Episode]:
        """Collect the whole rollout from the workers, without interruption; return the episodes that ended."""
        (agent,), (rollout,) = stack.agents, writer.rollouts
        rollout.begin(agent.draw_local_actions)
        self.begin(agent.weights(), rollout.noise)
        fields, episodes = self.finish()
        writer.fill(fields)
        return episodes

    def fill_replay(self, stack: Stack, writer: ReplayWriter, plan: ReplayPlan) -> Collected:
        """Learn from one round while the workers collect the next.

        So the workers' weights lag by the updates of one round at most. No round is in progress at the end, so that a
        checkpoint is complete.
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
        """Start collecting with these weights; `draws` is action noise [T, E, D], or actions by name."""
        envs = self.envs
        published = self.publish(mapped(lambda tensor: tensor.detach().cpu().clone(), weights))
        parts = [mapped(lambda rows, n=n: self._part(rows.cpu(), n), draws) for n in range(len(envs.workers))]
        requests = [
            CollectRequest(envs.number, state, published, part) for state, part in zip(envs.states, parts, strict=True)
        ]
        self._calls = [worker.begin("collect", one) for worker, one in zip(envs.workers, requests, strict=True)]

    def finish(self) -> tuple[dict[str, Tensor], list[Episode]]:
        """Wait for the workers; return their steps by field [T, E, ...], and the episodes that ended."""
        envs = self.envs
        calls = zip(envs.workers, self._calls, strict=True)
        parts: list[CollectResult] = [worker.result(call) for worker, call in calls]
        self._calls, envs.states = [], [part.state for part in parts]
        envs.number += 1
        fields = {name: torch.cat([part.fields[name] for part in parts], 1) for name in parts[0].fields}
        episodes = [e._replace(env=n * envs.each + e.env) for n, part in enumerate(parts) for e in part.episodes]
        return fields, episodes

    def publish(self, weights: Tree) -> Any:
        """Return the weights as requests hold them; a subclass with remote workers sends them once."""
        return weights

    def _part(self, rows: Tensor, n: int) -> Tensor:
        return rows[:, n * self.envs.each : (n + 1) * self.envs.each]
