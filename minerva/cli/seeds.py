"""`minerva train --seeds`: train several seeds, or several values of a hyperparameter, in one process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from minerva.api import each_config, make_population, seed_folders
from minerva.config import TENSOR, Config, nearest, parse_seeds
from minerva.envs.engines.registry import EngineName
from minerva.envs.ids import EnvLike
from minerva.errors import ConfigError, printable
from minerva.loop.population import Population
from minerva.networks.own import OwnNetworks
from minerva.runs.settings import Result
from minerva.trainers.registry import config_class


class Seeds:
    """Seeds to train together, with a config for each."""

    def __init__(self, algo: str, numbers: Sequence[int], configs: Sequence[Config]) -> None:
        self.algo, self.numbers, self.configs = algo, numbers, configs
        values = [config.to_dict() for config in configs]
        self.varied = [name for name in values[0] if any(other[name] != values[0][name] for other in values)]

    @classmethod
    def parse(cls, algo: str, config: Config, seeds: str | None, seed: int, vary: str) -> "Seeds":
        """Parse the options --seeds and --vary; without `seeds`, every value of `vary` is trained with `seed`."""
        varied = dict(_parse_variation(algo, text) for text in vary.split())
        count = len(next(iter(varied.values()))) if varied else 1
        numbers = parse_seeds(seeds) if seeds is not None else [seed] * count
        return cls(algo, numbers, each_config(algo, {**config.to_dict(), **varied}, len(numbers)))

    def __str__(self) -> str:
        return ",".join(map(str, self.numbers))

    def varied_values(self) -> dict[str, list[str]]:
        """Return the value that each seed has of every setting in which they differ."""
        values = {name: [getattr(config, name) for config in self.configs] for name in self.varied}
        return {
            name: [f"{value:g}" if isinstance(value, float) else str(value) for value in each]
            for name, each in values.items()
        }

    def population(
        self,
        env: EnvLike,
        device: str,
        init_from: Path | None,
        init_optimizer: bool,
        engine: EngineName,
        own_networks: OwnNetworks | None = None,
    ) -> Population:
        """Return the trainers of all seeds as one population."""
        how = (init_from, engine, init_optimizer, own_networks)
        return make_population(self.algo, env, self.numbers, device, self.configs, *how)

    def folders(self, env: str, out_dir: Path, run_dir: Path | None) -> list[Path]:
        """Return the run folder of each seed."""
        return seed_folders(self.algo, env, self.numbers, out_dir, run_dir)

    def print_summary(self, console: Console, results: Sequence[Result], resume_command: str | None) -> None:
        """Print a row of returns per seed and their mean. The last lines are `run: <folder>`, as for one run.

        `resume_command` resumes all runs; None: the command that trained them does.
        """
        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading in ("seed", *self.varied, "steps", "random", "before", "after", "best"):
            table.add_column(heading, justify="right")
        columns = self.varied_values().values()
        for seed, result, *varied in zip(self.numbers, results, *columns, strict=True):
            returns = [f"{value:,.1f}" for value in (result.random, result.before, result.after, result.best)]
            table.add_row(str(seed), *varied, f"{result.step:,}", *returns)
        console.print("\nmean return of deterministic evaluation episodes")
        console.print(table)
        after = [result.after for result in results]
        if len(after) > 1:
            std = float(np.std(after, ddof=1))
            console.print(f"after training, mean ± standard deviation over seeds: {np.mean(after):,.1f} ± {std:,.1f}")
        if not all(result.finished for result in results):
            how = "run the same command again." if resume_command is None else f"run:\n  {resume_command}"
            console.print(f"stopped; checkpoints are written. To resume, {how}", markup=False, soft_wrap=True)
        for result in results:
            console.print(printable(f"run: {result.folder}"), markup=False, soft_wrap=True)


def _parse_variation(algo: str, text: str) -> tuple[str, list[Any]]:
    """Parse `name=value,value,...` into the hyperparameter's name and its values."""
    name, _, values = text.partition("=")
    inputs = config_class(algo).fields_with(TENSOR)
    if name not in inputs:
        raise ConfigError(f"{name} cannot differ between seeds that are trained together. {nearest(name, inputs)}")
    try:
        return name, [float(value) for value in values.split(",")]
    except ValueError:
        raise ConfigError(f"vary is {text}: write a name and numbers, such as policy_lr=1e-4,3e-4.") from None
