"""dm_control through a camera: what a step is, that a snapshot holds it, and PPO, MPO and SAC that learn from it,
PPO's run resumed bit for bit.

MuJoCo reads MUJOCO_GL when it is imported, so all of it runs in a process of its own.
"""

import os
import subprocess
import sys
from pathlib import Path

import needs
import pytest

PROGRAM = """
import warnings
from pathlib import Path

import numpy as np
import torch

from minerva.compute.tree import leaves
from minerva.envs.ids import Task, factory
from minerva.envs.snapshot import Snapshots
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.folder import find_checkpoint
from minerva.trainers.registry import trainer_class

ENV = "dm_control/cheetah/run/pixels"
seen, task = factory(ENV)(), factory("dm_control/cheetah/run")()
assert seen.observation_space.shape == (9, 84, 84) and seen.observation_space.frames == 3
with warnings.catch_warnings():
    warnings.simplefilter("error")  # gymnasium's checker, of a reset that takes no seed
    first, _ = seen.reset(seed=3)
task.reset(seed=3)
assert first.dtype == np.uint8 and first.std() > 10, "something is seen"
assert (first[:3] == first[6:]).all(), "the first picture is repeated"
draw, before = np.random.default_rng(0), first
for _ in range(3):
    action = draw.uniform(-1, 1, 6)
    shown, reward, terminated, truncated, _ = seen.step(action)
    assert reward == sum(task.step(action)[1] for _ in range(2)) and not terminated and not truncated
    picture = task.unwrapped.physics.render(84, 84, camera_id=0)
    np.testing.assert_array_equal(shown[6:], np.moveaxis(picture, 2, 0))
    np.testing.assert_array_equal(shown[:6], before[3:])
    before = shown

other = Snapshots(factory(ENV)())
other.env.reset(seed=9)
keeper = Snapshots(seen)
other.restore(keeper.take())
for _ in range(3):
    action = draw.uniform(-1, 1, 6)
    (one, pay, *_), (two, same, *_) = seen.step(action), other.env.step(action)
    assert pay == same
    np.testing.assert_array_equal(one, two)
for env in (seen, task, other.env):
    env.close()

LAYERS = {"policy_layer_sizes": (8,), "critic_layer_sizes": (8,), "num_envs": 1}
REPLAY = {**LAYERS, "replay_size": 8, "batch_size": 2, "update_after": 6, "updates_per_step": 0.25}
SMALL = {
    "ppo": {**LAYERS, "rollout_steps": 6, "minibatch_size": 6, "update_epochs": 1},
    "mpo": {**REPLAY, "action_samples": 4},
    "sac": REPLAY,
}
short = Task("dm_control/cheetah/run/pixels", {"task_kwargs": {"time_limit": 0.06}})  # six steps of control


def trained(algo, folder, *callbacks):
    trainer = trainer_class(algo)(short, 0, **SMALL[algo])
    if algo != "ppo":
        assert trainer.replay.frames.size == 3 * 84 * 84, "each picture is stored once"
    how = {"eval_every": 10**6, "eval_episodes": 1, "quiet": True, "compile": "off", "callbacks": callbacks}
    return trainer.train(12, folder, **how)


for algo in SMALL:
    result = trained(algo, algo)
    assert result.finished and np.isfinite(result.after)
assert not trained("ppo", "parts", lambda step, metrics, trainer: True).finished
assert trained("ppo", "parts").finished
whole, parts = (load_checkpoint(find_checkpoint(Path(run), "last")).state["trainer"] for run in ("ppo", "parts"))
assert not whole["envs"]["unavailable_reason"], "a rehearsal, in a process that cannot draw, found the resume exact"
for one, two in zip(leaves(whole["agent"]), leaves(parts["agent"]), strict=True):
    assert torch.equal(one, two)
print("learned")
"""


@pytest.mark.slow
@needs.offscreen_rendering
def test_a_step_is_two_of_the_task_and_three_algorithms_learn_from_its_pictures(tmp_path: Path) -> None:
    environment = {**os.environ, "MUJOCO_GL": "osmesa"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "learned" in done.stdout
    assert "Exception ignored" not in done.stderr
