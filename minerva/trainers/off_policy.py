"""The loop of off-policy algorithms: act, keep what happened in a replay, learn from random batches of it."""

from fractions import Fraction
from typing import Any, Protocol

import torch
from torch import Tensor

from minerva.data.replay import Replay
from minerva.envs.ids import EnvLike
from minerva.envs.vector import Episode
from minerva.errors import ConfigError
from minerva.runs.run import Run
from minerva.trainers.base import Trainer
from minerva.trainers.health import Health
from minerva.utils.scaling import Array
from minerva.utils.tree import Tree

REPORT_EVERY = 1_000
"""Environment steps between reports: fetching metrics more often would stall the device for nothing."""


class OffPolicyAgent(Protocol):
    """What the loop needs of an agent. Acting gives the executed action, the raw one and its log-density."""

    device: torch.device
    skipped: int

    def sample(self, obs: Array) -> tuple[Tensor, Tensor, Tensor]:
        """Act with the policy that collects experience."""

    def sample_uniform(self, obs: Array) -> tuple[Tensor, Tensor, Tensor]:
        """Act at random."""

    def learn(self, batch: dict[str, Tensor]) -> None:
        """Learn from a batch, without waiting for the device."""

    def fetch(self) -> dict[str, float] | None:
        """Metrics of the last update, if there is one to speak of."""

    def compile(self, mode: Any, updates: int) -> None:
        """Compile what an update runs, if that many are worth it."""

    def state_dict(self) -> Tree:
        """Everything the agent owns."""

    def load_state_dict(self, state: Tree) -> None:
        """Take over a state made by `state_dict`."""


class OffPolicyTrainer(Trainer):
    """A fixed number of updates per environment step, each on a batch from all that the replay still holds."""

    agent: OffPolicyAgent
    replay: Replay
    health: Health

    def __init__(self, env: EnvLike, seed: int, device: str, config: Any) -> None:
        super().__init__(env, seed, device, config, config.num_envs)
        self.rate = Fraction(config.updates_per_step).limit_denominator(1_000_000)

    def loop(self, run: Run) -> None:
        """Act, learn, report."""
        self.agent.compile(run.settings.compile, self._updates(run.total_steps))  # also in a run that goes on
        for _ in run.steps(by=self.envs.num_envs):
            step = run.step
            until = min(_next(step, REPORT_EVERY), _next(step, run.eval_every), run.total_steps)
            while step < until and step + self.envs.num_envs <= run.total_steps and not run.interrupted:
                self.episodes += self._interact(
                    random=step < self.config.update_after and self.config.warmup == "random"
                )
                step += self.envs.num_envs
                for _ in range(self._updates(step) - self._updates(step - self.envs.num_envs)):
                    self.agent.learn(self._batch())
            if step < until and step + self.envs.num_envs <= run.total_steps:
                run.pause(step)
                continue
            episodes, self.episodes = self.episodes, []
            run.report(step, self._metrics(step), episodes)

    def check(self, total_steps: int) -> None:
        """A run has to hold at least one update."""
        steps = total_steps // self.envs.num_envs * self.envs.num_envs
        if self._updates(steps) < 1:
            raise ConfigError(
                f"total_steps is {total_steps}, and with num_envs {self.envs.num_envs}, update_after "
                f"{self.config.update_after} and updates_per_step {self.config.updates_per_step} that leaves no "
                "update: raise total_steps or lower update_after."
            )

    @property
    def rows(self) -> Replay:
        """The replay, whose rows are saved apart from the state."""
        return self.replay

    def start(self, step: int) -> None:
        """Begin new episodes everywhere: what is added next does not follow the replay's newest rows."""
        super().start(step)
        self.replay.cut()

    def state_dict(self) -> Tree:
        """Agent, environments and replay, its rows aside."""
        return {**super().state_dict(), "replay": self.replay.state_dict()}

    def load_state_dict(self, state: Tree) -> str:
        """Take over a state made by `state_dict`."""
        self.replay.load_state_dict(state["replay"])
        return super().load_state_dict(state)

    def _updates(self, step: int) -> int:
        """How many updates belong to the first `step` steps: a function of the step, so nothing can drift."""
        return max(step - self.config.update_after, 0) * self.rate.numerator // self.rate.denominator

    def _interact(self, random: bool) -> list[Episode]:
        """One step of every environment, kept in the replay."""
        obs = self.envs.obs
        executed, raw, log_prob = self.agent.sample_uniform(obs) if random else self.agent.sample(obs)
        actions = executed.cpu().numpy()
        step = self.envs.step(actions)
        fields = {"obs": obs, "actions_exec": actions, "next_obs": step.next_obs, "rewards": step.rewards}
        if "behaviour_logp" in self.replay.widths:
            fields |= {"actions_raw": raw.cpu().numpy(), "behaviour_logp": log_prob.cpu().numpy()}
        self.replay.add(**fields, dones=step.terminated, truncated=step.truncated)
        return step.episodes

    def _batch(self) -> dict[str, Tensor]:
        """What one update learns from."""
        length = self.config.sequence_length
        size = self.config.batch_size
        return self.replay.sample_sequences(size, length) if length > 1 else self.replay.sample(size)

    def _metrics(self, step: int) -> dict[str, float]:
        metrics = self.agent.fetch()
        if metrics is None:
            return {}
        self.health(metrics)
        counts = {"train/updates": self._updates(step), "train/skipped_updates": self.agent.skipped}
        return {**metrics, **counts, "train/replay": len(self.replay)}


def _next(step: int, every: int) -> int:
    """The first multiple of `every` after `step`."""
    return (step // every + 1) * every
