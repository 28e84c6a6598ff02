"""`minerva evaluate`: how good a trained policy is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console

from minerva.api import evaluate
from minerva.envs.engines.registry import EngineName
from minerva.lab.analysis.statistics import interquartile_mean, iqm_interval


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a run's best policy: mean, spread and interquartile mean over episodes."""

    run_dir: tyro.conf.Positional[Path]
    """A run's folder, or a checkpoint file."""
    episodes: int = 100
    """Episodes to play, each from its own fixed seed."""
    last: bool = False
    """Evaluate the last checkpoint instead of the best."""
    env: str | None = None
    """Another environment id than the one it was trained on."""
    seed: int | None = None
    """Seed of the first episode (10000 is added); None: the run's own."""
    engine: EngineName | None = None
    """What steps the environment; None: what it was trained with."""

    def run(self) -> int:
        """Evaluate and print."""
        which = "last" if self.last else "best"
        chosen: dict[str, Any] = {"env": self.env, "seed": self.seed, "engine": self.engine}
        result = evaluate(self.run_dir, episodes=self.episodes, which=which, **chosen)
        metrics = result.metrics()
        low, high = iqm_interval(result.returns)
        console = Console(highlight=False)
        what = f"{which} policy of {self.run_dir}, {self.episodes} episodes, deterministic"
        console.print(what, markup=False, soft_wrap=True)
        console.print(f"return  mean {metrics['eval/return_mean']:,.1f}  std {metrics['eval/return_std']:,.1f}")
        console.print(
            f"        IQM {interquartile_mean(result.returns):,.1f}  95 % interval [{low:,.1f}, {high:,.1f}]",
            markup=False,
        )
        console.print(f"        min {metrics['eval/return_min']:,.1f}  max {metrics['eval/return_max']:,.1f}")
        console.print(f"length  mean {metrics['eval/length_mean']:,.1f}")
        return 0
