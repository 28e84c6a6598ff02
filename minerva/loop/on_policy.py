"""The loop of on-policy algorithms (PPO, V-MPO): collect a rollout, learn from it, discard it."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Self

from minerva.compute.cuda_graph import InPlace
from minerva.compute.tree import Tree
from minerva.data.fields import action_field, transition_fields
from minerva.data.horizon import Horizon, left_open, settings_before_episodes
from minerva.data.normalizers import RewardNorm
from minerva.data.rollout import Rollout, RolloutWriter
from minerva.envs.ids import is_dm_control
from minerva.errors import ConfigError
from minerva.loop.agent import Agent, Rows
from minerva.loop.collector import Collector
from minerva.loop.stacking import Stack, joined_state
from minerva.loop.trainer import Trainer, assign_episodes, take_episodes
from minerva.runs.run_group import RunGroup


class OnPolicyTrainer(Trainer):
    """Trainer that collects rollouts of `rollout_steps` in `num_envs` environments and learns from each once."""

    agent: Agent

    @property
    def batch_size(self) -> int:
        """Environment steps of a rollout, over all environments."""
        steps: int = self.config.num_envs * self.config.rollout_steps
        return steps

    @functools.cached_property
    def reward_norm(self) -> RewardNorm | None:
        """Reward normaliser, or None: rewards as they are."""
        setting = self.config.normalize_rewards
        normalized = not is_dm_control(self.env) if setting is None else setting
        gamma = settings_before_episodes(self.config.to_dict())["gamma"]
        return RewardNorm(self.num_envs, gamma, self.device) if normalized else None

    @functools.cached_property
    def horizon(self) -> Horizon | None:
        """Counts of the task's episodes, or None: settings say how far ahead rewards count."""
        return Horizon(self.device) if left_open(self.config) else None

    @classmethod
    def loop(cls, trainers: Sequence[Self], collector: Collector, runs: RunGroup) -> None:
        """Collect, learn and report until the runs end. `runs.steps` saves and evaluates between two rollouts."""
        first = trainers[0]
        updates = runs.total_steps // first.batch_size
        stack = Stack([trainer.agent for trainer in trainers], runs.settings.compile, updates)
        measured, scaled = _horizon(trainers, stack), _reward_scale(trainers, stack)
        rollouts = [trainer.rollout for trainer in trainers]
        writer = RolloutWriter(rollouts, joined_state(rollouts))
        for step in runs.steps(by=first.batch_size):
            stack.invalidate_cached_weights()
            assign_episodes(collector.fill_rollouts(stack, writer, lambda: runs.interrupted), trainers)
            if not first.rollout.full:
                runs.pause(runs.step)
                continue
            stack.learn(
                scaled(measured(writer.tensors())), stack.hyper(first.remaining(step // first.batch_size, updates))
            )
            metrics = stack.metrics()
            for trainer, row in zip(trainers, metrics, strict=True):
                trainer.health(row)
            runs.report(step, metrics, take_episodes(trainers))

    def check(self, total_steps: int) -> None:
        """Raise ConfigError if `total_steps` is less than one rollout."""
        if total_steps < self.batch_size:
            raise ConfigError(
                f"total_steps is {total_steps}, less than one rollout of {self.batch_size} steps "
                f"(num_envs {self.config.num_envs} x rollout_steps {self.config.rollout_steps}): raise it."
            )

    @functools.cached_property
    def rollout(self) -> Rollout:
        """The rollout buffer, overwritten by each rollout."""
        fields = {**transition_fields(self.envs.observation), "actions_raw": action_field(self.envs.action)}
        return Rollout(self.config.rollout_steps, self.num_envs, fields, self.envs.device, self.device)

    def start(self, step: int) -> None:
        """Reset all environments, and discard an unfinished rollout, episodes and running returns."""
        super().start(step)
        self.rollout.clear()
        self.episodes = []
        if self.reward_norm is not None:
            self.reward_norm.state["running"].zero_()

    def learn_with(self, config: Any) -> None:
        """Take the numbers of the coming updates from `config`; rewards are scaled with its discount too."""
        super().learn_with(config)
        if self.reward_norm is not None and config.gamma is not None:
            self.reward_norm.state["gamma"].fill_(config.gamma)

    def state_dict(self) -> Tree:
        """Return the state of agent, environments, reward normaliser, horizon, health and the unfinished rollout."""
        reward_norm = self.reward_norm.state_dict() if self.reward_norm else None
        horizon = self.horizon.state_dict() if self.horizon else None
        added = {"reward_norm": reward_norm, "rollout": self.rollout.state_dict(), "health": self.health.state_dict()}
        return {**super().state_dict(), **added, "horizon": horizon}

    def load_state_dict(self, state: Tree) -> str:
        """Load a state made by `state_dict`; return "", or why the environments have to be reset."""
        if self.reward_norm:
            self.reward_norm.load_state_dict(state["reward_norm"])
        if self.horizon:
            self.horizon.load_state_dict(state["horizon"])
        if state["health"] is not None:  # PPO runs of earlier versions have no health checks
            self.health.load_state_dict(state["health"])
        self.rollout.load_state_dict(state["rollout"])
        return super().load_state_dict(state)


def _horizon(trainers: Sequence[OnPolicyTrainer], stack: Stack) -> Callable[[Rows], Rows]:
    """Return a function that adds to all trainers' rollouts the settings that follow from their horizons."""
    horizons = [trainer.horizon for trainer in trainers if trainer.horizon is not None]
    if not horizons:
        return lambda data: data
    derived = left_open(trainers[0].config)
    measured = functools.partial(Horizon.measured, ranks=trainers[0].ranks)
    measure = InPlace(stack.lift(measured), joined_state(horizons), stack.mode, distributed=stack.distributed)

    def with_settings(data: Rows) -> Rows:
        settings = measure(data["terminated"], data["ended"])
        return {**data, **{name: settings[name].to(data["rewards"].dtype) for name in derived}}

    return with_settings


def _reward_scale(trainers: Sequence[OnPolicyTrainer], stack: Stack) -> Callable[[Rows], Rows]:
    """Return a function that scales the rewards of all trainers' rollouts in one call."""
    norms = [trainer.reward_norm for trainer in trainers if trainer.reward_norm is not None]
    if not norms:
        return lambda data: data
    state, fields = joined_state(norms), ("rewards", "ended", "gamma")
    scaled = functools.partial(RewardNorm.scaled, ranks=trainers[0].ranks)
    scale = InPlace(stack.lift(scaled), state, stack.mode, distributed=stack.distributed)
    return lambda data: {**data, "rewards": scale(*(data[name] for name in fields if name in data))}
