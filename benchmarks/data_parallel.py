"""Time updates of several data-parallel ranks, compiled and eager.

`torchrun --standalone --nproc-per-node 2 -m benchmarks.data_parallel [--device cuda]` prints a table of milliseconds:
median and range over repeats that take turns. With one process it is what that needs for the whole batch.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.speed.race import spread
from minerva.compute.ranks import Ranks, init_from_torchrun
from minerva.loop.stacking import Stack
from minerva.trainers.registry import agent_class, config_class

OBS, ACTIONS = 17, 6
"""Dimensions of HalfCheetah."""
SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"num_envs": 8, "rollout_steps": 256, "minibatch_size": 256, "update_epochs": 4},
    "vmpo": {"num_envs": 8, "rollout_steps": 256},
    "mpo": {"num_envs": 8, "batch_size": 256},
}
UPDATES = {"ppo": 5, "vmpo": 20, "mpo": 20}
MANY = 1_000_000
"""Enough that compiling pays."""


def rollout(config: Any, device: torch.device) -> dict[str, Tensor]:
    """Return random rollout data in which no episode ends."""
    steps = (config.rollout_steps, config.num_envs)
    rows = {"obs": OBS, "next_obs": OBS, "actions_raw": ACTIONS}
    zeros = {name: torch.zeros(steps, device=device) for name in ("terminated", "ended")}
    drawn = {name: torch.randn((*steps, width), device=device) for name, width in rows.items()}
    return {**drawn, "rewards": torch.randn(steps, device=device), **zeros}


def batch(config: Any, device: torch.device) -> dict[str, Tensor]:
    """Return random transitions, as if sampled from a replay."""
    widths = {"obs": OBS, "next_obs": OBS, "actions_exec": ACTIONS, "rewards": 1}
    drawn = {name: torch.randn((config.batch_size, width), device=device).tanh() for name, width in widths.items()}
    return {**drawn, "dones": torch.zeros((config.batch_size, 1), device=device)}


def learner(algo: str, device: torch.device, ranks: Ranks, compile: Any) -> Callable[[], None]:
    """Return a function that runs one update on this rank's shard of the data."""
    config = config_class(algo).from_dict(SETTINGS[algo]).share(ranks.count)
    agent = agent_class(algo).from_config(OBS, ACTIONS, config, seed=0, device=device, ranks=ranks)
    stack = Stack([agent], compile, MANY)
    data = agent.prepared(batch(config, device)) if algo == "mpo" else rollout(config, device)
    hyper = stack.hyper()
    return lambda: stack.learn(data, hyper)


def milliseconds(learn: Callable[[], None], updates: int, device: torch.device) -> float:
    """Of one update."""
    _wait(device)
    began = time.perf_counter()
    for _ in range(updates):
        learn()
    _wait(device)
    return 1e3 * (time.perf_counter() - began) / updates


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--algos", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    ranks, device = init_from_torchrun(options.device), torch.device(options.device)
    head = f"{ranks.count} ranks\n| update | eager, ms | compiled, ms | eager / compiled |\n|---|---|---|---|"
    if ranks.rank == 0:
        print(head, flush=True)
    for algo in options.algos:
        modes = {mode: learner(algo, device, ranks, mode) for mode in ("off", "auto")}
        for learn in modes.values():
            milliseconds(learn, 2, device)
        count = UPDATES[algo]
        times = [
            {mode: milliseconds(each, count, device) for mode, each in modes.items()} for _ in range(options.repeats)
        ]
        eager, quick = ([each[mode] for each in times] for mode in modes)
        ratios = [slow / fast for slow, fast in zip(eager, quick, strict=True)]
        row = f"| {algo} | {spread(eager, ',.1f')} | {spread(quick, ',.1f')} | {spread(ratios, '.2f')} |"
        if ranks.rank == 0:
            print(row, flush=True)
    if ranks.count > 1:
        ranks.shutdown()


if __name__ == "__main__":
    main()
