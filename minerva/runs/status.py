"""Status of a running run: its returns, and gauges that show whether its updates are healthy."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from minerva.metrics import Metric


@dataclass(frozen=True)
class GaugeValue:
    """Current value of a metric shown in the terminal, and whether it is in its healthy range."""

    label: str
    value: float
    healthy: bool


@dataclass(frozen=True)
class RunStatus:
    """Status of one run at one moment."""

    label: str
    train: float | None
    """Mean return of the training episodes that ended last."""
    evaluations: Sequence[float]
    """Mean return of every evaluation so far."""
    readings: Sequence[GaugeValue]
    warnings: Sequence[str]
    """Names of the active warnings; each message is printed once, when its warning first occurs."""
    own: Mapping[str, float] = field(default_factory=dict)
    """Last values of what the user's code logs, and of the means of `info`."""

    @property
    def evaluated(self) -> float | None:
        """Return the mean return of the last evaluation, or None."""
        return self.evaluations[-1] if self.evaluations else None

    @property
    def best(self) -> float | None:
        """Return the mean return of the best evaluation, or None."""
        return max(self.evaluations, default=None)


def gauge_values(metrics: Iterable[Metric], reports: Iterable[Mapping[str, float]]) -> list[GaugeValue]:
    """Return the mean over the reports of each labelled metric; metrics that no report contains are left out."""
    reports, readings = list(reports), []
    for metric in metrics:
        values = [report.get(metric.name, math.nan) for report in reports]
        finite = [value for value in values if math.isfinite(value)]
        if metric.label and finite:
            mean = math.fsum(finite) / len(finite)
            readings.append(GaugeValue(metric.label, mean, metric.is_healthy(mean)))
    return readings
