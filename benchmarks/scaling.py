"""Environment steps per second with the environments in this process, and with Ray actors that act and step them.

`python benchmarks/scaling.py [--env HalfCheetah-v5] [--actors 1 2]` prints a table. Each row is a run in a process of
its own, timed after its first quarter; PPO collects and learns in turn, MPO's actors collect while it learns.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"num_envs": 8, "rollout_steps": 256, "minibatch_size": 256, "update_epochs": 4},
    "mpo": {"num_envs": 8, "update_after": 1_000, "updates_per_step": 0.02, "batch_size": 256},
}
STEPS = {"ppo": 16_384, "mpo": 12_000}


def measure(algo: str, env: str, actors: int) -> dict[str, float]:
    """Steps per second of a run, between its first report and its last."""
    import torch

    from minerva.cluster.actors import ray_blocks
    from minerva.trainers.registry import config_class, trainer_class

    torch.set_num_threads(1)
    config = config_class(algo).from_dict(SETTINGS[algo])
    engine: Any = ray_blocks(algo, config, env, actors) if actors else "gymnasium"
    trainer = trainer_class(algo)(env, seed=0, engine=engine, **SETTINGS[algo])
    times: list[tuple[int, float]] = []
    stop = [lambda step, metrics, trainer: times.append((step, time.perf_counter()))]
    how = {"quiet": True, "eval_episodes": 1, "eval_every": 10**9, "compile": "off", "callbacks": stop}
    with tempfile.TemporaryDirectory() as folder:
        trainer.train(STEPS[algo], out_dir=Path(folder) / "run", **how)
    (first, began), (last, ended) = times[len(times) // 4], times[-1]
    return {"steps_per_second": (last - first) / (ended - began)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--algos", nargs="+", default=list(SETTINGS))
    parser.add_argument("--actors", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--one", nargs=2, metavar=("ALGO", "ACTORS"), help="measure this in this process")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], options.env, int(options.one[1]))))
        return
    print(
        f"{options.env}: steps per second\n| algorithm | actors | steps/s | of the single process |\n|---|---|---|---|"
    )
    for algo in options.algos:
        alone = 0.0
        for actors in (0, *options.actors):
            command = [sys.executable, __file__, "--env", options.env, "--one", algo, str(actors)]
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            rate = json.loads(text.strip().splitlines()[-1])["steps_per_second"]
            alone = alone or rate
            print(f"| {algo} | {actors or 'none'} | {rate:,.0f} | {rate / alone:.2f} |", flush=True)


if __name__ == "__main__":
    main()
