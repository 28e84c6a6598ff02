"""Grids on Ray's own multi-node test cluster: a node that dies, and what the driver costs."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import LAYERS, PACED, SIZES, STEPS, learned, same, train_command

from minerva.cli.main import main
from minerva.lab.benchmark.files import Files, progress
from minerva.lab.benchmark.grid import Cell, Entry
from minerva.lab.benchmark.tasks import Task

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[2] / "support"
RUNS, NODES, TASKS = 3, 4, 200


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that does nothing itself; nodes are added by the test."""
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", f"{SUPPORT}:{SUPPORT.parents[1]}")  # for the nodes' processes
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 100 << 20})
    yield made
    ray.shutdown()
    made.shutdown()


def add_node(cluster: Any, cores: int) -> Any:
    return cluster.add_node(num_cpus=cores, object_store_memory=100 << 20)


def grid_file(folder: Path) -> Path:
    hyperparameters = "\n".join(f"{name} = {json.dumps(value)}" for name, value in {**SIZES, **LAYERS}.items())
    head = f"total_steps = {STEPS}\nseeds = {RUNS}\nepisodes = 2\nevaluations = 4\nenvs = ['{PACED}']\n"
    (folder / "grid.toml").write_text(f"{head}[entries.ppo]\n{hyperparameters}\n")
    return folder / "grid.toml"


def test_a_node_that_dies_costs_no_run_and_changes_none(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PACE", "0.01")  # ten seconds a run, so that the node dies amid some
    doomed, _ = add_node(cluster, 1), add_node(cluster, 1)
    runs = tmp_path / "out" / "ppo" / "tiny_runs-Paced-v0"
    died_at: list[int] = []

    def kill_a_node() -> None:
        while True:
            steps = [progress(runs / f"seed{seed}" / "metrics.jsonl").step for seed in range(RUNS)]
            amid = [step for step in steps if 0 < step < STEPS]
            if len(amid) == 2:  # one of them is on the node that dies
                cluster.remove_node(doomed, allow_graceful=False)
                died_at.extend(amid)
                return
            time.sleep(0.05)

    killer = threading.Thread(target=kill_a_node, daemon=True)
    killer.start()
    options = ["--engine", "gymnasium", "--executor", "ray", "--address", cluster.address]
    assert main(["benchmark", str(grid_file(tmp_path)), "--out", str(tmp_path / "out"), *options]) == 0
    assert died_at
    assert f"{RUNS} of {RUNS} done" in capsys.readouterr().out
    going_on = [log for log in runs.glob("train_*.log") if "going on" in log.read_text() or _attempts(log) > 1]
    assert going_on, "no run was tried again"
    monkeypatch.setenv("PACE", "0")
    for seed in range(RUNS):
        undisturbed = tmp_path / f"undisturbed{seed}"
        assert main(train_command(undisturbed, env=PACED, seed=seed, engine="gymnasium", eval_episodes=15)) == 0
        assert same(learned(undisturbed), learned(runs / f"seed{seed}"))


def _attempts(log: Path) -> int:
    return log.read_text().count(f"{PACED}, seed")


def test_trivial_tasks_cost_the_driver_little(tmp_path: Path, cluster: Any) -> None:
    from minerva.lab.cluster.executor import RayExecutor

    for _ in range(NODES):
        add_node(cluster, 1)
    executor = RayExecutor(Files(tmp_path, tmp_path), cluster.address, TASKS, gpu=False)
    cell = Cell(Entry("ppo", "ppo"), "Pendulum-v1", 0, 1)
    tasks = [Task("measure", (cell,), ("python", "-c", ""), tmp_path / f"{n % 4}.log") for n in range(TASKS)]
    began, codes = time.process_time(), []
    for task in tasks:
        assert executor.room(task)
        executor.start(task)
    while len(codes) < len(tasks):
        codes += [code for _, code in executor.ended()]
        time.sleep(0.2)
    spent = (time.process_time() - began) / len(tasks)
    assert codes == [0] * TASKS
    assert spent < 0.020, f"{1000 * spent:.1f} ms of driver time for a task"
    print(f"{1000 * spent:.2f} ms of driver time for a task")
