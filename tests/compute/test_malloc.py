"""Memory between updates."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import PPO

from minerva.loop import stacking
from minerva.trainers.ppo.trainer import PPOTrainer

WORK = """
import ctypes, resource, torch
from minerva.compute.malloc import M_MMAP_THRESHOLD, keep_freed_memory

def page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        blocks = [torch.ones(10_240, 256) for _ in range(4)]
        del blocks
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 10

ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 128 * 1024)  # where glibc starts
page_faults()
given_back = page_faults()
keep_freed_memory()
page_faults()
print([given_back, page_faults()])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
def test_an_update_is_given_the_memory_of_the_one_before() -> None:
    """Four blocks of ten megabytes, filled and freed: 10,240 pages of 4 KiB, unless they are kept."""
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, check=True)
    given_back, kept = json.loads(done.stdout)
    assert given_back > 10_000
    assert kept < 100


def test_training_alone_changes_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that imports the library, or acts with its agents, keeps its own."""
    calls = []
    monkeypatch.setattr(stacking, "keep_freed_memory", lambda: calls.append("kept"))
    trainer = PPOTrainer("Pendulum-v1", **PPO)
    trainer.greedy(trainer.envs.reset(range(trainer.num_envs)))
    assert calls == []
    trainer.train(256, tmp_path, quiet=True, eval_episodes=1)
    assert calls == ["kept"]
