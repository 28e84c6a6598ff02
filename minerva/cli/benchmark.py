"""`minerva benchmark`: train and evaluate a grid of algorithms, environments and seeds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from minerva.compute.modes import MatmulPrecision
from minerva.envs.engines.registry import EngineName


@dataclass(frozen=True)
class Benchmark:
    """Train and evaluate a grid: every algorithm on every environment with every seed.

    Give the same command again to resume a stopped benchmark. Runs that have a result are skipped.
    """

    grids: tyro.conf.Positional[tuple[Path, ...]] = ()
    """TOML files of grids, run one after the other; the options below then select a part of them or override their
    values."""
    algos: str = ""
    """Comma-separated algorithms, such as mpo,ppo. With grid files: their entries, by name or algorithm."""
    envs: str = ""
    """Comma-separated environment ids, such as HalfCheetah-v5,dm_control/walker/run."""
    trust_env: bool = False
    """Allow ids of the form your_module:YourEnv-v0 in a grid's file to import their modules."""
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
        from minerva.cli.benchmarking import run  # PyTorch, which reading the options does not need

        return run(self)
