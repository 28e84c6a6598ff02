"""Actors on Ray's own multi-node test cluster, of which a node dies: the run goes on and ends as it would have."""

import functools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from actor_runs import BLOCKS, SETTINGS, config_of, learned, same, train
from tiny_runs import PACED

from minerva.lab.cluster.actors import local_collector, ray_collector
from minerva.loop.remote import ROUND, RemoteCollector
from minerva.runs.metrics import read_rows

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[2] / "support"
ORDER = 3
"""The order under way when the node dies."""
STORE = 100 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that does nothing itself. Results stay on the node that made them until they are fetched, as large ones
    do, so that with the node they are lost."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{SUPPORT}:{SUPPORT.parents[1]}")  # for the nodes' processes
        patch.setenv("PACE", "0.01")  # an order takes half a second or more
        head = {"num_cpus": 0, "object_store_memory": STORE, "_system_config": {"max_direct_call_object_size": 500}}
        made = Cluster(initialize_head=True, head_node_args=head)
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def nodes(cluster: Any) -> Iterator[list[Any]]:
    """A node of one core for each actor, and one to spare."""
    made = [cluster.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(BLOCKS + 1)]
    yield made
    for node in made:
        if node in cluster.worker_nodes:
            cluster.remove_node(node)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of an algorithm's run with blocks in this process."""

    @functools.cache
    def run(algo: str) -> Path:
        folder = tmp_path_factory.mktemp("undisturbed")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PACE", "0")
            train(algo, local_collector(algo, config_of(algo), PACED, BLOCKS), folder, env=PACED)
        return folder

    return run


class Doomed:
    """Ends the node of the first actor amid an order, or when that is carried out and nobody has fetched the result."""

    def __init__(self, cluster: Any, nodes: list[Any], blocks: RemoteCollector, amid: bool) -> None:
        self.cluster, self.nodes, self.blocks, self.amid = cluster, nodes, blocks, amid
        self.begin, self.orders, self.collected = blocks.begin, 0, False
        self.before = self.process()

    def process(self) -> int:
        """That of the first actor."""
        number: int = ray.get(self.blocks.envs.workers[0].handle.process.remote())  # type: ignore[attr-defined]
        return number

    def __call__(self, *order: Any) -> None:
        """In the place of `RemoteCollector.begin`."""
        self.begin(*order)
        self.orders += 1
        if self.orders == ORDER:
            wait = 0.1 if self.amid else 60.0
            done, _ = ray.wait([self.blocks._calls[0][0]], timeout=wait, fetch_local=False)
            self.collected = bool(done)
            raylet = int(subprocess.check_output(["ps", "-o", "ppid=", "-p", str(self.before)]))
            (node,) = (node for node in self.nodes if node.all_processes["raylet"][0].process.pid == raylet)
            self.cluster.remove_node(node, allow_graceful=False)


@pytest.mark.parametrize("amid", [True, False], ids=["amid an order", "with what it has collected"])
@pytest.mark.parametrize("algo", ["ppo", "mpo"])
def test_a_node_that_dies_changes_nothing(
    algo: str,
    amid: bool,
    cluster: Any,
    nodes: list[Any],
    undisturbed: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = ray_collector(algo, config_of(algo), PACED, BLOCKS, address=cluster.address)
    doomed = Doomed(cluster, nodes, blocks, amid)
    monkeypatch.setattr(blocks, "begin", doomed)
    train(algo, blocks, tmp_path / "disturbed", env=PACED)
    after = doomed.process()
    blocks.envs.close()
    assert doomed.collected is not amid
    assert doomed.orders > ORDER
    assert after != doomed.before

    assert same(learned(tmp_path / "disturbed"), learned(undisturbed(algo)))
    if algo == "mpo":
        rows = read_rows(tmp_path / "disturbed" / "metrics.jsonl")
        staleness = [row["actors/staleness"] for row in rows if "actors/staleness" in row]
        bound = ROUND * SETTINGS[algo]["num_envs"] * SETTINGS[algo]["updates_per_step"]
        assert 0 < max(staleness) <= bound
