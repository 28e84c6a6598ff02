"""Collecting with an engine on the learner's GPU: nothing is copied to the host, nothing waits for the device."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from minerva.data.rollout import RolloutWriter
from minerva.envs.engines.torch_tasks import Pendulum
from minerva.loop.collector import ReplayPlan
from minerva.loop.stacking import Stack, joined_state
from minerva.trainers.mpo.trainer import MPOTrainer
from minerva.trainers.ppo.trainer import PPOTrainer
from minerva.trainers.vmpo.trainer import VMPOTrainer

pytestmark = pytest.mark.cuda

ON_POLICY = {"rollout_steps": 16, "num_envs": 8}
SETTINGS: dict[Any, dict[str, Any]] = {
    PPOTrainer: {**ON_POLICY, "minibatch_size": 64},
    VMPOTrainer: ON_POLICY,
    MPOTrainer: {"num_envs": 8, "update_after": 64, "batch_size": 32, "action_samples": 5},
}


@pytest.fixture
def no_synchronisation() -> Iterator[Any]:
    """`with no_synchronisation():` raises wherever the host waits for the device."""

    class Block:
        def __enter__(self) -> None:
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")

        def __exit__(self, *_: object) -> None:
            torch.cuda.set_sync_debug_mode("default")

    yield Block
    torch.cuda.set_sync_debug_mode("default")


def make(kind: Any, **more: Any) -> Any:
    settings = {"engine": "torch", "policy_layer_sizes": (32,), **SETTINGS[kind], **more}
    trainer = kind("Pendulum-v1", 0, "cuda", **settings)
    trainer.start(0)
    return trainer


@pytest.mark.parametrize("kind", [PPOTrainer, VMPOTrainer], ids=["ppo", "vmpo"])
def test_a_rollout_is_collected_without_waiting(kind: Any, no_synchronisation: Any) -> None:
    trainer = make(kind)
    stack = Stack([trainer.agent], "auto", 100)
    writer = RolloutWriter([trainer.rollout], joined_state([trainer.rollout]))
    taken, trainer.envs.take_episodes = trainer.envs.take_episodes, list  # read out after the rollout
    trainer.collector.fill_rollouts(stack, writer, lambda: False)  # graphs are captured
    with no_synchronisation():
        trainer.collector.fill_rollouts(stack, writer, lambda: False)
    assert trainer.rollout.full
    assert all(field.is_cuda for field in trainer.rollout.tensors().values())
    assert taken() == []


def test_a_replay_is_filled_without_waiting(no_synchronisation: Any) -> None:
    trainer = make(MPOTrainer, warmup="policy")
    stack = Stack([trainer.agent], "auto", 100)
    from minerva.data.replay import ReplayWriter

    writer = ReplayWriter([trainer.replay], trainer.replay.state, trainer.envs.device)
    trainer.envs.take_episodes = list

    def plan(step: int) -> ReplayPlan:
        draw = lambda at, shape: stack.draw_actions(shape)  # noqa: E731
        return ReplayPlan(step, step + 80, 10**6, draw, lambda before, after: 0, lambda: False)

    trainer.collector.fill_replay(stack, writer, plan(0))
    with no_synchronisation():
        trainer.collector.fill_replay(stack, writer, plan(80))
    assert len(trainer.replay) == 160
    assert trainer.replay.device.type == "cuda"


@pytest.mark.parametrize("kind", SETTINGS, ids=["ppo", "vmpo", "mpo"])
def test_every_algorithm_trains_on_it(kind: Any, tmp_path: Any) -> None:
    trainer = make(kind)
    result = trainer.train(4_096, out_dir=tmp_path, quiet=True, eval_every=2_048, eval_episodes=2)
    assert result.step == 4_096
    assert trainer.envs.device.type == "cuda"


def test_the_gpu_simulates_what_the_cpu_does() -> None:
    """From the same states with the same actions, across a captured graph and eager code."""
    gpu, cpu = Pendulum("Pendulum-v1", 16, torch.device("cuda")), Pendulum("Pendulum-v1", 16, torch.device("cpu"))
    assert_close(gpu.reset(range(16)).cpu(), cpu.reset(range(16)))
    source = torch.Generator().manual_seed(0)
    for _ in range(199):
        actions = 2 * torch.rand(16, 1, generator=source) - 1
        one, other = gpu.step(actions.cuda()), cpu.step(actions)
        assert_close(one.next_obs.cpu(), other.next_obs, rtol=0, atol=1e-4)
        assert_close(one.rewards.cpu(), other.rewards, rtol=1e-4, atol=1e-4)
        assert_close(one.truncated.cpu(), other.truncated)
    assert gpu.step(torch.zeros(16, 1, device="cuda")).truncated.all()
    assert [episode.length for episode in gpu.take_episodes()] == [200] * 16


def test_environments_step_beside_what_the_caller_computes() -> None:
    """A step that was sent ends while the caller's stream is still busy."""
    envs = Pendulum("Pendulum-v1", 16, torch.device("cuda"))
    envs.reset(range(16))
    actions = torch.zeros(16, 1, device="cuda")
    envs.step(actions)  # the graph is captured
    torch.cuda.synchronize()
    envs.send(actions)
    torch.cuda._sleep(2_000_000_000)  # cycles: a second
    busy, caller = envs._stream, torch.cuda.current_stream()
    assert busy is not None
    busy.synchronize()
    assert not caller.query()
    assert_close(envs.recv().next_obs.cpu(), envs.obs.cpu())  # no episode ended
