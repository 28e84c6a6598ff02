"""Compare the training speed of two checkouts of Minerva, on a CPU with one thread:

    python -m benchmarks.spine OLD NEW                   # folders that each hold `minerva/`; some thirty minutes
    python -m benchmarks.spine OLD NEW ppo-cheetah --repeats 11

Both train in turn, in processes of their own: `minerva.train` with the environment's preset on gymnasium's engine, logs
and checkpoints included, evaluations left out. A ratio new / old is taken within each repeat; printed are the median
and the smallest and largest, by the clock and by CPU time. One checkout given twice shows the noise.
"""

import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks.speed.race import Entry, machine, race, ratios, spread

CASES: dict[str, dict[str, Any]] = {
    "ppo-pendulum": {"algo": "ppo", "env": "Pendulum-v1", "period": 4_096, "num_envs": 1, "rollout_steps": 2_048},
    "ppo-cheetah": {"algo": "ppo", "env": "HalfCheetah-v5", "period": 20_480},
    "vmpo-cheetah": {"algo": "vmpo", "env": "HalfCheetah-v5", "period": 20_480},
    "mpo-cheetah": {"algo": "mpo", "env": "HalfCheetah-v5", "period": 1_000, "update_after": 1_000},
}
"""Arguments of `whole_run`: one environment of Pendulum-v1, and the presets of HalfCheetah-v5."""


@dataclass(frozen=True)
class Options:
    """Checkouts, cases, repeats and durations of the comparison."""

    old: tyro.conf.Positional[Path]
    """Checkout to compare with."""
    new: tyro.conf.Positional[Path]
    """Checkout that should be as fast."""
    cases: tyro.conf.Positional[tuple[str, ...]] = tuple(CASES)
    """Cases to measure."""
    repeats: int = 7
    """Timings per checkout."""
    seconds: float = 15.0
    """Shortest duration of a timing, in seconds."""
    floor: float = 0.97
    """Median ratio below which a case counts as slower, and this command fails."""
    out: Path | None = None
    """JSON file for all measurements."""


def compared(case: str, options: Options) -> dict[str, Any]:
    """Return the rates of both checkouts, and the ratios new / old."""
    old, new = (
        Entry(
            name,
            "benchmarks.speed.contestants:whole_run",
            {**CASES[case], "evaluate": False, "checkout": str(path.resolve())},
        )
        for name, path in (("old", options.old), ("new", options.new))
    )
    print(case, flush=True)
    race([old, new], options.repeats, options.seconds, lambda line: print(line, flush=True))
    if old.failure or new.failure:
        raise SystemExit(f"{case} cannot be compared: {old.failure or new.failure}")
    clock, cpu = ratios(new.rates, old.rates), ratios(new.cpu_rates, old.cpu_rates)
    print(f"  steps/s: old {spread(old.rates)}, new {spread(new.rates)}")
    print(f"  new / old: {spread(clock, '.3f')}   by CPU time: {spread(cpu, '.3f')}", flush=True)
    return {"case": case, "clock": clock, "cpu": cpu, "contestants": [asdict(old), asdict(new)]}


def main() -> None:
    options = tyro.cli(Options, prog="python -m benchmarks.spine", description=__doc__)
    about = {"repeats": options.repeats, "seconds": options.seconds, "machine": machine()}
    results = [compared(case, options) for case in options.cases]
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({**about, "results": results}, indent=1) + "\n")
    print("\n| case | new / old, median | by CPU time |\n|---|--:|--:|")
    for result in results:
        print(f"| {result['case']} | {spread(result['clock'], '.3f')} | {spread(result['cpu'], '.3f')} |")
    slower = [result["case"] for result in results if statistics.median(result["clock"]) < options.floor]
    if slower:
        raise SystemExit(f"slower than {options.floor} times the old: {', '.join(slower)}")


if __name__ == "__main__":
    main()
