"""Collectors: fill rollouts or replays with transitions. The loops act through collectors alone.

`LocalCollector` steps an engine in this process, on the CPU or on the learner's GPU; `remote.RemoteCollector` uses
remote workers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from minerva.data.replay import ReplayWriter
from minerva.data.rollout import RolloutWriter
from minerva.envs.engine import Engine, Episode, Transition
from minerva.loop.stacking import Stack

Interrupted = Callable[[], bool]


class ReplayPlan(NamedTuple):
    """What a collector has to do for an off-policy loop until the next report."""

    step: int
    """Environment steps taken so far."""
    until: int
    """Collect at least until this step; never past `total_steps`."""
    total_steps: int
    draw: Callable[[int, tuple[int, ...]], Any]
    """`(step, shape)` -> action noise, or uniformly random actions, for a shape [E] or [T, E]."""
    learn: Callable[[int, int], int]
    """`(before, after)`: run the updates that are due between two steps and return how many there were."""
    interrupted: Interrupted


class Collected(NamedTuple):
    """Result of `Collector.fill_replay`: the step reached, episodes that ended, and the collector's metrics."""

    step: int
    episodes: list[Episode]
    metrics: Mapping[str, float]


class Collector(ABC):
    """Acts in environments and stores the transitions."""

    envs: Any
    """The environments as a trainer needs them: an `Engine`, or `RemoteEnvs`."""
    workers_count: int = 0
    """Number of remote workers."""

    @abstractmethod
    def fill_rollouts(self, stack: Stack, writer: RolloutWriter, interrupted: Interrupted) -> list[Episode]:
        """Fill the writer's rollouts and return the episodes that ended.

        If interrupted, the rollouts stay partly filled, and the next call continues them.
        """

    @abstractmethod
    def fill_replay(self, stack: Stack, writer: ReplayWriter, plan: ReplayPlan) -> Collected:
        """Act, store every step and run the updates of the plan; if interrupted, stop after a step."""


class LocalCollector(Collector):
    """Steps an engine in this process. With an engine on the learner's device, nothing is copied to the host."""

    envs: Engine

    def __init__(self, envs: Engine) -> None:
        self.envs = envs

    def fill_rollouts(
        self, stack: Stack, writer: RolloutWriter, interrupted: Interrupted = lambda: False
    ) -> list[Episode]:
        """Fill the rollouts with action noise drawn once for all their steps; return the episodes that ended."""
        first = writer.rollouts[0]
        for agent, rollout in zip(stack.agents, writer.rollouts, strict=True):
            rollout.begin(agent.draw_local_actions)
        noise = stack.stacked([rollout.noise for rollout in writer.rollouts]).unbind(-3)
        while not (first.full or interrupted()):
            obs = self.envs.obs
            acted = stack.act(obs, noise[first.filled])
            writer.add(_row(obs, acted, self.envs.step(acted["actions_executed"])))
        return self.envs.take_episodes()

    def fill_replay(self, stack: Stack, writer: ReplayWriter, plan: ReplayPlan) -> Collected:
        """At each step choose actions, run the updates that are due while the environments step, and store the step."""
        agents = len(stack.agents)
        each = self.envs.num_envs // agents
        by = each * stack.agents[0].ranks.count
        step = plan.step
        while step < plan.until and step + by <= plan.total_steps and not plan.interrupted():
            obs = self.envs.obs
            acted = stack.act(obs, plan.draw(step, (each,)))
            self.envs.send(acted["actions_executed"])
            plan.learn(step, step + by)
            writer.add(_row(obs, acted, self.envs.recv()))
            step += by
        return Collected(step, self.envs.take_episodes(), {})


def _row(obs: Tensor, acted: Mapping[str, Tensor], transition: Transition) -> dict[str, Tensor]:
    """Return one step of all environments as tensors by field."""
    return {"obs": obs, **acted, **transition._asdict()}


def steps_of(draws: Any) -> list[Any]:
    """Split noise [T, E, D], or tensors [T, E, ...] by name, into one entry per step."""
    if isinstance(draws, torch.Tensor):
        return list(draws.unbind())
    steps = len(next(iter(draws.values())))
    return [{name: rows[t] for name, rows in draws.items()} for t in range(steps)]
