"""Time environment steps per second with the environments in this process, and with Ray actors that collect.

`python -m benchmarks.scaling [--env HalfCheetah-v5] [--actors 1 2] [--repeats 3]` prints a table: medians and ranges
over the repeats, which take turns. Each is a run in a process of its own, timed after its first quarter; PPO and V-MPO
collect and learn in turn, MPO's actors collect while it learns.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.speed.race import spread

SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"num_envs": 8, "rollout_steps": 256, "minibatch_size": 256, "update_epochs": 4},
    "mpo": {"num_envs": 8, "update_after": 1_000, "updates_per_step": 0.02, "batch_size": 256},
    "vmpo": {"num_envs": 8, "rollout_steps": 256},
}
STEPS = {"ppo": 24_576, "mpo": 6_000, "vmpo": 24_576}


def measure(algo: str, env: str, actors: int) -> float:
    """Return the steps per second of a run, from the end of its first quarter to its last report."""
    import torch

    from minerva.lab.cluster.actors import ray_collector
    from minerva.trainers.registry import config_class, trainer_class

    torch.set_num_threads(1)
    config = config_class(algo).from_dict(SETTINGS[algo])
    engine: Any = ray_collector(algo, config, env, actors) if actors else "gymnasium"
    trainer = trainer_class(algo)(env, seed=0, engine=engine, **SETTINGS[algo])
    times: list[tuple[int, float]] = []
    stop = [lambda step, metrics, trainer: times.append((step, time.perf_counter()))]
    how = {"quiet": True, "eval_episodes": 1, "eval_every": 10**9, "compile": "off", "callbacks": stop}
    with tempfile.TemporaryDirectory() as folder:
        trainer.train(STEPS[algo], out_dir=Path(folder) / "run", **how)
    (first, began), (last, ended) = times[len(times) // 4], times[-1]
    return (last - first) / (ended - began)


def measured_apart(algo: str, env: str, actors: int) -> float:
    """Return the steps per second of a run, measured in a new process."""
    command = [sys.executable, "-m", "benchmarks.scaling", "--env", env, "--one", algo, str(actors)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rate = float(json.loads(text.strip().splitlines()[-1]))
    print(f"{algo}, {actors} actors: {rate:,.0f} steps/s", file=sys.stderr, flush=True)
    return rate


def core_hours(rate: float, actors: int) -> float:
    """Return core hours per million steps: learner and actors use one core each, as far as the machine has them."""
    return min(1 + actors, os.cpu_count() or 1) * 1e6 / rate / 3600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--algos", nargs="+", default=["ppo", "mpo"], choices=list(SETTINGS))
    parser.add_argument("--actors", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("ALGO", "ACTORS"), help="measure this in this process")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], options.env, int(options.one[1]))))
        return
    print(f"{options.env}, {os.cpu_count()} cores: median [range] of {options.repeats}")
    print(
        "| algorithm | actors | steps/s | of the single process | core-hours per million steps |\n|---|---|---|---|---|"
    )
    for algo in options.algos:
        kinds = (0, *options.actors)
        rounds = [
            {actors: measured_apart(algo, options.env, actors) for actors in kinds} for _ in range(options.repeats)
        ]
        for actors in kinds:
            rates = [each[actors] for each in rounds]
            gains, hours = [each[actors] / each[0] for each in rounds], [core_hours(rate, actors) for rate in rates]
            row = (algo, actors or "none", spread(rates), spread(gains, ".2f"), spread(hours, ".3f"))
            print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
