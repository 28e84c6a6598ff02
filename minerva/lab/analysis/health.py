"""What a report shows of an algorithm's constraints: which metrics, over which bounds, thinned for plots."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

POINTS = 160
"""At most so many points of a track are kept: averages over equal parts of the steps."""


@dataclass(frozen=True)
class Panel:
    """One plot: for each algorithm the metric that it shows, and the setting that it is divided by, if any."""

    name: str
    meaning: str
    metrics: Mapping[str, str]
    bounds: Mapping[str, str] = field(default_factory=dict)
    at: float | None = None
    """A line worth drawing."""
    log: bool = False


PANELS = (
    Panel(
        "Mean: KL over its bound",
        "How far an update moves the policy's mean, in units of its bound. At or below 1 the trust region holds.",
        {"mpo": "health/kl_mean", "vmpo": "health/kl_mean", "ppo": "losses/approx_kl"},
        {"ppo": "target_kl"},
        at=1.0,
        log=True,
    ),
    Panel(
        "Spread: KL over its bound",
        "The same for the standard deviation.",
        {"mpo": "health/kl_std", "vmpo": "health/kl_std"},
        at=1.0,
        log=True,
    ),
    Panel(
        "E-step: KL over its bound",
        "How far the weighted samples are from the policy they came from. Near 1 the temperature has settled.",
        {"mpo": "kl/q_pi"},
        at=1.0,
        log=True,
    ),
    Panel(
        "Temperature",
        "Small: the best samples take all the weight. Large: all samples count the same.",
        {"mpo": "eta", "vmpo": "vmpo/temperature_raw"},
        log=True,
    ),
    Panel(
        "Multiplier of the mean's KL",
        "The price of moving the mean. It should move away from where it began.",
        {"mpo": "alpha_mean", "vmpo": "vmpo/alpha_mu"},
        log=True,
    ),
    Panel(
        "Multiplier of the spread's KL",
        "The price of changing the standard deviation. Stuck at a high value, the spread is frozen.",
        {"mpo": "alpha_std", "vmpo": "vmpo/alpha_sigma"},
        log=True,
    ),
    Panel(
        "Effective samples",
        "How many samples the improved policy rests on: of each state's actions (MPO), of the rollout's rows (V-MPO).",
        {"mpo": "health/effective_samples", "vmpo": "vmpo/ess"},
        log=True,
    ),
    Panel(
        "Approximate KL", "How far an update moved PPO's policy. 0.003 to 0.03 is usual.", {"ppo": "losses/approx_kl"}
    ),
    Panel(
        "Clipped share",
        "Share of PPO's ratios outside the clip range. 0.05 to 0.3 is usual.",
        {"ppo": "losses/clipfrac"},
    ),
    Panel(
        "Entropy",
        "Falls slowly while the policy makes up its mind; at once, and exploration has ended.",
        {"ppo": "losses/entropy", "vmpo": "train/entropy", "mpo": "entropy"},
    ),
    Panel(
        "Explained variance",
        "How much of the returns the value network foresees: towards 1.",
        {"ppo": "losses/explained_variance", "vmpo": "value/explained_var"},
        at=1.0,
    ),
)


class Track(NamedTuple):
    """One panel's line of one run."""

    panel: str
    metric: str
    steps: list[float]
    values: list[float]


def tracks(algo: str, settings: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> tuple[Track, ...]:
    """A run's lines, from the rows of its metrics.jsonl."""
    found = []
    for panel in PANELS:
        metric, bound = panel.metrics.get(algo), panel.bounds.get(algo)
        scale = settings.get(bound) if bound else 1.0
        if metric is None or not isinstance(scale, (int, float)) or not scale > 0:
            continue
        steps, values = _thinned((row["step"], row[metric] / scale) for row in rows if _finite(row.get(metric)))
        if steps:
            name = f"{metric} / {bound}" if bound else metric
            found.append(Track(panel.name, name, steps, values))
    return tuple(found)


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _thinned(points: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    kept = list(points)
    size = max(math.ceil(len(kept) / POINTS), 1)
    parts = [kept[first : first + size] for first in range(0, len(kept), size)]
    steps = [part[-1][0] for part in parts]
    values = [math.fsum(value for _, value in part) / len(part) for part in parts]
    return steps, [float(f"{value:.6g}") for value in values]
