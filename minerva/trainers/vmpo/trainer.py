"""V-MPO's trainer: the on-policy loop around a VMPOAgent."""

from collections.abc import Sequence
from typing import Any

from minerva.compute.ranks import SINGLE, Ranks
from minerva.envs.engine import Engine
from minerva.envs.engines.registry import EngineName
from minerva.envs.ids import EnvLike
from minerva.loop.collector import Collector
from minerva.loop.on_policy import OnPolicyTrainer
from minerva.metrics import Health
from minerva.trainers.vmpo.agent import VMPOAgent
from minerva.trainers.vmpo.config import VMPOConfig
from minerva.trainers.vmpo.metrics import rules


class VMPOTrainer(OnPolicyTrainer):
    """Trains V-MPO on an environment given by id, as a function that makes one, or as an instance.

    >>> trainer = VMPOTrainer("Pendulum-v1", seed=0, device="cpu", num_envs=8, rollout_steps=128)
    >>> trainer.train(100_000, out_dir="runs/pendulum")
    """

    algo = "vmpo"
    config: VMPOConfig

    def __init__(
        self,
        env_id: EnvLike,
        seed: int = 0,
        device: str = "cpu",
        policy_layer_sizes: Sequence[int] = (256, 256),
        value_layer_sizes: Sequence[int] = (256, 256),
        rollout_steps: int = 2048,
        num_envs: int = 1,
        *,
        engine: EngineName | Engine | Collector = "auto",
        ranks: Ranks = SINGLE,
        config: VMPOConfig | None = None,
        **hyperparameters: Any,
    ) -> None:
        """Make a trainer from a `config`, which is used as it is, or from `hyperparameters`, its other fields."""
        config = config or VMPOConfig.from_dict(
            {
                "policy_layer_sizes": policy_layer_sizes,
                "value_layer_sizes": value_layer_sizes,
                "rollout_steps": rollout_steps,
                "num_envs": num_envs,
                **hyperparameters,
            }
        )
        super().__init__(env_id, seed, device, config, engine, ranks)
        self.health = Health(rules(config, self.envs.action.size))
        dimensions = self.envs.observation.size, self.envs.action.size
        where: dict[str, Any] = {"seed": seed, "device": self.device, "ranks": ranks}
        self.agent: VMPOAgent = VMPOAgent.from_config(*dimensions, self.share, **where)
