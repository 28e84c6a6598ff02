"""The loop of off-policy algorithms: act, keep what happened in a replay, learn from random batches of it.

How acting, learning and stepping interleave is the collector's business: see `loop/collector.py`.
"""

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

from torch import Tensor

from minerva.compute.tree import Tree, mapped
from minerva.data.fields import action_field, transition_fields
from minerva.data.replay import Replay, ReplayWriter
from minerva.errors import ConfigError
from minerva.loop.agent import OffPolicyAgent, Rows
from minerva.loop.collector import Collector, ReplayPlan
from minerva.loop.stacking import Stack, joined_state
from minerva.loop.trainer import Trainer, note, taken_episodes
from minerva.runs.run_group import RunGroup

REPORT_EVERY = 1_000
"""Environment steps between reports: fetching metrics more often would stall the device for nothing."""


class OffPolicyTrainer(Trainer):
    """A fixed number of updates per environment step, each on a batch from all that the replay still holds."""

    agent: OffPolicyAgent

    @functools.cached_property
    def replay(self) -> Replay:
        """What is learned from: transitions, and what else of its actions the agent wants to know."""
        action = action_field(self.envs.action)
        fields = {**transition_fields(self.envs.observation), "actions_executed": action}
        fields |= self.agent.action_fields(action)
        return Replay(self.share.replay_size, self.num_envs, fields, self.device, self.seed, self.ranks)

    @functools.cached_property
    def row(self) -> dict[str, float]:
        """Metrics of the last update: a run that goes on may report before its next one."""
        return {}

    @functools.cached_property
    def rate(self) -> Fraction:
        """Updates per step."""
        return Fraction(self.config.updates_per_step).limit_denominator(1_000_000)

    @classmethod
    def loop(cls, trainers: Sequence[Self], collector: Collector, runs: RunGroup) -> None:
        """Collect and learn, report. `runs.steps` saves and evaluates between two reports."""
        first, by = trainers[0], trainers[0].config.num_envs
        stack, writer = first._stack(trainers, runs)
        for _ in runs.steps(by):
            stack.invalidate_cached_weights()
            plan = first._plan(trainers, stack, runs)
            step, episodes, extra = collector.fill_replay(stack, writer, plan)
            note(episodes, trainers)
            for trainer, row in zip(trainers, stack.metrics(), strict=False):
                trainer.row = {**row, **extra}
            if step < plan.until and step + by <= runs.total_steps:
                runs.pause(step)
                continue
            runs.report(step, [trainer._metrics(step) for trainer in trainers], taken_episodes(trainers))

    def _plan(self, trainers: Sequence[Self], stack: Stack, runs: RunGroup) -> ReplayPlan:
        """Return what is to be collected and learned until the next report."""
        step, hyper = runs.step, self._hyper(stack, runs)
        sizes = [trainer.share.batch_size for trainer in trainers]

        def learn(before: int, after: int) -> int:
            due = self.updates(after) - self.updates(before)
            for _ in range(due):
                starts = [trainer.replay.starts(size) for trainer, size in zip(trainers, sizes, strict=True)]
                stack.learn(stack.stacked(starts), hyper)
            return due

        def draw(at: int, shape: tuple[int, ...]) -> Any:
            if at < self.config.update_after and self.config.warmup == "random":
                return stack.stacked([trainer._random_actions(shape) for trainer in trainers])
            return stack.draw_actions(shape)

        until = min(_next(step, REPORT_EVERY), _next(step, runs.eval_every), runs.total_steps)
        return ReplayPlan(step, until, runs.total_steps, draw, learn, lambda: runs.interrupted)

    def _random_actions(self, shape: tuple[int, ...]) -> Rows:
        """Return this rank's share of uniform actions drawn for the environments of all ranks.  [..., E, width]"""
        *before, envs = shape
        drawn = self.agent.sample_uniform((*before, envs * self.ranks.count))
        shard: Rows = mapped(lambda actions: self.ranks.local_shard(actions, -2), drawn)
        return shard

    def check(self, total_steps: int) -> None:
        """A run has to hold at least one update."""
        by = self.config.num_envs
        if self.updates(total_steps // by * by) < 1:
            raise ConfigError(
                f"total_steps is {total_steps}, and with num_envs {by}, update_after "
                f"{self.config.update_after} and updates_per_step {self.config.updates_per_step} that leaves no "
                "update: raise total_steps or lower update_after."
            )

    def updates(self, step: int) -> int:
        """How many updates belong to the first `step` steps: a function of the step, so nothing can drift."""
        before = max(self.config.update_after, self.config.num_envs)  # the first step has nothing to learn from
        return max(step - before, 0) * self.rate.numerator // self.rate.denominator

    @property
    def rows(self) -> Replay:
        """The replay, whose rows are saved apart from the state."""
        return self.replay

    def start(self, step: int) -> None:
        """Begin new episodes everywhere: what is added next does not follow the replay's newest rows."""
        super().start(step)
        self.replay.cut()

    def state_dict(self) -> Tree:
        """Agent, environments, the watch over constraints and the replay, its rows aside."""
        own = {"replay": self.replay.state_dict(), "row": self.row, "health": self.health.state_dict()}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: Tree) -> str:
        """Take over a state made by `state_dict`."""
        self.replay.load_state_dict(state["replay"])
        self.row = dict(state["row"])
        self.health.load_state_dict(state["health"])
        return super().load_state_dict(state)

    def _stack(self, trainers: Sequence[Self], runs: RunGroup) -> tuple[Stack, ReplayWriter]:
        """The agents as one, and what keeps their steps.

        They learn from places in their replays; the rows are fetched inside the update.
        """
        updates = self.updates(runs.total_steps)  # also in a run that goes on, so that it is compiled as it was
        agents = [trainer.agent for trainer in trainers]
        replays = [trainer.replay for trainer in trainers]
        state = joined_state(replays)
        stack = Stack(agents, runs.settings.compile, updates)
        rows = stack.lift(self._rows)
        stack.prepare = lambda starts: rows(state, starts)
        return stack, ReplayWriter(replays, state, self.envs.device)

    def _rows(self, replay: Tree, starts: Tensor) -> Rows:
        """A batch from these places in the replay."""
        length = self.agent.sequence_length
        batch = self.replay.sequences(replay, starts, length) if length > 1 else self.replay.transitions(replay, starts)
        return self.agent.prepared(batch)

    def _hyper(self, stack: Stack, runs: RunGroup) -> Rows:
        """The numbers of an update. Annealed rates fall from one thousand steps to the next, however a run is cut."""
        thousands = -(-runs.total_steps // REPORT_EVERY)
        return stack.hyper(self.remaining(runs.step // REPORT_EVERY + 1, thousands))

    def _metrics(self, step: int) -> dict[str, float]:
        if not self.row:
            return {}
        self.health(self.row)
        counts = {"train/updates": self.updates(step), "train/skipped_updates": self.agent.skipped}
        return {**self.row, **counts, "train/replay": len(self.replay) * self.ranks.count}


def _next(step: int, every: int) -> int:
    """The first multiple of `every` after `step`."""
    return (step // every + 1) * every
