"""Train with the presets, evaluate the last checkpoint, keep the raw data: what the results pages are made of.

    python benchmarks/learning.py ppo HalfCheetah-v5 --seeds 0 1 2

trains each seed in turn (skipping those whose file is there already), evaluates 100 episodes and writes one file per
seed to benchmarks/results/<algo>/. `--table` prints the summary of the files that are there.
"""

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro

import minerva
from minerva.runs.folder import provenance

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Options:
    """Which results to make or show."""

    algo: tyro.conf.Positional[str]
    """Algorithm."""
    env: tyro.conf.Positional[str] = ""
    """Environment id."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds; published ones are 0 to n-1."""
    episodes: int = 100
    """Evaluation episodes of the last checkpoint."""
    total_steps: int | None = None
    """Budget; None: the preset's."""
    device: str = "cpu"
    """Where the learner runs."""
    out: Path = RESULTS
    """Where the files go."""
    table: bool = False
    """Only print the table of what is there."""


def measure(options: Options, seed: int) -> None:
    """One seed: train, evaluate, write."""
    name = options.env.replace("dm_control/", "").replace("/", "-")
    file = options.out / options.algo / f"{name}_seed{seed}.json"
    if file.exists():
        return
    torch.set_num_threads(1)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run = minerva.train(
            options.algo,
            options.env,
            seed=seed,
            total_steps=options.total_steps,
            device=options.device,
            run_dir=Path(folder) / "run",
            settings={"quiet": True},
        )
        seconds = time.monotonic() - started
        last = minerva.evaluate(run.folder, which="last", episodes=options.episodes)
        curve = [json.loads(line) for line in (run.folder / "eval" / "evaluations.jsonl").read_text().splitlines()]
    result = {
        "algo": options.algo,
        "env": options.env,
        "seed": seed,
        "steps": run.step,
        "train_seconds": round(seconds),
        "random": run.random,
        "before": run.before,
        "returns": last.returns,
        "lengths": last.lengths,
        "curve": curve,
        **provenance(),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result) + "\n")
    print(
        f"{options.algo} {options.env} seed {seed}: {last.mean:,.0f} after {run.step:,} steps, {seconds:.0f} s",
        flush=True,
    )


def table(folder: Path) -> str:
    """Markdown: every seed's mean return, and mean and standard deviation over seeds."""
    results: dict[str, dict[int, float]] = {}
    for file in sorted(folder.glob("*_seed*.json")):
        result = json.loads(file.read_text())
        key = f"{result['env']} at {result['steps']:,}"
        results.setdefault(key, {})[result["seed"]] = float(np.mean(result["returns"]))
    lines = ["| task and steps | mean ± std over seeds | each seed, from 0 |", "|---|---|---|"]
    for task, by_seed in results.items():
        means = [by_seed[seed] for seed in sorted(by_seed)]
        spread = float(np.std(means, ddof=1)) if len(means) > 1 else 0.0
        each = ", ".join(f"{mean:,.0f}" for mean in means)
        lines.append(f"| {task} | {np.mean(means):,.0f} ± {spread:,.0f} | {each} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, or show."""
    options = tyro.cli(Options, description=__doc__)
    if not options.table:
        for seed in options.seeds:
            measure(options, seed)
    print(table(options.out / options.algo))


if __name__ == "__main__":
    main()
