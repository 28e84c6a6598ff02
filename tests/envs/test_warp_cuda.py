"""The engine warp on a GPU: nothing waits for the device in a rollout, and a step is the CPU's."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from minerva.compute.tree import copy_, mapped
from minerva.data.rollout import RolloutWriter
from minerva.envs.engines.registry import make_engine
from minerva.envs.engines.warp import WarpEngine
from minerva.loop.collector import Collected, LocalCollector
from minerva.loop.stacking import Stack, joined_state
from minerva.trainers.mpo.trainer import MPOTrainer
from minerva.trainers.ppo.trainer import PPOTrainer
from minerva.trainers.sac.trainer import SACTrainer
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


@pytest.mark.parametrize("kind", [MPOTrainer, SACTrainer], ids=["mpo", "sac"])
def test_acting_and_learning_from_a_replay_wait_for_nothing(kind: Any, tmp_path: Any) -> None:
    """From the third report on: graphs are captured in the two before."""

    class Watched(LocalCollector):
        stretches = 0

        def fill_replay(self, *inputs: Any) -> Collected:
            envs: Any = self.envs
            taken, envs.take_episodes = envs.take_episodes, list  # read out after the stretch
            self.stretches += 1
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error" if self.stretches > 2 else "default")
            try:
                collected = super().fill_replay(*inputs)
            finally:
                torch.cuda.set_sync_debug_mode("default")
            envs.take_episodes = taken
            return collected._replace(episodes=taken())

    envs = 256
    collector = Watched(make_engine("HalfCheetah-v5", envs, "warp", device=torch.device("cuda")))
    settings = {**kind.AGENT.CONFIG.at_scale(envs), "critic_layer_sizes": (64, 64)}
    trainer = kind("HalfCheetah-v5", 0, "cuda", engine=collector, **settings)
    trainer.train(4 * 64 * envs, tmp_path, quiet=True, eval_every=10**9, eval_episodes=1)
    assert collector.stretches == 4
    assert trainer.updates(4 * 64 * envs) == 3 * 64 * envs * settings["updates_per_step"]
    assert trainer.replay.starts(8).is_cuda
    assert trainer.replay.state["storage"]["float32"].isfinite().all()


@pytest.mark.parametrize("env", ["HalfCheetah-v5", "Reacher-v5", "Humanoid-v5"])
def test_the_gpu_simulates_what_the_cpu_does(env: str) -> None:
    gpu, cpu = WarpEngine(env, 16, torch.device("cuda")), WarpEngine(env, 16, torch.device("cpu"))
    assert_close(gpu.reset(range(16)).cpu(), cpu.reset(range(16)), rtol=1e-4, atol=1e-4)
    source = torch.Generator().manual_seed(0)
    for _ in range(10):
        actions = 2 * torch.rand(16, cpu.action.size, generator=source) - 1
        # with what is remembered: a world that began anew did so from its own device's random numbers
        copy_(cpu.state["simulation"], mapped(Tensor.cpu, gpu.state["simulation"]))
        one, other = gpu.step(actions.cuda()), cpu.step(actions)
        assert_close(one.next_obs.cpu(), other.next_obs, rtol=1e-3, atol=1e-3)
        assert_close(one.rewards.cpu(), other.rewards, rtol=1e-3, atol=1e-3)
        assert torch.equal(one.terminated.cpu(), other.terminated)
