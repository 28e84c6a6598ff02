"""What each part of V-MPO is worth: its HalfCheetah-v5 preset with one thing changed, 3 seeds at 500,000 steps.

    python benchmarks/ablation.py --device cuda

writes one file per variant and seed to benchmarks/results/ablation/vmpo/ and prints the table.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from learning import RESULTS, Options, measure, table

VARIANTS: dict[str, dict[str, Any]] = {
    "preset": {},
    "temperature-learned": {"temperature": "gradient"},
    "estimator-returns": {"advantage_estimator": "returns"},
    "estimator-dae": {"advantage_estimator": "dae"},
    "all-samples": {"topk_fraction": 1.0},
    "advantages-raw": {"normalize_advantages": False},
    "observations-raw": {"normalize_observations": False},
    "rewards-raw": {"normalize_rewards": False},
    "squashed": {"squash": True},
}


@dataclass(frozen=True)
class Ablation:
    """Which variants to run, and where."""

    variants: tuple[str, ...] = tuple(VARIANTS)
    """Names of variants."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds."""
    total_steps: int = 500_000
    """Budget of each."""
    device: str = "cpu"
    """Where the learner runs."""
    out: Path = RESULTS / "ablation"
    """Where the files go."""


def main() -> None:
    """Run what is missing, then print the table."""
    chosen = tyro.cli(Ablation, description=__doc__)
    for name in chosen.variants:
        measure(
            Options(
                "vmpo",
                "HalfCheetah-v5",
                seeds=chosen.seeds,
                total_steps=chosen.total_steps,
                device=chosen.device,
                label=name,
                changed=VARIANTS[name],
                evaluations=5,
                out=chosen.out,
            )
        )
    print(table(chosen.out / "vmpo"))


if __name__ == "__main__":
    main()
