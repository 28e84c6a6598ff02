"""The loop that PPO and V-MPO share: collect a rollout, learn from it, throw it away."""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from minerva.data.rollout import Rollout
from minerva.envs.ids import EnvLike, is_dm_control
from minerva.envs.normalize import RewardNorm
from minerva.envs.vector import Episode, VectorEnv
from minerva.errors import ConfigError
from minerva.formulas.statistics import remaining_fraction
from minerva.runs.run import Run
from minerva.trainers.base import Trainer
from minerva.trainers.health import Health
from minerva.utils.tree import Tree


class OnPolicyAgent(Protocol):
    """What the loop needs of an agent."""

    device: torch.device

    def sample(self, obs: np.ndarray | Tensor) -> Tensor:
        """Actions as drawn, which the rollout keeps."""

    def execute(self, actions: Tensor) -> Tensor:
        """What the environment gets of them, in [-1, 1]."""

    def learn(self, rollout: dict[str, Tensor], remaining: float) -> dict[str, float]:
        """Learn from a rollout; `remaining` falls from 1 to 0 over the run if rates are annealed."""

    def compile(self, mode: Any, updates: int) -> None:
        """Compile what an update runs, if that many are worth it."""

    def state_dict(self) -> Tree:
        """Everything the agent owns."""

    def load_state_dict(self, state: Tree) -> None:
        """Take over a state made by `state_dict`."""


def collect(
    envs: VectorEnv, agent: OnPolicyAgent, rollout: Rollout, interrupted: Callable[[], bool] = lambda: False
) -> list[Episode]:
    """Fill the rollout with the agent's steps; the episodes that ended on the way are returned.

    If it is interrupted, the rollout stays filled in part, and the next call goes on there.
    """
    episodes: list[Episode] = []
    rollout.filled = 0 if rollout.full else rollout.filled
    while not (rollout.full or interrupted()):
        obs = envs.obs
        actions = agent.sample(obs)
        step = envs.step(agent.execute(actions).cpu().numpy())
        rollout.write(rollout.filled, obs, actions, step.next_obs, step.rewards, step.terminated, step.truncated)
        rollout.filled += 1
        episodes += step.episodes
    return episodes


class OnPolicyTrainer(Trainer):
    """Rollouts of `rollout_steps` in `num_envs` environments, each learned from once."""

    agent: OnPolicyAgent
    health: Health | None = None

    def __init__(self, env: EnvLike, seed: int, device: str, config: Any) -> None:
        super().__init__(env, seed, device, config, config.num_envs)
        self.batch_size: int = config.num_envs * config.rollout_steps
        wanted = config.normalize_rewards
        normalized = not is_dm_control(env) if wanted is None else wanted
        self.reward_norm = RewardNorm(config.num_envs, config.gamma) if normalized else None

    def loop(self, run: Run) -> None:
        """Collect, learn, report."""
        updates = run.total_steps // self.batch_size
        self.agent.compile(run.settings.compile, updates)
        rollout = self.rollout
        for step in run.steps(by=self.batch_size):
            self.episodes += collect(self.envs, self.agent, rollout, lambda: run.interrupted)
            if not rollout.full:
                run.pause(run.step)
                continue
            if self.reward_norm is not None:
                rollout.rewards = self.reward_norm(rollout.rewards, rollout.dones)
            metrics = self.agent.learn(rollout.tensors(), self._remaining(step // self.batch_size, updates))
            if self.health is not None:
                self.health(metrics)
            episodes, self.episodes = self.episodes, []
            run.report(step, metrics, episodes)

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
        sizes = (self.config.rollout_steps, self.envs.num_envs, self.envs.obs_dim, self.envs.act_dim)
        return Rollout(*sizes, self.agent.device)

    def start(self, step: int) -> None:
        """Begin new episodes everywhere, with nothing collected and no return under way."""
        super().start(step)
        self.rollout.filled, self.episodes = 0, []
        if self.reward_norm is not None:
            self.reward_norm.running.zero_()

    def state_dict(self) -> Tree:
        """Agent, environments, reward normaliser and what is collected of a rollout."""
        reward_norm = self.reward_norm.state_dict() if self.reward_norm else None
        return {**super().state_dict(), "reward_norm": reward_norm, "rollout": self.rollout.state_dict()}

    def load_state_dict(self, state: Tree) -> str:
        """Take over a state made by `state_dict`."""
        if self.reward_norm:
            self.reward_norm.load_state_dict(state["reward_norm"])
        self.rollout.load_state_dict(state["rollout"])
        return super().load_state_dict(state)

    def _remaining(self, update: int, updates: int) -> float:
        return remaining_fraction(update, updates) if self.config.anneal_lr else 1.0
