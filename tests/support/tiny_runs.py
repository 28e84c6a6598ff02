"""Runs small enough for tests, environments and a replay only good for tests, and what a folder looked like before."""

import contextlib
import hashlib
import io
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from probe_envs import UNIT_ACTIONS, StepResult, vector_space

from minerva.cli.main import main
from minerva.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from minerva.runs.metrics import read_rows

STEPS, BATCH, EPISODES = 512, 128, 2
SIZES = {"num_envs": 2, "rollout_steps": 64, "minibatch_size": 64, "update_epochs": 2}
LAYERS: dict[str, Any] = {"policy_layer_sizes": (8,), "critic_layer_sizes": (8,)}
PPO: dict[str, Any] = {**SIZES, **LAYERS}
SETTINGS: dict[str, Any] = {"eval_every": BATCH, "eval_episodes": EPISODES, "quiet": True}

WALL_CLOCK = ("charts/SPS", "charts/time")


class Paced(gym.Env[Any, Any]):
    """Observes noise and pays for small actions, 8 steps an episode.

    A step takes as many seconds as PACE says, and none is made while the file is there that HOLD names.
    """

    action_space = UNIT_ACTIONS
    observation_space = vector_space(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.normal(size=2), {}

    def step(self, action: Any) -> StepResult:
        time.sleep(float(os.environ.get("PACE", "0")))
        while os.path.exists(os.environ.get("HOLD", "")):
            time.sleep(0.01)
        self.steps += 1
        return self.np_random.normal(size=2), -float(np.square(action).sum()), False, self.steps == 8, {}


class Numbers:
    """A replay of which row n holds the number n."""

    steps, written = 20, 0

    def since(self, first: int, end: int) -> dict[str, torch.Tensor]:
        return {"float32": torch.arange(float(first), float(end)).view(-1, 1, 1)}

    def put(self, first: int, rows: dict[str, torch.Tensor]) -> None:
        raise NotImplementedError

    def hold(self, count: int) -> None:
        raise NotImplementedError


class Paying(Paced):
    """Pays the action itself: whoever learns at all earns more than whoever does not."""

    def step(self, action: Any) -> StepResult:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, float(np.clip(action, -1.0, 1.0).sum()), terminated, truncated, info


PACED, PAYING = "tiny_runs:Paced-v0", "tiny_runs:Paying-v0"
gym.register("Paced-v0", entry_point=Paced)
gym.register("Paying-v0", entry_point=Paying)


def flags(**values: Any) -> list[str]:
    """Options as they are typed."""
    words: list[str] = []
    for name, value in values.items():
        parts = value if isinstance(value, (tuple, list)) else [value]
        words += [f"--{name.replace('_', '-')}", *map(str, parts)]
    return words


def train_command(run_dir: Path, **changed: Any) -> list[str]:
    """`minerva train ppo` on Pendulum-v1 for four updates, into this very folder."""
    options = {"env": "Pendulum-v1", "total_steps": STEPS, "eval_every": BATCH, "eval_episodes": EPISODES, **PPO}
    return ["train", "ppo", *flags(run_dir=run_dir, **{**options, **changed})]


class FinishedRun(NamedTuple):
    """A run's folder and what the command printed."""

    folder: Path
    output: str


def make_finished_run(folder: Path) -> FinishedRun:
    """The fixture `finished_run`."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main(train_command(folder)) == 0
    return FinishedRun(folder, output.getvalue())


def as_if_on_a_gpu(folder: Path, config: bool = True, checkpoint: bool = True) -> None:
    """Let a PPO run's config, its last checkpoint, or both look as if a GPU had made them."""
    if config:
        file = folder / "config.yaml"
        file.write_text(
            file.read_text().replace("device: cpu", "device: cuda").replace("gpu: none", "gpu: NVIDIA H200")
        )
    if checkpoint:
        last = folder / "checkpoints" / "ppo_last.safetensors"
        about, state = load_checkpoint(last)
        state["trainer"]["agent"]["generator"] = torch.arange(16, dtype=torch.uint8)  # as long as a CUDA generator's
        made = {"device": "cuda", "versions": {**about["versions"], "gpu": "NVIDIA H200"}}
        save_checkpoint(last, Checkpoint(about | made, state))


def snapshot(folder: Path) -> dict[str, tuple[int, str]]:
    """Time of change and contents of every file and folder."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in folder.rglob("*")
    }


def learned(folder: Path) -> Any:
    """Weights, moments, normalisers and generators at a run's end."""
    return load_checkpoint(folder / "checkpoints" / "ppo_last.safetensors").state["trainer"]


def rows_without_clock(folder: Path) -> list[dict[str, Any]]:
    """metrics.jsonl but for what depends on the clock."""
    rows = read_rows(folder / "metrics.jsonl")
    return [{name: value for name, value in row.items() if name not in WALL_CLOCK} for row in rows]


def training_steps(folder: Path) -> list[int]:
    """The steps of metrics.jsonl's training rows, in the order of the file."""
    return [row["step"] for row in read_rows(folder / "metrics.jsonl") if "charts/SPS" in row]


def evaluation_steps(folder: Path) -> list[int]:
    """The steps of metrics.jsonl's evaluation rows, in the order of the file."""
    return [row["step"] for row in read_rows(folder / "metrics.jsonl") if "eval/return_mean" in row]


def same(one: Any, other: Any) -> bool:
    """Whether two trees of tensors and plain values are equal to the last bit, types included."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and _bits(one) == _bits(other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
