"""Environments stepped by Ray actors: the same weights as in one process, also if an actor is killed on the way."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from actor_runs import BLOCKS, ENV, SETTINGS, InBlocks, config_of, learned, same, train

from minerva.lab.cluster.actors import ray_collector
from minerva.loop.remote import RemoteCollector

ray = pytest.importorskip("ray")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """A Ray of this machine, with a core for every actor."""
    how = {"num_cpus": BLOCKS, "include_dashboard": False, "object_store_memory": 100 << 20}
    ray.init("local", logging_level="error", log_to_driver=False, **how)
    yield
    ray.shutdown()


def of_actors(algo: str) -> RemoteCollector:
    return ray_collector(algo, config_of(algo), ENV, BLOCKS)


@pytest.mark.parametrize("algo", SETTINGS)
def test_actors_collect_what_one_process_collects_also_if_one_is_killed_and_replaced(
    algo: str, in_blocks: InBlocks, tmp_path: Path
) -> None:
    blocks, killed = of_actors(algo), list[int]()

    def kill(step: int, metrics: Any, trainer: Any) -> bool:
        if not killed:
            killed.append(ray.get(blocks.envs.workers[0].handle.process.remote()))  # type: ignore[attr-defined]
            os.kill(killed[0], signal.SIGKILL)
        return False

    train(algo, blocks, tmp_path, kill)
    alive = ray.get(blocks.envs.workers[0].handle.process.remote())  # type: ignore[attr-defined]
    blocks.envs.close()
    assert killed
    assert alive != killed[0]
    assert same(learned(tmp_path), learned(in_blocks(algo)[1]))
