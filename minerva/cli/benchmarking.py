"""Train and evaluate as `minerva benchmark` was told."""

import functools
import re
import time
from collections.abc import Sequence

from minerva.api import tuned
from minerva.cli.benchmark import Benchmark
from minerva.cli.typed_env import import_from_here
from minerva.envs.engines.envpool import cores
from minerva.errors import ConfigError
from minerva.lab.benchmark.board import Board
from minerva.lab.benchmark.files import Files
from minerva.lab.benchmark.grid import Cell, Grid, chosen, make_grid, read_grid
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


def run(command: Benchmark) -> int:
    """Train and evaluate what has no result yet, grid after grid.

    Return 0, 1 if a run failed, 3 if the time was up and work is left, or the status of the signal that stopped it.
    """
    grids, within = _grids(command), parse_duration(command.within)
    deadline = None if within is None else time.monotonic() + within
    codes = [0]
    for name, grid in grids.items():
        if len(grids) > 1:
            make_console().print(f"{name}:", markup=False, soft_wrap=True)
        codes.append(_run_grid(command, grid, deadline))
        if codes[-1] not in (0, FAILED, UNFINISHED):
            return codes[-1]  # stopped by a signal
    return FAILED if FAILED in codes else max(codes)


def _run_grid(command: Benchmark, grid: Grid, deadline: float | None) -> int:
    """Train and evaluate what a grid has no result for. Return as `run` does."""
    console = make_console()
    files = Files(command.out.absolute(), (command.results or grid.results or command.out / "results").absolute())
    board = Board(grid, files, console)
    if command.status:
        board.print_summary()
        return 0
    maker = Maker(grid, files, command.device, command.engine, command.matmul)
    within = None if deadline is None else deadline - time.monotonic()
    schedule = Schedule(maker, _executor(command, files), functools.partial(_together, command), within)
    with board:
        schedule.run(board.update)
    kinds = [state.kind for state in board.print_summary([]).values()]
    console.print(f"results: {files.results}", markup=False, soft_wrap=True)
    if set(kinds) == {"done"}:
        return 0
    if schedule.signal is not None:
        return exit_status(schedule.signal)
    return FAILED if "failed" in kinds else UNFINISHED


def _grids(command: Benchmark) -> dict[str, Grid]:
    """Return the grids of the files by name, with the options applied, or that of the options alone."""
    import_from_here(command.envs)
    algos, envs = ([name for name in names.split(",") if name] for names in (command.algos, command.envs))
    changes = {name: getattr(command, name) for name in ("seeds", "total_steps", "episodes", "evaluations")}
    changed = {name: value for name, value in changes.items() if value is not None}
    if not command.grids:
        if not algos or not envs:
            raise ConfigError("No grid is given: give a grid's TOML file, or --algos and --envs.")
        return {"": make_grid({name: {} for name in algos}, envs=envs, **changed)}
    return chosen({str(path): read_grid(path, command.trust_env, **changed) for path in command.grids}, algos, envs)


def _executor(command: Benchmark, files: Files) -> Executor:
    if command.jobs is not None and command.jobs < 1:
        raise ConfigError(f"jobs is {command.jobs}: it must be at least 1.")
    if command.executor == "ray":
        from minerva.lab.cluster.executor import RayExecutor  # Ray is an extra: import it only if it is asked for

        return RayExecutor(files, command.address, command.jobs, command.device != "cpu")
    if command.address is not None:
        raise ConfigError(f"address is {command.address}, but the executor is not ray: add --executor ray.")
    usable_device(command.device)
    return LocalExecutor(_jobs(command), command.device != "cpu")


def _jobs(command: Benchmark) -> int:
    return command.jobs or (cores() if command.device == "cpu" else 1)


def _together(command: Benchmark, cells: Sequence[Cell], rows: int) -> bool:
    """Return whether to train these seeds in one process. On a GPU they cost little more than one seed.

    Four seeds of PPO with layers of width 64 need half as much CPU time in one process as in four, but mostly on
    one core. So on a CPU they share a process only if there are at least as many rows of the grid as processes.
    """
    if command.together == "auto":
        cores_busy = command.executor == "local" and rows >= _jobs(command)
        return command.device != "cpu" or (cores_busy and widest_layer(cells[0]) <= SMALL_WIDTH)
    return command.together == "always"


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
