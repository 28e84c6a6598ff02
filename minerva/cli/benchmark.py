"""`minerva benchmark`: a grid of algorithms, environments and seeds, trained, evaluated and kept."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from minerva.api import tuned
from minerva.compute.compiled import MatmulPrecision
from minerva.envs.engines.envpool import cores
from minerva.envs.engines.registry import EngineName
from minerva.errors import ConfigError
from minerva.lab.benchmark.board import Board
from minerva.lab.benchmark.files import Files
from minerva.lab.benchmark.grid import Cell, Grid, make_grid, read_grid
from minerva.lab.benchmark.local import LocalExecutor
from minerva.lab.benchmark.schedule import Schedule
from minerva.lab.benchmark.tasks import Executor, Maker
from minerva.loop.trainer import usable_device
from minerva.trainers.registry import config_class

FAILED, UNFINISHED = 1, 3

SMALL = 64
"""Width of layers up to which a CPU trains several seeds in one process faster than each by itself."""

UNITS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Benchmark:
    """Train and evaluate a whole grid: every algorithm on every environment with every seed.

    The same command goes on where it was stopped. What has a result is never run again.
    """

    grid: tyro.conf.Positional[Path | None] = None
    """A grid's TOML file; the options below then choose a part of it, or replace what it says."""
    algos: str = ""
    """Algorithms, as mpo,ppo. With a grid's file: the entries, by name or algorithm."""
    envs: str = ""
    """Environment ids, as HalfCheetah-v5,dm_control/walker/run."""
    seeds: str | None = None
    """How many seeds from 0 (10), or which: 0:5, or 3,7. None: the grid's, or 5."""
    total_steps: int | None = None
    """Environment steps of each run; None: the grid's, or the preset's."""
    episodes: int | None = None
    """Deterministic episodes with each run's last checkpoint; None: the grid's, or 100."""
    evaluations: int | None = None
    """Evaluations during training; None: the grid's, or 20."""
    out: Path = Path("benchmark")
    """Where the runs are kept, as <out>/<entry>/<environment>/seed<k>."""
    results: Path | None = None
    """Where the results are collected, one small file each; None: the grid's, or <out>/results."""
    device: str = "cpu"
    """cpu, cuda or cuda:0."""
    engine: EngineName = "auto"
    """What steps the environments."""
    matmul: MatmulPrecision = "highest"
    """How exactly a GPU multiplies float32 matrices; "high" allows TF32, which is faster."""
    jobs: int | None = None
    """Ranks that train at the same time; None: as many as there are cores, and one on a GPU."""
    together: Literal["auto", "always", "never"] = "auto"
    """Whether the seeds of an entry and environment are trained in one process: auto is where it is faster."""
    executor: Literal["local", "ray"] = "local"
    """Where the runs go: local is this machine's processes; ray is a cluster, or a Ray that is started here."""
    address: str | None = None
    """Address of a Ray cluster, as `ray start` prints it; None: Ray is started on this machine."""
    within: str | None = None
    """Stop after this time, as 20m, 1h30m or 90s: what cannot be finished in it is not begun, or stopped resumably."""
    status: bool = False
    """Only print the table of what is done, running, failed, to be measured, stopped and not run."""

    def run(self) -> int:
        """Run what is missing. Exit code 1 if a run failed, 3 if something is left to do."""
        grid, within, console = self._grid(), seconds(self.within), Console(highlight=False)
        files = Files(self.out.absolute(), (self.results or grid.results or self.out / "results").absolute())
        board = Board(grid, files, console)
        if self.status:
            board.conclude()
            return 0
        maker = Maker(grid, files, self.device, self.engine, self.matmul)
        schedule = Schedule(maker, self._executor(files), self._together, within)
        with board:
            undisturbed = schedule.run(board.update)
        kinds = [state.kind for state in board.conclude([]).values()]
        console.print(f"results: {files.results}", markup=False, soft_wrap=True)
        if undisturbed and "failed" in kinds:
            return FAILED
        return 0 if set(kinds) == {"done"} else UNFINISHED

    def _grid(self) -> Grid:
        """The grid of the file or of the options."""
        algos, envs = ([name for name in names.split(",") if name] for names in (self.algos, self.envs))
        changes = {name: getattr(self, name) for name in ("seeds", "total_steps", "episodes", "evaluations")}
        changed = {name: value for name, value in changes.items() if value is not None}
        if self.grid is None:
            if not algos or not envs:
                raise ConfigError("There is no grid: give its TOML file, or --algos and --envs.")
            return make_grid({name: {} for name in algos}, envs=envs, **changed)
        return read_grid(self.grid, **changed).chosen(algos, envs)

    def _executor(self, files: Files) -> Executor:
        if self.jobs is not None and self.jobs < 1:
            raise ConfigError(f"jobs is {self.jobs}: it must be at least 1.")
        if self.executor == "ray":
            from minerva.lab.cluster.executor import RayExecutor  # an extra, imported by nothing else

            return RayExecutor(files, self.address, self.jobs, self.device != "cpu")
        if self.address is not None:
            raise ConfigError(f"address is {self.address}, of a Ray cluster: give --executor ray, too.")
        usable_device(self.device)
        return LocalExecutor(self._jobs(), self.device != "cpu")

    def _jobs(self) -> int:
        return self.jobs or (cores() if self.device == "cpu" else 1)

    def _together(self, cells: Sequence[Cell], rows: int) -> bool:
        """Whether seeds are trained in one process. On a GPU they cost little more than one.

        Four seeds of PPO with layers of 64 need half the processor's time together that they need apart, but one
        core does the most of it: so on a CPU only where there is a row for each core.
        """
        if self.together == "auto":
            crowded = self.executor == "local" and rows >= self._jobs()
            return self.device != "cpu" or (crowded and widest(cells[0]) <= SMALL)
        return self.together == "always"


def widest(cell: Cell) -> int:
    """The largest layer of a cell's networks."""
    entry = cell.entry
    _, values = tuned(entry.algo, cell.env, entry.preset, None, dict(entry.hyperparameters))
    config = config_class(entry.algo).from_dict(values).to_dict()
    return max(width for name, widths in config.items() if name.endswith("layer_sizes") for width in widths)


def seconds(text: str | None) -> float | None:
    """1h30m as seconds."""
    if text is None:
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ConfigError(f"within is {text}: write a time such as 20m, 1h30m or 90s.")
    return sum(float(number) * UNITS[unit] for number, unit in parts)
