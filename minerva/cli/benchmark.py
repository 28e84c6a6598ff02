"""`minerva benchmark`: train and evaluate a grid of algorithms, environments and seeds."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

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
from minerva.runs.output import make_console
from minerva.runs.signals import exit_status
from minerva.trainers.registry import config_class

FAILED, UNFINISHED = 1, 3

SMALL_WIDTH = 64
"""Largest layer width at which one CPU process trains several seeds faster than one process per seed."""

UNITS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Benchmark:
    """Train and evaluate a grid: every algorithm on every environment with every seed.

    Give the same command again to resume a stopped benchmark. Runs that have a result are skipped.
    """

    grid: tyro.conf.Positional[Path | None] = None
    """TOML file of a grid; the options below then select a part of it or override its values."""
    algos: str = ""
    """Comma-separated algorithms, such as mpo,ppo. With a grid file: its entries, by name or algorithm."""
    envs: str = ""
    """Comma-separated environment ids, such as HalfCheetah-v5,dm_control/walker/run."""
    trust_env: bool = False
    """Allow ids of the form your_module:YourEnv-v0 in the grid's file to import their modules."""
    seeds: str | None = None
    """Number of seeds, counted from 0 (10), or the seeds themselves: 0:5, or 3,7. None: the grid's, or 5."""
    total_steps: int | None = None
    """Environment steps per run; None: the grid's, or the preset's."""
    episodes: int | None = None
    """Deterministic evaluation episodes of each run's last checkpoint; None: the grid's, or 100."""
    evaluations: int | None = None
    """Evaluations during each training run; None: the grid's, or 20."""
    out: Path = Path("benchmark")
    """Folder of the runs: <out>/<entry>/<environment>/seed<k>."""
    results: Path | None = None
    """Folder of the results, one small file per run; None: the grid's, or <out>/results."""
    device: str = "cpu"
    """cpu, cuda or cuda:0."""
    engine: EngineName = "auto"
    """Engine that steps the environments."""
    matmul: MatmulPrecision = "highest"
    """Precision of float32 matrix products on a GPU; "high" allows TF32, which is faster."""
    jobs: int | None = None
    """Processes that train in parallel; None: one per CPU core, and one on a GPU."""
    together: Literal["auto", "always", "never"] = "auto"
    """Whether to train the seeds of an entry and environment in one process; auto: where that is faster."""
    executor: Literal["local", "ray"] = "local"
    """Where to train: local, in processes of this machine; ray, on a Ray cluster or a Ray started on this machine."""
    address: str | None = None
    """Address of a Ray cluster, as printed by `ray start`; None: start Ray on this machine."""
    within: str | None = None
    """Time limit, such as 20m, 1h30m or 90s: runs that cannot finish within it are not started, or are stopped with a
    checkpoint to resume from."""
    status: bool = False
    """Only print the table of runs: done, running, failed, to be measured (not evaluated yet), stopped, not run."""

    def run(self) -> int:
        """Train and evaluate what has no result yet.

        Return 0, 1 if a run failed, 3 if the time was up and work is left, or the status of the signal that stopped it.
        """
        grid, within, console = self._grid(), parse_duration(self.within), make_console()
        files = Files(self.out.absolute(), (self.results or grid.results or self.out / "results").absolute())
        board = Board(grid, files, console)
        if self.status:
            board.print_summary()
            return 0
        maker = Maker(grid, files, self.device, self.engine, self.matmul)
        schedule = Schedule(maker, self._executor(files), self._together, within)
        with board:
            schedule.run(board.update)
        kinds = [state.kind for state in board.print_summary([]).values()]
        console.print(f"results: {files.results}", markup=False, soft_wrap=True)
        if set(kinds) == {"done"}:
            return 0
        if schedule.signal is not None:
            return exit_status(schedule.signal)
        return FAILED if "failed" in kinds else UNFINISHED

    def _grid(self) -> Grid:
        """Return the grid of the file, with the options applied, or of the options alone."""
        algos, envs = ([name for name in names.split(",") if name] for names in (self.algos, self.envs))
        changes = {name: getattr(self, name) for name in ("seeds", "total_steps", "episodes", "evaluations")}
        changed = {name: value for name, value in changes.items() if value is not None}
        if self.grid is None:
            if not algos or not envs:
                raise ConfigError("No grid is given: give a grid's TOML file, or --algos and --envs.")
            return make_grid({name: {} for name in algos}, envs=envs, **changed)
        return read_grid(self.grid, self.trust_env, **changed).chosen(algos, envs)

    def _executor(self, files: Files) -> Executor:
        if self.jobs is not None and self.jobs < 1:
            raise ConfigError(f"jobs is {self.jobs}: it must be at least 1.")
        if self.executor == "ray":
            from minerva.lab.cluster.executor import RayExecutor  # Ray is an extra: import it only if it is asked for

            return RayExecutor(files, self.address, self.jobs, self.device != "cpu")
        if self.address is not None:
            raise ConfigError(f"address is {self.address}, but the executor is not ray: add --executor ray.")
        usable_device(self.device)
        return LocalExecutor(self._jobs(), self.device != "cpu")

    def _jobs(self) -> int:
        return self.jobs or (cores() if self.device == "cpu" else 1)

    def _together(self, cells: Sequence[Cell], rows: int) -> bool:
        """Return whether to train these seeds in one process. On a GPU they cost little more than one seed.

        Four seeds of PPO with layers of width 64 need half as much CPU time in one process as in four, but mostly on
        one core. So on a CPU they share a process only if there are at least as many rows of the grid as processes.
        """
        if self.together == "auto":
            cores_busy = self.executor == "local" and rows >= self._jobs()
            return self.device != "cpu" or (cores_busy and widest_layer(cells[0]) <= SMALL_WIDTH)
        return self.together == "always"


def widest_layer(cell: Cell) -> int:
    """Return the largest layer width of a cell's networks."""
    entry = cell.entry
    _, values = tuned(entry.algo, cell.env, entry.preset, None, dict(entry.hyperparameters))
    config = config_class(entry.algo).from_dict(values).to_dict()
    return max(width for name, widths in config.items() if name.endswith("layer_sizes") for width in widths)


def parse_duration(text: str | None) -> float | None:
    """Return the seconds of a duration such as "1h30m", or None for None."""
    if text is None:
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ConfigError(f"within is {text}: write a duration such as 20m, 1h30m or 90s.")
    return sum(float(number) * UNITS[unit] for number, unit in parts)
