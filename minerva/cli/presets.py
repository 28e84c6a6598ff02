"""`minerva presets`: print the tuned hyperparameters and the source of each value."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import tyro
from rich.console import Console
from rich.table import Table

from minerva.config import nearest
from minerva.errors import ConfigError
from minerva.presets import Preset, presets
from minerva.runs.output import make_console
from minerva.trainers.registry import ALGORITHMS, config_class

if TYPE_CHECKING:
    AlgoChoice = str
else:
    AlgoChoice = Literal["all", *ALGORITHMS]


@dataclass(frozen=True)
class ShowPresets:
    """List the presets, or show those of one environment with the source of each value."""

    env: tyro.conf.Positional[str | None] = None
    """Environment id or preset name; without it, list all presets."""
    algo: AlgoChoice = "all"
    """Show presets of this algorithm only."""

    def run(self) -> int:
        """Print the list, or the tables of one environment."""
        console = make_console()
        algos = ALGORITHMS if self.algo == "all" else [self.algo]
        found = [(algo, preset) for algo in algos for preset in presets(algo).values()]
        if self.env is None:
            _list(console, found)
            return 0
        shown = [(algo, preset) for algo, preset in found if preset.name == self.env]
        if not shown:
            names = {preset.name for _, preset in found}
            raise ConfigError(f"{self.env} has no preset. {nearest(self.env, names)}")
        for algo, preset in shown:
            _show(console, algo, preset)
        return 0


INTRODUCTION = """Presets: tuned settings, each with its source.
minerva train ALGO --env ENV uses the defaults of ALGO, with --preset auto its preset for ENV, with --preset NAME any.
minerva presets NAME shows the settings of a preset and where each comes from.
"""


def _list(console: Console, found: Sequence[tuple[str, Preset]]) -> None:
    """Print what presets are, and a table of their names with the algorithms that have them."""
    console.print(INTRODUCTION, soft_wrap=True)
    algos = list(dict.fromkeys(algo for algo, _ in found))
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("preset", *algos):
        table.add_column(heading, no_wrap=True)
    for name in dict.fromkeys(preset.name for _, preset in found):
        having = {algo for algo, preset in found if preset.name == name}
        table.add_row(name, *(algo if algo in having else "-" for algo in algos))
    console.print(table)


def _show(console: Console, algo: str, preset: Preset) -> None:
    console.print(f"[bold]{algo}[/] on [bold]{preset.name}[/]: all other settings keep their defaults")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("setting", "value", "source"):
        table.add_column(heading, overflow="fold")
    for name, value in preset.changes(config_class(algo)()).items():
        table.add_row(name, str(value), preset.sources[name])
    console.print(table)
