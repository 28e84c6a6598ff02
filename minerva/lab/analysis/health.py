"""Constraint metrics for a report: by panel, divided by their bounds, downsampled for plots."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from minerva.metrics import Panel
from minerva.trainers.registry import ALGORITHMS, metrics_of

POINTS = 160
"""Largest number of points in a track; each is an average over an equal part of the steps."""


def panels() -> list[Panel]:
    """Return the panels of all algorithms, each once, in the order in which they are declared."""
    found: dict[str, Panel] = {}
    for metric in (metric for algo in ALGORITHMS for metric in metrics_of(algo)):
        for panel in metric.panels:
            found.setdefault(panel.title, panel)
    return list(found.values())


class Track(NamedTuple):
    """One run's line in one panel."""

    panel: str
    metric: str
    steps: list[float]
    values: list[float]


def tracks(algo: str, settings: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> tuple[Track, ...]:
    """Return a run's lines in all panels, from the rows of its metrics.jsonl."""
    declared = [(metric.name, panel) for metric in metrics_of(algo) for panel in metric.panels]
    found = [_track(name, panel, settings, rows) for name, panel in declared]
    return tuple(track for track in found if track is not None)


def _track(metric: str, panel: Panel, settings: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Track | None:
    """Return a metric divided by its bound, or None if the run lacks the bound or a value."""
    scale = settings.get(panel.bound) if panel.bound else 1.0
    if not isinstance(scale, (int, float)) or not scale > 0:
        return None
    steps, values = _downsampled((row["step"], row[metric] / scale) for row in rows if _finite(row.get(metric)))
    name = f"{metric} / {panel.bound}" if panel.bound else metric
    return Track(panel.title, name, steps, values) if steps else None


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _downsampled(points: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    every = list(points)
    size = max(math.ceil(len(every) / POINTS), 1)
    parts = [every[first : first + size] for first in range(0, len(every), size)]
    steps = [part[-1][0] for part in parts]
    values = [math.fsum(value for _, value in part) / len(part) for part in parts]
    return steps, [float(f"{value:.6g}") for value in values]
