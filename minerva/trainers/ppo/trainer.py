"""PPO's trainer: the on-policy loop around a PPOAgent."""

from collections.abc import Sequence
from typing import Any

from minerva.compute.ranks import SINGLE, Ranks
from minerva.envs.engine import Engine
from minerva.envs.engines.registry import EngineName
from minerva.envs.ids import EnvLike
from minerva.loop.collector import Collector
from minerva.loop.on_policy import OnPolicyTrainer
from minerva.metrics import Health
from minerva.networks.policies import ActorCritic
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.config import PPOConfig
from minerva.trainers.ppo.metrics import rules

Agent = ActorCritic
"""The actor-critic network, under the name that CleanRL made familiar."""


class PPOTrainer(OnPolicyTrainer):
    """Trains PPO on an environment given by id, as a function that makes one, or as an instance.

    >>> trainer = PPOTrainer("Pendulum-v1", seed=0, device="cpu", num_envs=4, rollout_steps=256)
    >>> trainer.train(100_000, out_dir="runs/pendulum")
    """

    algo = "ppo"
    config: PPOConfig

    def __init__(
        self,
        env_id: EnvLike,
        seed: int = 0,
        device: str = "cpu",
        policy_layer_sizes: Sequence[int] = (64, 64),
        critic_layer_sizes: Sequence[int] = (64, 64),
        rollout_steps: int = 2048,
        *,
        engine: EngineName | Engine | Collector = "auto",
        ranks: Ranks = SINGLE,
        config: PPOConfig | None = None,
        **hyperparameters: Any,
    ) -> None:
        """Make a trainer from a `config`, which is used as it is, or from `hyperparameters`, its other fields."""
        config = config or PPOConfig.from_dict(
            {
                "policy_layer_sizes": policy_layer_sizes,
                "critic_layer_sizes": critic_layer_sizes,
                "rollout_steps": rollout_steps,
                **hyperparameters,
            }
        )
        super().__init__(env_id, seed, device, config, engine, ranks)
        dimensions = self.envs.observation.size, self.envs.action.size
        where: dict[str, Any] = {"seed": seed, "device": self.device, "ranks": ranks}
        self.agent: PPOAgent = PPOAgent.from_config(*dimensions, self.share, **where)
        self.health = Health(rules())
