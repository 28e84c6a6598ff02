"""Actors on Ray's own multi-node test cluster, of which a node dies: the run goes on and ends as it would have."""

import subprocess
from collections.abc import Iterator
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
ALGO = "mpo"
"""With which updates are made while the actors collect."""
ORDER = 3
"""The order under way when the node dies."""
STORE = 100 << 20


@pytest.fixture(scope="module")
def hold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While this file is there, no environment of the cluster makes a step."""
    return tmp_path_factory.mktemp("hold") / "hold"


@pytest.fixture(scope="module")
def cluster(hold: Path) -> Iterator[Any]:
    """A head that does nothing itself. Results stay on the node that made them until they are fetched, as large ones
    do, so that with the node they are lost."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{SUPPORT}:{SUPPORT.parents[1]}")  # for the nodes' processes
        patch.setenv("HOLD", str(hold))
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
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with blocks in this process."""
    folder = tmp_path_factory.mktemp("undisturbed")
    train(ALGO, local_collector(ALGO, config_of(ALGO), PACED, BLOCKS), folder, env=PACED)
    return folder


class Doomed:
    """Ends the node of the first actor amid an order, or when that is carried out and nobody has fetched the result."""

    def __init__(self, cluster: Any, nodes: list[Any], blocks: RemoteCollector, hold: Path | None) -> None:
        self.cluster, self.nodes, self.blocks, self.hold = cluster, nodes, blocks, hold
        self.begin, self.orders, self.collected = blocks.begin, 0, False
        self.before = self.process()

    def process(self) -> int:
        """That of the first actor."""
        number: int = ray.get(self.blocks.envs.workers[0].handle.process.remote())  # type: ignore[attr-defined]
        return number

    def __call__(self, *order: Any) -> None:
        """In the place of `RemoteCollector.begin`."""
        self.orders += 1
        dying = self.orders == ORDER
        if dying and self.hold:
            self.hold.touch()
        self.begin(*order)
        if dying:
            done, _ = ray.wait([self.blocks._calls[0][0]], timeout=0 if self.hold else 600, fetch_local=False)
            self.collected = bool(done)
            raylet = int(subprocess.check_output(["ps", "-o", "ppid=", "-p", str(self.before)]))
            (node,) = (node for node in self.nodes if node.all_processes["raylet"][0].process.pid == raylet)
            self.cluster.remove_node(node, allow_graceful=False)
            if self.hold:
                self.hold.unlink()


@pytest.mark.parametrize("amid", [True, False], ids=["amid an order", "with what it has collected"])
def test_a_node_that_dies_changes_nothing(
    amid: bool,
    hold: Path,
    cluster: Any,
    nodes: list[Any],
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = ray_collector(ALGO, config_of(ALGO), PACED, BLOCKS, address=cluster.address)
    doomed = Doomed(cluster, nodes, blocks, hold if amid else None)
    monkeypatch.setattr(blocks, "begin", doomed)
    train(ALGO, blocks, tmp_path / "disturbed", env=PACED)
    after = doomed.process()
    blocks.envs.close()
    assert doomed.collected is not amid
    assert doomed.orders > ORDER
    assert after != doomed.before

    assert same(learned(tmp_path / "disturbed"), learned(undisturbed))
    rows = read_rows(tmp_path / "disturbed" / "metrics.jsonl")
    staleness = [row["actors/staleness"] for row in rows if "actors/staleness" in row]
    bound = ROUND * SETTINGS[ALGO]["num_envs"] * SETTINGS[ALGO]["updates_per_step"]
    assert 0 < max(staleness) <= bound
