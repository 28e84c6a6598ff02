"""Constraint metrics for a report: by panel, divided by their bounds, downsampled for plots."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from minerva.metrics import Panel
from minerva.trainers.registry import ALGORITHMS, metrics_of

POINTS = 160
"""Largest number of points in a track; each is an average over an equal part of the steps."""

OWN_METRIC = "Logged by your code, or the mean of this entry of the environment's info."
DECLARED_ELSEWHERE = re.compile(
    r"step|charts/.*|actors/.*|train/(episode_.*|updates|skipped_updates|replay)|eval/(return|length)_.*"
)
"""Names in metrics.jsonl that are neither an algorithm's nor the user's."""
MOST_OWN = 50
"""Panels of the user's metrics that a report shows at most."""


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


def own_panels(tracks: Iterable[Track]) -> list[Panel]:
    """Return the panels of what users have logged, by name."""
    known = {panel.title for panel in panels()}
    titles = sorted({track.panel for track in tracks} - known)
    return [Panel(title, OWN_METRIC) for title in titles[:MOST_OWN]]


def tracks(algo: str, settings: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> tuple[Track, ...]:
    """Return a run's lines in all panels, from the rows of its metrics.jsonl."""
    declared = [(metric.name, panel) for metric in metrics_of(algo) for panel in metric.panels]
    declared += [(name, Panel(name, OWN_METRIC)) for name in _own_names(algo, rows)]
    found = [_track(name, panel, settings, rows) for name, panel in declared]
    return tuple(track for track in found if track is not None)


def _own_names(algo: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names in the rows that neither the algorithm nor a run declares, of the user's numbers."""
    declared = {metric.name for metric in metrics_of(algo)}
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name not in declared and not DECLARED_ELSEWHERE.fullmatch(name)][:MOST_OWN]


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
