"""The loop of off-policy algorithms: act, store the transitions in a replay, learn from random batches of it.

The collector (`loop/collector.py`) decides how acting, learning and stepping interleave.
"""

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Self

import torch
from torch import Tensor

from minerva.compute.tree import Tree, copy_, mapped
from minerva.config import STEPS_PER_REPORT
from minerva.data.fields import action_field, transition_fields
from minerva.data.normalizers import ReturnScale
from minerva.data.pink_noise import PinkNoise
from minerva.data.replay import Replay, ReplayWriter
from minerva.errors import ConfigError
from minerva.loop.agent import Rows
from minerva.loop.collector import Collector, ReplayPlan
from minerva.loop.off_policy_agent import OffPolicyAgent
from minerva.loop.stacking import Stack, joined_state
from minerva.loop.trainer import Trainer, assign_episodes, take_episodes
from minerva.runs.run_group import RunGroup

REPORT_EVERY = 1_000
"""Fewest environment steps between reports: copying metrics to the host more often would stall the device."""
MIN_SKIPPED = 20
"""A run stops if at least so many updates between two reports, and all of them, were skipped."""

DrawNoise = Callable[[tuple[int, ...]], Tensor]
"""Draws the noise of actions for a shape, [E] or [T, E], of all stacked agents."""


