"""`minerva tune`: search for better hyperparameters and write them as a preset."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from minerva.envs.engines.registry import EngineName


@dataclass(frozen=True)
class Tune:
    """Search for hyperparameters with Ray Tune and Optuna, and write the best as a preset. Needs the extra cluster.

    Trials that fall behind are stopped early (ASHA). Give the same command again to resume a stopped search.
    """

    algo: tyro.conf.Positional[str]
    """Algorithm to tune."""
    env: str
    """Environment id."""
    search: tuple[str, ...] = ()
    """Hyperparameters to search, such as gamma, gamma=0.95:0.99 or num_envs=8,16; none given: learning rates, bounds
    and discounts."""
    trials: int = 30
    """Hyperparameter settings to try."""
    seeds: str = "1000:1003"
    """Seeds of each trial, trained together and scored by their mean. Published results use other seeds, from 0 up."""
    total_steps: int | None = None
    """Environment steps of a trial that is not stopped early; None: the preset's."""
    evaluations: int = 20
    """Evaluations per run; a trial may be stopped after each of them."""
    preset: str = "none"
    """Preset that sets all other hyperparameters: none, a preset's name, auto (the environment's), or a TOML file."""
    out: Path = Path("tune")
    """Folder of the trials and of the preset that is written."""
    device: str = "cpu"
    """cpu or cuda."""
    engine: EngineName = "auto"
    """Engine that steps the environments."""
    jobs: int | None = None
    """Trials to run in parallel; None: one per CPU core, or per GPU."""
    address: str | None = None
    """Address of a Ray cluster; None: start Ray on this machine."""

    def run(self) -> int:
        """Search, write the preset, and print the best settings and the command that uses them."""
        from minerva.cli.tuning import run  # PyTorch, which reading the options does not need

        return run(self)
