"""PPO's trainer: the on-policy loop around a PPOAgent."""

from collections.abc import Sequence
from typing import Any

from minerva.compute.ranks import SINGLE, Ranks
from minerva.envs.ids import EnvLike
from minerva.envs.vector import EngineName, VectorEnv
from minerva.loop.on_policy import OnPolicyTrainer
from minerva.networks.policies import ActorCritic
from minerva.runs.status import MetricGauge, gauge
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.config import PPOConfig

Agent = ActorCritic
"""The actor-critic network, under the name that CleanRL made familiar."""

GAUGES = (
    gauge("KL", "losses/approx_kl", high=0.05),
    gauge("clipped", "losses/clipfrac", high=0.4),
    gauge("explained variance", "losses/explained_variance"),
    gauge("entropy", "losses/entropy"),
)
"""What a running run shows; PPO has no constraint to keep, but steps that are too long show in these."""


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
        engine: EngineName | VectorEnv = "auto",
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
        dimensions = self.envs.obs_dim, self.envs.act_dim
        where: dict[str, Any] = {"seed": seed, "device": self.device, "ranks": ranks}
        self.agent: PPOAgent = PPOAgent.from_config(*dimensions, self.share, **where)

    @property
    def gauges(self) -> Sequence[MetricGauge]:
        """What a running run shows of the updates' health."""
        return GAUGES
