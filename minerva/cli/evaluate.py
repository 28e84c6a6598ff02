"""`minerva evaluate`: print the return statistics of a trained policy."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from minerva.cli.typed_env import import_from_here
from minerva.cli.typed_networks import OwnWords, typed_networks
from minerva.cli.which import Which
from minerva.envs.engines.registry import EngineName
from minerva.errors import printable
from minerva.runs.output import make_console


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a run's best policy: mean, standard deviation and interquartile mean of the return over episodes."""

    run_dir: tyro.conf.Positional[Path]
    """A run's folder, or a checkpoint file."""
    which: Which
    episodes: int = 100
    """Evaluation episodes, each from a fixed seed."""
    env: str | None = None
    """Environment id to evaluate on; None: the one it was trained on."""
    seed: int | None = None
    """Seed of the first episode (10000 is added); None: the run's seed."""
    engine: EngineName | None = None
    """Engine that steps the environments; None: the one it was trained with."""
    trust_env: bool = False
    """Allow an id of the form your_module:YourEnv-v0 that the run names to import its module."""
    own_networks: OwnWords = None
    """Own networks that it was trained with, as part=module:name: a run's files never import what they name."""

    def run(self) -> int:
        """Evaluate the policy and print the statistics."""
        from minerva.api import evaluate  # PyTorch, which reading the options does not need
        from minerva.lab.analysis.statistics import interquartile_mean, iqm_interval

        import_from_here(self.env)
        which = self.which.name
        names = ("env", "seed", "engine", "trust_env")
        overrides: dict[str, Any] = {name: getattr(self, name) for name in names}
        overrides["own_networks"] = typed_networks(self.own_networks)
        result = evaluate(self.run_dir, episodes=self.episodes, which=which, **overrides)
        metrics = result.metrics()
        iqm, (low, high) = interquartile_mean(result.returns), iqm_interval(result.returns)
        console = make_console()
        heading = f"{which} policy of {self.run_dir}, {self.episodes} episodes, deterministic actions"
        console.print(printable(heading), markup=False, soft_wrap=True)
        console.print(f"return  mean {metrics['eval/return_mean']:,.1f}  std {metrics['eval/return_std']:,.1f}")
        console.print(
            f"        IQM {iqm:,.1f}  95 % confidence interval [{low:,.1f}, {high:,.1f}]",
            markup=False,
        )
        console.print(f"        min {metrics['eval/return_min']:,.1f}  max {metrics['eval/return_max']:,.1f}")
        console.print(f"length  mean {metrics['eval/length_mean']:,.1f}")
        return 0
