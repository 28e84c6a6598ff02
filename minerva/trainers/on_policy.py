"""The loop that PPO and V-MPO share: collect a rollout, learn from it, throw it away."""

from collections.abc import Callable, Sequence
from typing import Any, Self

from minerva.compute.captured import InPlace
from minerva.data.rollout import Rollout
from minerva.envs.ids import EnvLike, is_dm_control
from minerva.envs.normalize import RewardNorm
from minerva.envs.vector import EngineName, Episode, VectorEnv
from minerva.errors import ConfigError
from minerva.formulas.statistics import remaining_fraction
from minerva.runs.together import Together
from minerva.trainers.agent import Agent, Rows
from minerva.trainers.base import Trainer, by_trainer
from minerva.trainers.health import Health
from minerva.trainers.stack import Stack, joined_state
from minerva.utils.tree import Tree


def collect(envs: VectorEnv, stack: Stack, rollout: Rollout) -> list[Episode]:
    """Fill the rollout with the agents' steps; the episodes that ended on the way are returned."""
    episodes: list[Episode] = []
    noise = stack.draw_actions((rollout.steps, envs.num_envs // len(stack.agents)))
    for t in range(rollout.steps):
        done = stack.act(rollout.observe(t, envs.obs), noise.select(-3, t))
        step = envs.step(done["executed"])
        rollout.write(t, done["actions"], step.next_obs, step.rewards, step.terminated, step.truncated)
        episodes += step.episodes
    return episodes


class OnPolicyTrainer(Trainer):
    """Rollouts of `rollout_steps` in `num_envs` environments, each learned from once."""

    agent: Agent
    health: Health | None = None

    def __init__(
        self, env: EnvLike, seed: int, device: str, config: Any, engine: EngineName | VectorEnv = "auto"
    ) -> None:
        super().__init__(env, seed, device, config, config.num_envs, engine)
        self.batch_size: int = config.num_envs * config.rollout_steps
        wanted = config.normalize_rewards
        normalized = not is_dm_control(env) if wanted is None else wanted
        self.reward_norm = RewardNorm(config.num_envs, config.gamma, self.device) if normalized else None

    @classmethod
    def loop(cls, trainers: Sequence[Self], envs: VectorEnv, runs: Together) -> None:
        """Collect, learn, report."""
        first = trainers[0]
        updates = runs.total_steps // first.batch_size
        stack = Stack([trainer.agent for trainer in trainers], runs.settings.compile, updates)
        scale = _reward_scale(trainers, stack)
        rollout = Rollout(first.config.rollout_steps, envs.num_envs, envs.obs_dim, envs.act_dim, first.device)
        for step in runs.steps(by=first.batch_size):
            episodes = collect(envs, stack, rollout)
            data = scale(stack.split(rollout.tensors()))
            stack.learn(data, stack.hyper(first._remaining(step // first.batch_size, updates)))
            metrics = stack.metrics()
            for trainer, row in zip(trainers, metrics, strict=True):
                if trainer.health is not None:
                    trainer.health(row)
            runs.report(step, metrics, by_trainer(episodes, trainers))

    def check(self, total_steps: int) -> None:
        """A run has to hold at least one update."""
        if total_steps < self.batch_size:
            raise ConfigError(
                f"total_steps is {total_steps}, less than one rollout of {self.batch_size} steps "
                f"(num_envs {self.config.num_envs} x rollout_steps {self.config.rollout_steps}): raise it."
            )

    def state_dict(self) -> Tree:
        """Agent and reward normaliser."""
        reward_norm = self.reward_norm.state_dict() if self.reward_norm else None
        return {"agent": self.agent.state_dict(), "reward_norm": reward_norm}

    def load_state_dict(self, state: Tree) -> None:
        """Take over a state made by `state_dict`."""
        self.agent.load_state_dict(state["agent"])
        if self.reward_norm:
            self.reward_norm.load_state_dict(state["reward_norm"])

    def _remaining(self, update: int, updates: int) -> float:
        return remaining_fraction(update, updates) if self.config.anneal_lr else 1.0


def _reward_scale(trainers: Sequence[OnPolicyTrainer], stack: Stack) -> Callable[[Rows], Rows]:
    """The function that scales the rewards of a rollout, for all trainers at once."""
    norms = [trainer.reward_norm for trainer in trainers if trainer.reward_norm is not None]
    if not norms:
        return lambda data: data
    state = joined_state(norms)
    state["running"].zero_()  # every environment begins an episode here, also in a run that goes on
    scale = InPlace(stack.lift(RewardNorm.scaled), state, stack.mode)
    return lambda data: {**data, "rewards": scale(data["rewards"], data["dones"])}
