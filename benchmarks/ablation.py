"""What acting with NumPy gives a user who trains on a CPU with one thread, in one command:

    python -m benchmarks.ablation                        # every case, some twenty minutes on a quiet machine
    python -m benchmarks.ablation ppo-cheetah --repeats 9

`compute/numpy_function.py` acts with small networks by calls of NumPy. Whole runs with presets, evaluations included,
go on in turn, with it and without it. A ratio is taken within each repeat; printed are the median and the smallest and
largest, by the clock and by CPU time.
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks.speed.race import Entry, machine, race, ratios, spread

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo-pendulum": ("PPO, Pendulum-v1", {"algo": "ppo", "env": "Pendulum-v1", "period": 5_000}),
    "ppo-cheetah": ("PPO, HalfCheetah-v5", {"algo": "ppo", "env": "HalfCheetah-v5", "period": 50_000}),
    "vmpo-cheetah": ("V-MPO, HalfCheetah-v5", {"algo": "vmpo", "env": "HalfCheetah-v5", "period": 50_000}),
}
"""Title and arguments of `whole_run`. A period is a twentieth of the preset's budget, as by default. MPO's networks are
large enough for PyTorch."""


@dataclass(frozen=True)
class Options:
    """Cases, repeats and durations of the measurement."""

    cases: tyro.conf.Positional[tuple[str, ...]] = tuple(CASES)
    """Cases to measure."""
    repeats: int = 7
    """Timings per contestant."""
    seconds: float = 15.0
    """Shortest duration of a timing, in seconds."""
    out: Path = Path("benchmarks/results/speed/numpy_function.json")
    """JSON file for all measurements."""


def measured(case: str, options: Options) -> dict[str, Any]:
    """Return the rates with NumPy and without it, and their ratios."""
    title, arguments = CASES[case]
    function = "benchmarks.speed.contestants:whole_run"
    whole = Entry("with NumPy", function, arguments)
    other = Entry("without NumPy", function, {**arguments, "numpy_function": False})
    print(title, flush=True)
    race([whole, other], options.repeats, options.seconds, lambda line: print(line, flush=True))
    failures = [entry.failure for entry in (whole, other) if entry.failure]
    if failures:
        raise SystemExit(f"{title} cannot be measured: {failures[0]}")
    found = {"clock": ratios(whole.rates, other.rates), "cpu": ratios(whole.cpu_rates, other.cpu_rates)}
    return {"case": title, "contestants": [asdict(whole), asdict(other)], "ratios": found}


def table(results: Sequence[dict[str, Any]]) -> str:
    """Return the ratios as a Markdown table."""
    lines = ["| run | steps/s | with / without NumPy, by CPU time |", "|---|--:|--:|"]
    for result in results:
        rate = f"{statistics.median(result['contestants'][0]['rates']):,.0f}"
        ratio = result["ratios"]
        cells = [result["case"], rate, f"**{spread(ratio['clock'], '.3f')}**, {spread(ratio['cpu'], '.3f')}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    options = tyro.cli(Options, prog="python -m benchmarks.ablation", description=__doc__)
    from minerva.runs.folder import provenance  # here: the contestants' processes read this file, too

    about = {"repeats": options.repeats, "seconds": options.seconds, "machine": machine(), **provenance()}
    results: list[dict[str, Any]] = []
    for case in options.cases:
        results.append(measured(case, options))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({**about, "results": results}, indent=1) + "\n")
    print(f"\n{table(results)}\n\nwritten: {options.out}")


if __name__ == "__main__":
    main()
