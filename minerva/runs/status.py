"""What is worth a look while a run goes on: its returns, and gauges that tell whether its updates are healthy."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class MetricGauge:
    """A number of each report: `read` takes it from the metrics, `healthy` are the bounds it should stay within."""

    label: str
    read: Callable[[Metrics], float]
    healthy: tuple[float, float] = (-math.inf, math.inf)


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


def gauge(label: str, metric: str, low: float = -math.inf, high: float = math.inf) -> MetricGauge:
    """A gauge that shows one metric."""
    return MetricGauge(label, lambda metrics: metrics[metric], (low, high))


def read(gauges: Iterable[MetricGauge], reports: Iterable[Metrics]) -> list[GaugeValue]:
    """The gauges' means over the latest reports; what no report tells is left out."""
    reports, readings = list(reports), []
    for one in gauges:
        values = [value for value in (_value(one, report) for report in reports) if math.isfinite(value)]
        if values:
            mean = math.fsum(values) / len(values)
            readings.append(GaugeValue(one.label, mean, one.healthy[0] <= mean <= one.healthy[1]))
    return readings


def _value(one: MetricGauge, report: Metrics) -> float:
    try:
        return one.read(report)
    except KeyError:
        return math.nan
