"""Collectors: fill rollouts or replays with what agents do in environments. The loops know no other way to act.

`LocalCollector` steps an engine in this process, on the CPU or on the learner's GPU; `remote.RemoteCollector` lets
workers act by themselves.
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
    """What an off-policy loop wants of a collector until its next report."""

    step: int
    """Environment steps taken so far."""
    until: int
    """Collect at least until this step; never past `total_steps`."""
    total_steps: int
    draw: Callable[[int, tuple[int, ...]], Any]
    """`(step, shape)` -> noise, or actions drawn at random, for environments of this shape: [E], or [T, E]."""
    learn: Callable[[int, int], int]
    """`(before, after)`: run the updates that belong to the steps between; return how many they were."""
    interrupted: Interrupted


class Collected(NamedTuple):
    """How far an off-policy loop's collector got."""

    step: int
    episodes: list[Episode]
    metrics: Mapping[str, float]


class Collector(ABC):
    """Acts in environments and keeps what happens."""

    envs: Any
    """What is acted in, as far as a trainer needs it: an `Engine`, or what stands for one."""
    workers_count: int = 0
    """Workers that act by themselves."""

    @abstractmethod
    def fill_rollouts(self, stack: Stack, writer: RolloutWriter, interrupted: Interrupted) -> list[Episode]:
        """Fill the writer's rollouts and return the episodes that ended meanwhile.

        If it is interrupted, the rollouts stay filled in part, and the next call continues them.
        """

    @abstractmethod
    def fill_replay(self, stack: Stack, writer: ReplayWriter, plan: ReplayPlan) -> Collected:
        """Act, keep every step and learn on the way, as planned; if it is interrupted, stop after a step."""


class LocalCollector(Collector):
    """Steps an engine of this process. With an engine on the learner's device, nothing is copied to the host."""

    envs: Engine

    def __init__(self, envs: Engine) -> None:
        self.envs = envs

    def fill_rollouts(
        self, stack: Stack, writer: RolloutWriter, interrupted: Interrupted = lambda: False
    ) -> list[Episode]:
        """Act with noise that was drawn for the whole rollout."""
        first = writer.rollouts[0]
        for agent, rollout in zip(stack.agents, writer.rollouts, strict=True):
            rollout.begin(agent.draw_own_actions)
        noise = stack.stacked([rollout.noise for rollout in writer.rollouts]).unbind(-3)
        while not (first.full or interrupted()):
            obs = self.envs.obs
            acted = stack.act(obs, noise[first.filled])
            writer.add(_row(obs, acted, self.envs.step(acted["actions_executed"])))
        return self.envs.take_episodes()

    def fill_replay(self, stack: Stack, writer: ReplayWriter, plan: ReplayPlan) -> Collected:
        """Act, learn from what the replay holds, then step with those actions.

        Neither waits for the other: on a GPU the update runs while environments step on the CPU.
        """
        agents = len(stack.agents)
        each = self.envs.num_envs // agents
        by = each * stack.agents[0].ranks.count
        step = plan.step
        while step < plan.until and step + by <= plan.total_steps and not plan.interrupted():
            obs = self.envs.obs
            acted = stack.act(obs, plan.draw(step, (each,)))
            plan.learn(step, step + by)
            writer.add(_row(obs, acted, self.envs.step(acted["actions_executed"])))
            step += by
        return Collected(step, self.envs.take_episodes(), {})


def _row(obs: Tensor, acted: Mapping[str, Tensor], transition: Transition) -> dict[str, Tensor]:
    """Return one step of all environments by field."""
    return {"obs": obs, **acted, **transition._asdict()}


def steps_of(draws: Any) -> list[Any]:
    """Return the draws of each step, from noise [T, E, D] or actions [T, E, ...] by name."""
    if isinstance(draws, torch.Tensor):
        return list(draws.unbind())
    steps = len(next(iter(draws.values())))
    return [{name: rows[t] for name, rows in draws.items()} for t in range(steps)]
