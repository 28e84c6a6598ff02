"""Small runs whose environments are stepped in blocks, in this process or by Ray actors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from source_settings import source

from minerva.loop.remote import RemoteCollector
from minerva.runs.checkpoint import load_checkpoint
from minerva.trainers.registry import config_class, trainer_class

ENV = "Pendulum-v1"
BLOCKS = 2
SIZES = {"num_envs": 4, "policy_layer_sizes": [8]}
SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {
        **source("ppo"),
        **SIZES,
        "critic_layer_sizes": [8],
        "rollout_steps": 32,
        "minibatch_size": 32,
        "update_epochs": 2,
    },
    "vmpo": {**source("vmpo"), **SIZES, "value_layer_sizes": [8], "rollout_steps": 32, "old_policy": "kl"},
    "mpo": {
        **source("mpo"),
        **SIZES,
        "critic_layer_sizes": [8],
        "batch_size": 16,
        "update_after": 100,
        "updates_per_step": 0.1,
        "use_retrace": True,
        "retrace_steps": 3,
    },
}
STEPS = {"ppo": 512, "vmpo": 512, "mpo": 1200}

Stop = Callable[[int, Any, Any], bool]
InBlocks = Callable[[str], tuple[Any, Path]]
"""By an algorithm's name, the trainer and the folder of its run with blocks in this process that nothing disturbs."""


def config_of(algo: str) -> Any:
    return config_class(algo).from_dict(SETTINGS[algo])


def train(algo: str, blocks: RemoteCollector | str, folder: Path, *callbacks: Stop, env: str = ENV) -> Any:
    """The trainer after its run."""
    trainer = trainer_class(algo)(env, seed=3, engine=blocks, **SETTINGS[algo])
    how = {"eval_episodes": 1, "eval_every": 300, "quiet": True, "compile": "off", "callbacks": callbacks}
    trainer.train(STEPS[algo], out_dir=folder, **how)
    return trainer


def learned(folder: Path) -> dict[str, Any]:
    """All that the agent of a run owns."""
    (path,) = folder.glob("checkpoints/*_last.safetensors")
    agent: dict[str, Any] = load_checkpoint(path).state["trainer"]["agent"]
    return agent


def same(first: Any, second: Any) -> bool:
    """Whether two trees hold the same bits."""
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(part, second[name]) for name, part in first.items())
    return bool(first == second)
