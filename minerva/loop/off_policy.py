"""The loop of off-policy algorithms: act, keep what happened in a replay, learn from random batches of it.

An iteration acts, then learns from what the replay holds, then steps the environments with those actions. The
environments do not wait for the update and the update does not wait for them: on a GPU they run at the same time, and
elsewhere one after the other with the same result.
"""

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Self

import torch
from torch import Tensor

from minerva.compute.tree import Tree, mapped
from minerva.data.replay import Replay, Writer
from minerva.envs.vector import Episode, VectorEnv
from minerva.errors import ConfigError
from minerva.loop.agent import Array, OffPolicyAgent, Rows
from minerva.loop.remote import RemoteCollector
from minerva.loop.stacking import Stack, joined_state
from minerva.loop.trainer import Trainer, note, taken_episodes
from minerva.runs.run_group import RunGroup

REPORT_EVERY = 1_000
"""Environment steps between reports: fetching metrics more often would stall the device for nothing."""
ROUND = 25
"""Steps of each environment that actors collect at once."""


class OffPolicyTrainer(Trainer):
    """A fixed number of updates per environment step, each on a batch from all that the replay still holds."""

    agent: OffPolicyAgent
    replay: Replay

    @functools.cached_property
    def row(self) -> dict[str, float]:
        """Metrics of the last update: a run that goes on may report before its next one."""
        return {}

    @functools.cached_property
    def rate(self) -> Fraction:
        """Updates per step."""
        return Fraction(self.config.updates_per_step).limit_denominator(1_000_000)

    @classmethod
    def loop(cls, trainers: Sequence[Self], envs: VectorEnv, runs: RunGroup) -> None:
        """Act, learn, step, report."""
        if isinstance(envs, RemoteCollector):
            trainers[0]._loop_with_actors(envs, runs)
            return
        first, by = trainers[0], trainers[0].config.num_envs
        sizes = [trainer.share.batch_size for trainer in trainers]
        stack, writer = first._stack(trainers, runs)
        for _ in runs.steps(by):
            stack.invalidate_cached_weights()
            step = runs.step
            hyper = first._hyper(stack, runs)
            until = min(_next(step, REPORT_EVERY), _next(step, runs.eval_every), runs.total_steps)
            while step < until and step + by <= runs.total_steps and not runs.interrupted:
                obs = envs.obs
                done = first._actions(trainers, stack, obs, step)
                for _ in range(first.updates(step + by) - first.updates(step)):
                    starts = [trainer.replay.starts(size) for trainer, size in zip(trainers, sizes, strict=True)]
                    stack.learn(stack.stacked(starts), hyper)
                note(_stepped(envs, writer, obs, done), trainers)
                step += by
            for trainer, row in zip(trainers, stack.metrics(), strict=False):
                trainer.row = row
            if step < until and step + by <= runs.total_steps:
                runs.pause(step)
                continue
            runs.report(step, [trainer._metrics(step) for trainer in trainers], taken_episodes(trainers))

    def _loop_with_actors(self, blocks: RemoteCollector, runs: RunGroup) -> None:
        """The same with workers that act by themselves: while they collect a round, the one before is learned from.

        So they act with weights that lack the updates of one round, and of no more. No round is under way when a
        report is made: what is saved then is all there is.
        """
        stack, writer = self._stack([self], runs)
        by = self.config.num_envs
        for _ in runs.steps(by):
            step, stale = runs.step, 0
            hyper = self._hyper(stack, runs)
            until = min(_next(step, REPORT_EVERY), _next(step, runs.eval_every), runs.total_steps)
            left = min(-(-(until - step) // by), (runs.total_steps - step) // by)
            rounds = [min(ROUND, left - begun) for begun in range(0, left, ROUND)]
            self._begin(blocks, stack, step, rounds[0])
            for size, following in zip(rounds, [*rounds[1:], 0], strict=True):
                fields, episodes = blocks.finish()
                note(episodes, [self])
                for t in range(size):
                    writer.add({name: rows[t] for name, rows in fields.items()})
                due = self.updates(step + size * by) - self.updates(step)
                step += size * by
                if following:
                    self._begin(blocks, stack, step, following)
                    stale = max(stale, due)
                for _ in range(due):
                    stack.learn(self.replay.starts(self.config.batch_size), hyper)
            for row in stack.metrics():
                self.row = {**row, "actors/staleness": stale}
            runs.report(step, [self._metrics(step)], taken_episodes([self]))

    def _begin(self, blocks: RemoteCollector, stack: Stack, step: int, size: int) -> None:
        """Let the workers act for so many steps with the weights as they are; at random before learning starts."""
        shape = (size, self.num_envs)
        random = step < self.config.update_after and self.config.warmup == "random"
        drawn = self.agent.sample_uniform(shape) if random else stack.draw_actions(shape)
        blocks.begin(self.agent.weights(), drawn)

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

    def _stack(self, trainers: Sequence[Self], runs: RunGroup) -> tuple[Stack, Writer]:
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
        return stack, Writer(replays, state)

    def _rows(self, replay: Tree, starts: Tensor) -> Rows:
        """A batch from these places in the replay."""
        length = self.config.sequence_length
        batch = self.replay.sequences(replay, starts, length) if length > 1 else self.replay.transitions(replay, starts)
        return self.agent.prepared(batch)

    def _actions(self, trainers: Sequence[Self], stack: Stack, obs: Array, step: int) -> dict[str, Array]:
        """Actions for all environments; at random before learning starts, if the config says so."""
        if step < self.config.update_after and self.config.warmup == "random":
            drawn = [trainer.agent.sample_uniform((self.config.num_envs,)) for trainer in trainers]
            return stack.act_with([mapped(self.ranks.local_shard, actions) for actions in drawn])
        return stack.act(torch.from_numpy(obs), stack.draw_actions((self.num_envs,)))

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


def _stepped(envs: VectorEnv, writer: Writer, obs: Array, done: dict[str, Array]) -> list[Episode]:
    """One step of every environment, kept in its trainer's replay."""
    step = envs.step(done["actions_executed"])
    writer.add({**done, **step._asdict(), "obs": obs})
    return step.episodes


def _next(step: int, every: int) -> int:
    """The first multiple of `every` after `step`."""
    return (step // every + 1) * every
