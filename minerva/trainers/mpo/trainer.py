"""MPO's trainer: the off-policy loop around an MPOAgent."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from minerva.envs.ids import env_name
from minerva.formulas.lagrange import positive
from minerva.loop.off_policy import OffPolicyTrainer
from minerva.metrics import Rule
from minerva.runs.folder import new_folder_name
from minerva.runs.settings import Result
from minerva.trainers.mpo.agent import MPOAgent
from minerva.trainers.mpo.config import MPOConfig
from minerva.trainers.mpo.metrics import rules


class MPOTrainer(OffPolicyTrainer):
    """Trains MPO on an environment, given by its id, as a factory function, or as an instance.

    >>> trainer = MPOTrainer("Pendulum-v1", seed=0, device="cpu", policy_layer_sizes=(64, 64))
    >>> trainer.train(15_000, out_dir="runs/pendulum")
    """

    algo = "mpo"
    AGENT = MPOAgent
    POSITIONAL = ("policy_layer_sizes", "critic_layer_sizes", "replay_size")
    agent: MPOAgent
    config: MPOConfig

    def rules(self) -> Iterable[Rule]:
        """Return the health rules of MPO."""
        multipliers = dict(self.agent.duals.named_parameters()).get("raw_alpha_stddev")
        return rules(self.config, None if multipliers is None else positive(multipliers).mean().item())

    def train(  # type: ignore[override]  # MPO's further arguments come before out_dir
        self,
        total_steps: int,
        update_after: int | str | Path | None = None,
        batch_size: int | None = None,
        out_dir: str | Path | None = None,
        **settings: Any,
    ) -> Result:
        """Train until `total_steps` environment steps and write the run to `out_dir` (None: a new folder in runs/).

        `update_after` and `batch_size` override the config. `settings` are fields of `RunSettings`. As with every
        trainer, `train(total_steps, out_dir)` works too.
        """
        if isinstance(update_after, (str, Path)):
            update_after, out_dir = None, update_after
        given: dict[str, Any] = {"update_after": update_after, "batch_size": batch_size}
        self.config = dataclasses.replace(self.config, **{k: v for k, v in given.items() if v is not None})
        folder = out_dir or Path("runs") / new_folder_name(self.algo, env_name(self.env), self.seed)
        return super().train(total_steps, folder, **settings)
