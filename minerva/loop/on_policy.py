"""The loop that PPO and V-MPO share: collect a rollout, learn from it, throw it away."""

import functools
from collections.abc import Callable, Sequence
from typing import Self

from minerva.compute.cuda_graph import InPlace
from minerva.compute.tree import Tree
from minerva.data.fields import action_field, transition_fields
from minerva.data.normalizers import RewardNorm
from minerva.data.rollout import Rollout, RolloutWriter
from minerva.envs.ids import is_dm_control
from minerva.errors import ConfigError
from minerva.loop.agent import Agent, Rows
from minerva.loop.collector import Collector
from minerva.loop.stacking import Stack, joined_state
from minerva.loop.trainer import Trainer, note, taken_episodes
from minerva.runs.run_group import RunGroup


class OnPolicyTrainer(Trainer):
    """Rollouts of `rollout_steps` in `num_envs` environments, each learned from once."""

    agent: Agent

    @property
    def batch_size(self) -> int:
        """Steps of a rollout."""
        steps: int = self.config.num_envs * self.config.rollout_steps
        return steps

    @functools.cached_property
    def reward_norm(self) -> RewardNorm | None:
        """What scales the rewards; without a word in the config, those of dm_control are left as they are."""
        wanted = self.config.normalize_rewards
        normalized = not is_dm_control(self.env) if wanted is None else wanted
        return RewardNorm(self.num_envs, self.config.gamma, self.device) if normalized else None

    @classmethod
    def loop(cls, trainers: Sequence[Self], collector: Collector, runs: RunGroup) -> None:
        """Collect, learn, report. `runs.steps` saves and evaluates between two rollouts."""
        first = trainers[0]
        updates = runs.total_steps // first.batch_size
        stack = Stack([trainer.agent for trainer in trainers], runs.settings.compile, updates)
        scale = _reward_scale(trainers, stack)
        rollouts = [trainer.rollout for trainer in trainers]
        writer = RolloutWriter(rollouts, joined_state(rollouts))
        for step in runs.steps(by=first.batch_size):
            stack.invalidate_cached_weights()
            note(collector.fill_rollouts(stack, writer, lambda: runs.interrupted), trainers)
            if not first.rollout.full:
                runs.pause(runs.step)
                continue
            stack.learn(scale(writer.tensors()), stack.hyper(first.remaining(step // first.batch_size, updates)))
            metrics = stack.metrics()
            for trainer, row in zip(trainers, metrics, strict=True):
                trainer.health(row)
            runs.report(step, metrics, taken_episodes(trainers))

    def check(self, total_steps: int) -> None:
        """A run has to hold at least one update."""
        if total_steps < self.batch_size:
            raise ConfigError(
                f"total_steps is {total_steps}, less than one rollout of {self.batch_size} steps "
                f"(num_envs {self.config.num_envs} x rollout_steps {self.config.rollout_steps}): raise it."
            )

    @functools.cached_property
    def rollout(self) -> Rollout:
        """What is collected, learned from, and overwritten."""
        fields = {**transition_fields(self.envs.observation), "actions_raw": action_field(self.envs.action)}
        return Rollout(self.config.rollout_steps, self.num_envs, fields, self.envs.device, self.device)

    def start(self, step: int) -> None:
        """Begin new episodes everywhere, with nothing collected and no return under way."""
        super().start(step)
        self.rollout.clear()
        self.episodes = []
        if self.reward_norm is not None:
            self.reward_norm.state["running"].zero_()

    def state_dict(self) -> Tree:
        """Agent, environments, reward normaliser, the watch over constraints and what is collected of a rollout."""
        reward_norm = self.reward_norm.state_dict() if self.reward_norm else None
        own = {"reward_norm": reward_norm, "rollout": self.rollout.state_dict(), "health": self.health.state_dict()}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: Tree) -> str:
        """Take over a state made by `state_dict`."""
        if self.reward_norm:
            self.reward_norm.load_state_dict(state["reward_norm"])
        if state["health"] is not None:  # PPO's runs of earlier versions were not watched
            self.health.load_state_dict(state["health"])
        self.rollout.load_state_dict(state["rollout"])
        return super().load_state_dict(state)


def _reward_scale(trainers: Sequence[OnPolicyTrainer], stack: Stack) -> Callable[[Rows], Rows]:
    """The function that scales the rewards of a rollout, for all trainers at once."""
    norms = [trainer.reward_norm for trainer in trainers if trainer.reward_norm is not None]
    if not norms:
        return lambda data: data
    state = joined_state(norms)
    scaled = functools.partial(RewardNorm.scaled, ranks=trainers[0].ranks)
    scale = InPlace(stack.lift(scaled), state, stack.mode, distributed=stack.distributed)
    return lambda data: {**data, "rewards": scale(data["rewards"], data["ended"])}
