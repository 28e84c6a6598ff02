"""`minerva tune`: search for better hyperparameters and write them as a preset."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from minerva.api import tuned
from minerva.config import parse_seeds
from minerva.envs.engines.registry import EngineName
from minerva.envs.ids import check_id
from minerva.errors import ConfigError
from minerva.lab.cluster.space import space
from minerva.lab.cluster.tuning import Search, preset_file
from minerva.presets import preset_for
from minerva.runs.folder import write_atomically
from minerva.runs.output import make_console
from minerva.trainers.registry import config_class


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
        check_id(self.env)
        preset = str(Path(self.preset).absolute()) if self.preset.endswith(".toml") else self.preset
        for name in ("trials", "evaluations", "total_steps", "jobs"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must be at least 1.")
        kind = config_class(self.algo)
        budget, values = tuned(self.algo, self.env, preset, self.total_steps, {})
        dimensions = tuple(space(self.algo, kind.from_dict(values), self.search))
        seeds, out = tuple(parse_seeds(self.seeds)), self.out.absolute()
        console = make_console()
        for each in dimensions:
            console.print(f"searching {each}", markup=False)
        options = (self.trials, self.evaluations, out, self.device, self.engine)
        search = Search(self.algo, self.env, seeds, budget, preset, dimensions, *options)
        best = search.run(self.address, self.jobs)
        base = preset_for(self.algo, self.env, preset)
        source = (
            f"{shlex.join(['minerva', *sys.argv[1:]])}: the best of {best.trials} trials, {best.mean:,.1f} over "
            f"{len(seeds)} seeds from {seeds[0]} after {best.step:,} steps"
        )
        known = {name: (value, base.sources[name]) for name, value in base.values.items()}
        file = out / f"{self.algo}.toml"
        write_atomically(file, preset_file(search, best, known, source))
        console.print(f"best: {best.mean:,.1f} over {len(seeds)} seeds after {best.step:,} steps", markup=False)
        for name, value in best.hyperparameters.items():
            console.print(f"  {name} = {value}", markup=False)
        command = shlex.join(["minerva", "train", self.algo, "--env", self.env, "--preset", str(file)])
        console.print(f"next: {command}", markup=False, soft_wrap=True)
        return 0
