"""Time Minerva on a GPU: MPO's update, and training end to end, with one seed and with many.

    python benchmarks/gpu.py --out benchmarks/results/speed/h200.json

Updates are timed by themselves on batches of 256 states with 20 action samples and networks of three layers of 256.
Training is timed between its reports, from the second on, so neither compiling nor evaluating is in it.
"""

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro

import minerva
from minerva.compute.compiled import matmul_precision
from minerva.compute.modes import MatmulPrecision
from minerva.loop.stacking import Stack
from minerva.runs.folder import provenance
from minerva.trainers.mpo.agent import MPOAgent

OBS, ACT, STATES = 17, 6, 256
"""HalfCheetah's sizes."""

TRAINING: dict[str, dict[str, Any]] = {
    "mpo, 1 seed": {"algo": "mpo", "seeds": 1, "steps": 60_000},
    "mpo, 8 seeds": {"algo": "mpo", "seeds": 8, "steps": 60_000},
    "mpo, 8 seeds, TF32": {"algo": "mpo", "seeds": 8, "steps": 60_000, "matmul": "high"},
    "vmpo, 1 seed, preset fast": {"algo": "vmpo", "seeds": 1, "steps": 500_000, "preset": "fast"},
    "vmpo, 8 seeds": {"algo": "vmpo", "seeds": 8, "steps": 120_000},
    "ppo, 1 seed, preset fast": {"algo": "ppo", "seeds": 1, "steps": 500_000, "preset": "fast"},
    "ppo, 8 seeds": {"algo": "ppo", "seeds": 8, "steps": 100_000},
}
"""HalfCheetah-v5 with its presets, but for what is named. MPO's runs are long enough to be worth compiling."""


@dataclass(frozen=True)
class Options:
    """Cases to time."""

    updates: tuple[int, ...] = (1, 8, 32)
    """Numbers of agents in MPO's update."""
    precisions: tuple[MatmulPrecision, ...] = ("highest", "high")
    """float32 and TF32."""
    training: tuple[str, ...] = tuple(TRAINING)
    """Cases of training, end to end."""
    eager: bool = True
    """Time the eager update as well."""
    out: Path | None = None
    """JSON file for the figures."""


def update_seconds(agents: int, mode: Any, repeats: int) -> float:
    """Return the seconds of one update, noise included, with its batch already on the device."""
    made = [MPOAgent(OBS, ACT, -1.0, 1.0, "cuda", seed=seed, initial_std=0.5) for seed in range(agents)]
    stack = Stack(made, mode, 10**9)
    batch = stack.stacked([_batch(seed) for seed in range(agents)])
    hyper = stack.hyper()
    for _ in range(3):
        stack.learn(batch, hyper)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(repeats):
        stack.learn(batch, hyper)
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / repeats


def _batch(seed: int) -> dict[str, torch.Tensor]:
    source = torch.Generator("cuda").manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(1, STATES, *shape, generator=source, device="cuda")

    obs, ends = normal(OBS), torch.zeros(1, STATES, device="cuda")
    return {
        "obs": obs,
        "actions_executed": normal(ACT).clamp(-1, 1),
        "next_obs": obs + 0.1 * normal(OBS),
        "rewards": normal(),
        "terminated": ends,
        "ended": ends.clone(),
    }


def steps_per_second(algo: str, seeds: int, steps: int, matmul: str = "highest", **changed: Any) -> float:
    """Return the environment steps of all seeds per second of training."""
    times: list[tuple[int, float]] = []
    settings = {
        "quiet": True,
        "eval_every": 10**9,
        "eval_episodes": 1,
        "matmul": matmul,
        "callbacks": [lambda step, *_: times.append((step, time.perf_counter()))],
    }
    with tempfile.TemporaryDirectory() as folder:
        minerva.train_seeds(
            algo,
            "HalfCheetah-v5",
            range(seeds),
            total_steps=steps,
            device="cuda",
            engine="envpool",
            run_dir=folder,
            settings=settings,
            **{"preset": "auto", **changed},
        )
    own = times[::seeds]
    first = next(i for i, (step, _) in enumerate(own) if step > 0.3 * steps)
    (step_0, time_0), (step_1, time_1) = own[first], own[-1]
    return seeds * (step_1 - step_0) / (time_1 - time_0)


def main() -> None:
    """Time everything and print it."""
    options = tyro.cli(Options, description=__doc__)
    figures: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), **provenance()}

    def note(what: str, value: float, unit: str) -> None:
        figures[what] = value
        print(f"{what}: {value:,.3f} {unit}" if value < 10 else f"{what}: {value:,.0f} {unit}", flush=True)
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(figures, indent=1) + "\n")

    if options.eager:
        note("MPO update, eager, 1 agent", 1e3 * update_seconds(1, "off", 50), "ms")
    for name in options.training:
        case = {**TRAINING[name]}
        note(f"training, {name}", steps_per_second(**case), "steps/s")
    for agents in options.updates:
        for precision in options.precisions:
            torch.compiler.reset()
            with matmul_precision(precision):
                seconds = update_seconds(agents, "auto", max(1000 // agents, 100))
            note(f"MPO update, {agents} agents, {precision}", agents / seconds, "agent-updates/s")


if __name__ == "__main__":
    main()
