"""MPO's trainer: the off-policy loop around an MPOAgent."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minerva.compute.ranks import SINGLE, Ranks
from minerva.data.fields import Field, action_field, transition_fields
from minerva.data.replay import Replay
from minerva.envs.engine import Engine
from minerva.envs.engines.registry import EngineName
from minerva.envs.ids import EnvLike, env_name
from minerva.formulas.lagrange import positive
from minerva.loop.collector import Collector
from minerva.loop.off_policy import OffPolicyTrainer
from minerva.metrics import Health
from minerva.runs.folder import new_folder_name
from minerva.runs.settings import Result
from minerva.trainers.mpo.agent import MPOAgent
from minerva.trainers.mpo.config import MPOConfig
from minerva.trainers.mpo.metrics import rules


class MPOTrainer(OffPolicyTrainer):
    """Trains MPO on an environment given by id, as a function that makes one, or as an instance.

    >>> trainer = MPOTrainer("Pendulum-v1", seed=0, device="cpu", policy_layer_sizes=(64, 64))
    >>> trainer.train(15_000, out_dir="runs/pendulum")
    """

    algo = "mpo"
    config: MPOConfig

    def __init__(
        self,
        env_id: EnvLike,
        seed: int = 0,
        device: str = "cpu",
        policy_layer_sizes: Sequence[int] = MPOConfig.policy_layer_sizes,
        critic_layer_sizes: Sequence[int] = MPOConfig.critic_layer_sizes,
        replay_size: int = MPOConfig.replay_size,
        *,
        engine: EngineName | Engine | Collector = "auto",
        ranks: Ranks = SINGLE,
        config: MPOConfig | None = None,
        **hyperparameters: Any,
    ) -> None:
        """Make a trainer from a `config`, which is used as it is, or from `hyperparameters`, its other fields."""
        sizes = {"policy_layer_sizes": policy_layer_sizes, "critic_layer_sizes": critic_layer_sizes}
        config = config or MPOConfig.from_dict({**sizes, "replay_size": replay_size, **hyperparameters})
        super().__init__(env_id, seed, device, config, engine, ranks)
        obs_dim, act_dim = self.envs.observation.size, self.envs.action.size
        where: dict[str, Any] = {"seed": seed, "device": self.device, "ranks": ranks}
        self.agent: MPOAgent = MPOAgent.from_config(obs_dim, act_dim, self.share, **where)
        action = action_field(self.envs.action)
        fields = {**transition_fields(self.envs.observation), "actions_executed": action}
        if config.use_retrace:
            fields |= {"actions_raw": action, "behaviour_logp": Field((1,))}
        self.replay = Replay(self.share.replay_size, self.num_envs, fields, self.device, seed, ranks)
        self.health = Health(rules(config, positive(self.agent.duals.raw_alpha_stddev).mean().item()))

    def train(  # type: ignore[override]  # MPO's further arguments come before out_dir
        self,
        total_steps: int,
        update_after: int | str | Path | None = None,
        batch_size: int | None = None,
        out_dir: str | Path | None = None,
        **settings: Any,
    ) -> Result:
        """Train until `total_steps` environment steps, writing into `out_dir` (None: a new folder in runs/).

        `update_after` and `batch_size` replace those of the config. `settings` are the fields of `RunSettings`. As
        with every trainer, `train(total_steps, out_dir)` works too.
        """
        if isinstance(update_after, (str, Path)):
            update_after, out_dir = None, update_after
        given: dict[str, Any] = {"update_after": update_after, "batch_size": batch_size}
        self.config = dataclasses.replace(self.config, **{k: v for k, v in given.items() if v is not None})
        folder = out_dir or Path("runs") / new_folder_name(self.algo, env_name(self.env), self.seed)
        return super().train(total_steps, folder, **settings)
