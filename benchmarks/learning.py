"""Train with the presets, evaluate the last checkpoint, keep the raw data: what the results pages are made of.

    python benchmarks/learning.py ppo HalfCheetah-v5 --seeds 0 1 2

trains the seeds (skipping those whose file is there already), evaluates 100 episodes of each and writes one file per
seed to benchmarks/results/<algo>/. On a GPU they are trained together. `--table` prints what is there.
"""

import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

import minerva
from minerva.presets import preset_for
from minerva.runs.folder import provenance
from minerva.runs.run import Result

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
    engine: str = "auto"
    """What steps the environments."""
    preset: str = "auto"
    """Preset; auto is the environment's own."""
    label: str = ""
    """A name for results with other settings than the preset's."""
    changed: dict[str, Any] = field(default_factory=dict)
    """Those settings."""
    evaluations: int = 20
    """Evaluations during training."""
    out: Path = RESULTS
    """Where the files go."""
    table: bool = False
    """Only print the table of what is there."""

    def file(self, seed: int) -> Path:
        """Where a seed's result is kept."""
        task = self.env.replace("dm_control/", "").replace("/", "-")
        return self.out / self.algo / f"{task}{'_' if self.label else ''}{self.label}_seed{seed}.json"


def measure(options: Options) -> None:
    """Train, evaluate and write the seeds that are missing; together on a GPU, one after another elsewhere."""
    torch.set_num_threads(1)
    missing = [seed for seed in options.seeds if not options.file(seed).exists()]
    groups = [missing] if options.device.startswith("cuda") and missing else [[seed] for seed in missing]
    for seeds in groups:
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            results = _trained(options, seeds, Path(folder))
            seconds = time.monotonic() - started
            for seed, result in zip(seeds, results, strict=True):
                _write(options, seed, result, seconds, len(seeds))


def _trained(options: Options, seeds: list[int], folder: Path) -> list[Result]:
    values = preset_for(options.algo, options.env, options.preset).values
    budget = options.total_steps or values.get("total_steps", 1_000_000)
    settings = {"quiet": True, "eval_every": max(budget // options.evaluations, 1)}
    return minerva.train_seeds(
        options.algo,
        options.env,
        seeds,
        total_steps=budget,
        device=options.device,
        engine=options.engine,
        preset=options.preset,
        run_dir=folder,
        settings=settings,
        **options.changed,
    )


def _write(options: Options, seed: int, result: Result, seconds: float, together: int) -> None:
    last = minerva.evaluate(result.folder, which="last", episodes=options.episodes)
    curve = [json.loads(line) for line in (result.folder / "eval" / "evaluations.jsonl").read_text().splitlines()]
    kept = {
        "algo": options.algo,
        "env": options.env,
        "seed": seed,
        "preset": options.preset,
        "label": options.label,
        "changed": options.changed,
        "steps": result.step,
        "train_seconds": round(seconds),
        "seeds_trained_together": together,
        "device": torch.cuda.get_device_name() if options.device.startswith("cuda") else "cpu",
        "engine": minerva.load_policy(result.folder, "last").about["engine"],
        "random": result.random,
        "before": result.before,
        "returns": last.returns,
        "lengths": last.lengths,
        "curve": curve,
        **provenance(),
    }
    file = options.file(seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(kept) + "\n")
    what = f"{options.algo} {options.env} {options.label}".strip()
    print(f"{what} seed {seed}: {last.mean:,.0f} after {result.step:,} steps, {seconds:.0f} s", flush=True)


def table(folder: Path) -> str:
    """Markdown: every seed's mean return, and mean and standard deviation over seeds."""
    results: dict[str, dict[int, float]] = {}
    for file in sorted(folder.glob("*_seed*.json")):
        result = json.loads(file.read_text())
        label = f", {result['label']}" if result.get("label") else ""
        key = f"{result['env']} at {result['steps']:,}{label}"
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
        measure(options)
    print(table(options.out / options.algo))


if __name__ == "__main__":
    main()
