"""The engine warp on a GPU: nothing waits for the device in a rollout, and a step is the CPU's."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from minerva.compute.tree import copy_
from minerva.data.rollout import RolloutWriter
from minerva.envs.engines.warp import WarpEngine
from minerva.loop.stacking import Stack, joined_state
from minerva.trainers.ppo.trainer import PPOTrainer
from minerva.trainers.vmpo.trainer import VMPOTrainer

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("kind", [PPOTrainer, VMPOTrainer], ids=["ppo", "vmpo"])
@pytest.mark.parametrize("env", ["HalfCheetah-v5", "Reacher-v5"])
def test_a_rollout_is_collected_without_waiting(kind: Any, env: str) -> None:
    trainer = kind(env, 0, "cuda", engine="warp", num_envs=64, rollout_steps=8, minibatch_size=64)
    trainer.start(0)
    stack = Stack([trainer.agent], "auto", 100)
    writer = RolloutWriter([trainer.rollout], joined_state([trainer.rollout]))
    taken, trainer.envs.take_episodes = trainer.envs.take_episodes, list  # read out after the rollout
    trainer.collector.fill_rollouts(stack, writer, lambda: False)  # graphs are captured
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        trainer.collector.fill_rollouts(stack, writer, lambda: False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert trainer.rollout.full
    assert all(field.is_cuda for field in trainer.rollout.tensors().values())
    assert trainer.rollout.tensors()["obs"].isfinite().all()
    taken()


@pytest.mark.parametrize("env", ["HalfCheetah-v5", "Reacher-v5", "Humanoid-v5"])
def test_the_gpu_simulates_what_the_cpu_does(env: str) -> None:
    gpu, cpu = WarpEngine(env, 16, torch.device("cuda")), WarpEngine(env, 16, torch.device("cpu"))
    assert_close(gpu.reset(range(16)).cpu(), cpu.reset(range(16)), rtol=1e-4, atol=1e-4)
    source = torch.Generator().manual_seed(0)
    for _ in range(10):
        actions = 2 * torch.rand(16, cpu.action.size, generator=source) - 1
        states = {name: values.cpu() for name, values in gpu.state["simulation"]["data"].items()}
        copy_(cpu.state["simulation"]["data"], states)
        one, other = gpu.step(actions.cuda()), cpu.step(actions)
        assert_close(one.next_obs.cpu(), other.next_obs, rtol=1e-3, atol=1e-3)
        assert_close(one.rewards.cpu(), other.rewards, rtol=1e-3, atol=1e-3)
        assert torch.equal(one.terminated.cpu(), other.terminated)
