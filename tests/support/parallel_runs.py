"""Whole runs, in as many processes as there are: each algorithm once undisturbed and once stopped on its way.

As a program, `torchrun --nproc-per-node 2 parallel_runs.py FOLDER`; what was stopped goes on at once.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from minerva import MPOTrainer, PPOTrainer, VMPOTrainer
from minerva.compute.ranks import Ranks, init_from_torchrun

SEED = 3
TRAINERS: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "ppo": (PPOTrainer, 192, {"num_envs": 4, "rollout_steps": 16, "minibatch_size": 16, "update_epochs": 2}),
    "vmpo": (VMPOTrainer, 192, {"num_envs": 4, "rollout_steps": 16, "value_layer_sizes": (8,)}),
    "mpo": (MPOTrainer, 60, {"num_envs": 2, "batch_size": 16, "update_after": 20, "replay_size": 40}),
}


def train(algo: str, folder: Path, ranks: Ranks, stop_at: int | None = None) -> Any:
    """Train, or go on with, a small run."""
    kind, total_steps, settings = TRAINERS[algo]
    sizes = {"policy_layer_sizes": (8,)} | ({} if algo == "vmpo" else {"critic_layer_sizes": (8,)})
    made_of = {"seed": SEED, "engine": "gymnasium", "ranks": ranks, **sizes, **settings}
    trainer = kind("Pendulum-v1", **made_of)
    stop = [] if stop_at is None else [lambda step, metrics, trainer: step >= stop_at]
    how = {"eval_episodes": 1, "eval_every": 20, "quiet": True, "callbacks": stop}
    return trainer.train(total_steps, out_dir=folder, **how)


def main(folder: Path) -> None:
    ranks = init_from_torchrun("cpu")
    for algo in TRAINERS:
        train(algo, folder / algo / "whole", ranks)
        stopped = train(algo, folder / algo / "parts", ranks, stop_at=40)
        assert not stopped.finished, "it was not stopped on its way"
        if ranks.rank == 0:
            shutil.copytree(stopped.folder, folder / algo / "stopped")
        assert train(algo, folder / algo / "parts", ranks).finished
    ranks.shutdown()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
