"""What is worth a look while a run goes on: its returns, and gauges that tell whether its updates are healthy."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from minerva.metrics import Metric


@dataclass(frozen=True)
class GaugeValue:
    """What a gauge shows."""

    label: str
    value: float
    healthy: bool


@dataclass(frozen=True)
class RunStatus:
    """One run at one moment."""

    label: str
    train: float | None
    """Mean return of the episodes that ended last."""
    evaluations: Sequence[float]
    """Mean return of every evaluation so far."""
    readings: Sequence[GaugeValue]
    warnings: Sequence[str]
    """Names of what is wrong; the messages themselves are printed when it is found."""

    @property
    def evaluated(self) -> float | None:
        """The last evaluation."""
        return self.evaluations[-1] if self.evaluations else None

    @property
    def best(self) -> float | None:
        """The best one."""
        return max(self.evaluations, default=None)


def gauge_values(metrics: Iterable[Metric], reports: Iterable[Mapping[str, float]]) -> list[GaugeValue]:
    """Return the mean over the reports of each metric that has a label; one that no report holds is left out."""
    reports, readings = list(reports), []
    for metric in metrics:
        values = [report.get(metric.name, math.nan) for report in reports]
        finite = [value for value in values if math.isfinite(value)]
        if metric.label and finite:
            mean = math.fsum(finite) / len(finite)
            readings.append(GaugeValue(metric.label, mean, metric.is_healthy(mean)))
    return readings
