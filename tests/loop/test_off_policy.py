"""The off-policy loop with many environments: the host waits for the device at reports, not at steps."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from minerva.data.replay import ReplayWriter
from minerva.envs.engine import Engine
from minerva.envs.engines.registry import make_engine
from minerva.loop.collector import Collected, LocalCollector, ReplayPlan
from minerva.loop.stacking import Stack
from minerva.trainers.mpo.trainer import MPOTrainer
from minerva.trainers.sac.trainer import SACTrainer

aten = torch.ops.aten
READS = {aten._local_scalar_dense, aten.nonzero, aten.equal, aten.is_nonzero, aten.masked_select}
"""Operations whose result, or its shape, the host has to know: on a GPU it waits for all that was launched before."""

SMALL: dict[str, Any] = {"policy_layer_sizes": (4,), "critic_layer_sizes": (4,), "batch_size": 8}


class Reads(TorchDispatchMode):
    """Counts the operations by which the host reads a tensor."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket in READS
        return func(*args, **kwargs or {})


class Watched(LocalCollector):
    """A collector that counts what the host reads in each stretch between two reports."""

    def __init__(self, envs: Engine) -> None:
        super().__init__(envs)
        self.stretches = list[tuple[int, int]]()

    def fill_replay(self, *inputs: Any) -> Collected:
        with Reads() as reads:
            collected = super().fill_replay(*inputs)
        self.stretches.append((collected.step, reads.count))
        return collected


def test_updates_run_while_the_environments_step(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = MPOTrainer("Pendulum-v1", num_envs=2, **SMALL)
    trainer.start(0)
    happened = list[str]()

    def noted(name: str, method: Any) -> Any:
        def call(*inputs: Any) -> Any:
            happened.append(name)
            return method(*inputs)

        return call

    for name in ("send", "recv"):
        monkeypatch.setattr(trainer.envs, name, noted(name, getattr(trainer.envs, name)))
    stack = Stack([trainer.agent], "off", 100)
    writer = ReplayWriter([trainer.replay], trainer.replay.state, trainer.envs.device)
    plan = ReplayPlan(0, 6, 6, lambda _, shape: stack.draw_actions(shape), noted("learn", lambda *_: 0), lambda: False)
    trainer.collector.fill_replay(stack, writer, plan)
    assert happened == ["send", "learn", "recv"] * 3


@pytest.mark.parametrize("kind", [MPOTrainer, SACTrainer], ids=["mpo", "sac"])
def test_nothing_is_read_from_the_device_between_two_reports(kind: Any, tmp_path: Path) -> None:
    """A report of 64 environments has 64 steps of all, and here 16 updates: one read at each would be 16 or more."""
    settings = {**SMALL, "num_envs": 64, "update_after": 4_096, "updates_per_step": 1 / 256}
    settings |= {"normalize_observations": True, "scale_rewards": True}
    watched = Watched(make_engine("Pendulum-v1", 64, "torch"))
    trainer = kind("Pendulum-v1", engine=watched, **settings)
    trainer.train(8_192, tmp_path, quiet=True, compile="off", eval_every=10**9, eval_episodes=1)
    (first, at_random), (second, learning) = watched.stretches
    assert (first, second) == (4_096, 8_192)
    assert trainer.updates(second) == 16
    assert 0 < at_random < 16, "the episodes of a stretch are read at its end"
    assert 0 < learning < 16


@pytest.mark.parametrize(("envs", "steps"), [(1, 1_000), (15, 1_000), (16, 1_024), (1_024, 65_536)])
def test_a_report_has_a_thousand_steps_or_64_of_each_environment(envs: int, steps: int) -> None:
    assert MPOTrainer("Pendulum-v1", engine="torch", **SMALL, num_envs=envs).report_every == steps


PREPARED = """
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from minerva import MPOAgent

agent = MPOAgent(2, 1, policy_layer_sizes=(4,), critic_layer_sizes=(4,))
rows = {name: torch.zeros(8, 3, 2) for name in ("obs", "next_obs")} | {"actions": torch.zeros(8, 3, 1)}
rows |= {name: torch.zeros(8, 3, 1) for name in ("rewards", "dones", "truncated")}
print(make_fx(lambda batch: agent.prepared(batch))(rows).code)
"""


def test_a_batch_is_prepared_in_the_same_order_in_every_process() -> None:
    """Sets are ordered by hashes, which each process draws; another order would have to be compiled anew."""
    codes = set()
    for hash_seed in ("1", "2", "3"):
        command = [sys.executable, "-c", PREPARED]
        ended = subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True
        )
        codes.add(ended.stdout)
    assert len(codes) == 1
    assert "transpose" in codes.pop()