class OffPolicyTrainer(Trainer):
    """Trainer with a fixed number of updates per environment step, each on a batch sampled from the replay."""

    agent: OffPolicyAgent

    @functools.cached_property
    def replay(self) -> Replay:
        """The replay: transitions, executed actions and the agent's `action_fields`."""
        action = action_field(self.envs.action)
        fields = {**transition_fields(self.envs.observation), "actions_executed": action}
        fields |= self.agent.action_fields(action)
        sizes = (self.share.replay_size, self.num_envs, fields)
        return Replay(*sizes, self.device, self.seed, self.ranks, self.envs.observation, self.envs.device)

    @functools.cached_property
    def reward_scale(self) -> ReturnScale | None:
        """Scale of the sampled rewards, or None: rewards as they are."""
        return ReturnScale(self.num_envs, self.config.gamma, self.device) if self.agent.scales_rewards else None

    @functools.cached_property
    def pink_noise(self) -> PinkNoise | None:
        """Noise to explore with, or None: each step's noise is independent of those before."""
        if not self.agent.acts_with_pink_noise:
            return None
        sizes = (self.num_envs, self.agent.distribution.noise_size)
        return PinkNoise(*sizes, self.device, self.agent.flat.vector.dtype)

    @functools.cached_property
    def last_metrics(self) -> dict[str, float]:
        """Metrics of the last update, kept because a resumed run may report before its next update."""
        return {}

    @functools.cached_property
    def counted(self) -> tuple[int, int]:
        """Updates that were due and that were skipped until the last report."""
        return 0, 0

    @functools.cached_property
    def rate(self) -> Fraction:
        """Updates per environment step."""
        return Fraction(self.config.updates_per_step).limit_denominator(1_000_000)

    @functools.cached_property
    def report_every(self) -> int:
        """Environment steps between reports, `STEPS_PER_REPORT` of each environment or more."""
        return max(REPORT_EVERY, STEPS_PER_REPORT * self.config.num_envs)

    @classmethod
    def loop(cls, trainers: Sequence[Self], collector: Collector, runs: RunGroup) -> None:
        """Collect, learn and report until the runs end. `runs.steps` saves and evaluates between two reports."""
        first, by = trainers[0], trainers[0].config.num_envs
        stack, writer = first._stack(trainers, runs)
        noise = first._noise(trainers, stack)
        for _ in runs.steps(by):
            stack.invalidate_cached_weights()
            plan = first._plan(trainers, stack, noise, runs)
            step, episodes, extra = collector.fill_replay(stack, writer, plan)
            assign_episodes(episodes, trainers)
            if step // first.report_every > plan.step // first.report_every:
                for trainer in trainers:
                    trainer.agent.see(trainer.replay.newest(-(-first.report_every // by))["obs"])
            for trainer, metrics in zip(trainers, stack.metrics(), strict=False):
                trainer.last_metrics = {**metrics, **extra}
            if step < plan.until and step + by <= runs.total_steps:
                runs.pause(step)
                continue
            runs.report(step, [trainer._metrics(step) for trainer in trainers], take_episodes(trainers))

    def _plan(self, trainers: Sequence[Self], stack: Stack, noise: DrawNoise, runs: RunGroup) -> ReplayPlan:
        """Return the plan of collecting and learning until the next report."""
        step, hyper = runs.step, self._hyper(stack, runs)
        sizes = [trainer.share.batch_size * trainer.agent.batches for trainer in trainers]

        def learn(before: int, after: int) -> int:
            due = self.updates(after) - self.updates(before)
            for _ in range(due):
                starts = [trainer.replay.starts(size) for trainer, size in zip(trainers, sizes, strict=True)]
                stack.learn(stack.stacked(starts), hyper)
            return due

        def draw(at: int, shape: tuple[int, ...]) -> Any:
            if at < self.config.update_after and self.config.warmup == "random":
                return stack.stacked([trainer._random_actions(shape) for trainer in trainers])
            return noise(shape)

        until = min(_next_multiple(step, self.report_every), _next_multiple(step, runs.eval_every), runs.total_steps)
        return ReplayPlan(step, until, runs.total_steps, draw, learn, lambda: runs.interrupted)

    def _noise(self, trainers: Sequence[Self], stack: Stack) -> DrawNoise:
        """Return what draws the noise of all trainers' actions: pink where there is such noise, else white."""
        pink = [trainer.pink_noise for trainer in trainers if trainer.pink_noise is not None]
        if not pink:
            return stack.draw_actions
        state = joined_state(pink)

        def draw(shape: tuple[int, ...]) -> Tensor:
            *before, envs = shape
            white = stack.draw_actions((*before, PinkNoise.COMPONENTS, envs))
            return torch.stack([step(part) for part in white.unbind(-4)], -3) if before else step(white)

        def step(white: Tensor) -> Tensor:
            after, noise = PinkNoise.followed(state, white)
            copy_(state, after)
            return noise

        return draw

    def _random_actions(self, shape: tuple[int, ...]) -> Rows | Tensor:
        """Return this rank's slice of uniform actions, or noise, drawn for all ranks' environments.  [..., E, width]"""
        *before, envs = shape
        drawn = self.agent.sample_uniform((*before, envs * self.ranks.count))
        shard: Rows | Tensor = mapped(lambda actions: self.ranks.local_shard(actions, -2), drawn)
        return shard

    def check(self, total_steps: int) -> None:
        """Raise ConfigError if `total_steps` leaves no update, or the replay does not fit the memory."""
        by = self.config.num_envs
        len(self.replay)  # allocates it, before anything is written
        if self.updates(total_steps // by * by) < 1:
            raise ConfigError(
                f"total_steps is {total_steps}, and with num_envs {by}, update_after "
                f"{self.config.update_after} and updates_per_step {self.config.updates_per_step} that leaves no "
                "update: raise total_steps or lower update_after."
            )

    def updates(self, step: int) -> int:
        """Return how many updates belong to the first `step` steps; computed from `step` alone, it cannot drift."""
        before = max(self.config.update_after, self.config.num_envs)  # the first step has nothing to learn from
        return max(step - before, 0) * self.rate.numerator // self.rate.denominator

    @property
    def rows(self) -> Replay:
        """The replay, whose rows are saved separately from the state."""
        return self.replay

    def start(self, step: int) -> None:
        """Reset all environments and mark that the next rows do not follow the replay's newest ones."""
        super().start(step)
        self.replay.cut()
        if self.reward_scale is not None:
            self.reward_scale.restart()

    def learn_with(self, config: Any) -> None:
        """Take the numbers of the coming updates from `config`; rewards are scaled with its discount too."""
        super().learn_with(config)
        if self.reward_scale is not None:
            self.reward_scale.state["gamma"].fill_(config.gamma)

    def state_dict(self) -> Tree:
        """Return the state of agent, environments, health checks and replay, without the replay's rows."""
        added = {"replay": self.replay.state_dict(), "row": self.last_metrics, "health": self.health.state_dict()}
        reward_norm = self.reward_scale.state_dict() if self.reward_scale else None
        frames = {} if self.replay.frames is None else {"frames": self.replay.frames.state_dict()}
        pink = {} if self.pink_noise is None else {"exploration": self.pink_noise.state_dict()}
        return {**super().state_dict(), **added, "reward_norm": reward_norm, **frames, **pink}

    def load_state_dict(self, state: Tree) -> str:
        """Load a state made by `state_dict`; return "", or why the environments have to be reset."""
        self.replay.load_state_dict(state["replay"])
        if self.replay.frames is not None:
            self.replay.frames.load_state_dict(state["frames"])
        if self.reward_scale:
            self.reward_scale.load_state_dict(state["reward_norm"])
        if self.pink_noise is not None:
            self.pink_noise.load_state_dict(state["exploration"])
        self.last_metrics = dict(state["row"])
        self.health.load_state_dict(state["health"])
        return super().load_state_dict(state)

    def _stack(self, trainers: Sequence[Self], runs: RunGroup) -> tuple[Stack, ReplayWriter]:
        """Return the stack of all trainers' agents, and the writer of their replays.

        The stack learns from row indices; the rows are gathered inside the update.
        """
        updates = self.updates(runs.total_steps)  # of the whole run, so that a resumed run compiles the same functions
        agents = [trainer.agent for trainer in trainers]
        replays = [trainer.replay for trainer in trainers]
        state = joined_state(replays)
        scales = [trainer.reward_scale for trainer in trainers if trainer.reward_scale is not None]
        returns = joined_state(scales) if scales else {}
        stack = Stack(agents, runs.settings.compile, updates)
        batch_at = stack.lift(self._batch_at)
        stack.prepare = lambda starts: batch_at(state, returns, starts)  # part of the compiled or captured update
        return stack, ReplayWriter(replays, state, self.envs.device, returns or None)

    def _batch_at(self, replay: Tree, returns: Tree, starts: Tensor) -> Rows:
        """Return the batch at these row indices of the replay, prepared for the agent."""
        length = self.agent.sequence_length
        batch = self.replay.sequences(replay, starts, length) if length > 1 else self.replay.transitions(replay, starts)
        if returns:
            batch["rewards"] = ReturnScale.scaled(returns, batch["rewards"], self.ranks)
        return self.agent.prepared(batch)

    def _hyper(self, stack: Stack, runs: RunGroup) -> Rows:
        """Return the update's hyperparameters as tensors.

        Annealed rates change every `report_every` steps, so they do not depend on interruptions.
        """
        parts = -(-runs.total_steps // self.report_every)
        return stack.hyper(self.remaining(runs.step // self.report_every + 1, parts))

    def _metrics(self, step: int) -> dict[str, float]:
        """Return the metrics to report; a loss that is no number if every update since the last report was skipped."""
        due, skipped = self.updates(step), self.agent.skipped
        (due_before, skipped_before), self.counted = self.counted, (due, skipped)
        if due - due_before >= MIN_SKIPPED and skipped - skipped_before == due - due_before:
            return {"loss": math.nan}
        counts: dict[str, float] = {"train/updates": due - skipped, "train/skipped_updates": skipped}
        counts["train/replay"] = len(self.replay) * self.ranks.count
        if not self.last_metrics:
            return counts if skipped else {}
        self.health(self.last_metrics)
        return {**self.last_metrics, **counts}


def _next_multiple(step: int, every: int) -> int:
    """Return the first multiple of `every` after `step`."""
    return (step // every + 1) * every
