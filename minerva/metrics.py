"""Declarations of an algorithm's metrics: name, meaning, where each is shown, its healthy range, and the remedy.

Every algorithm lists its metrics in `trainers/<algo>/metrics.py`. TensorBoard's layout, the report's panels, the gauges
in the terminal, the mean over ranks and the warnings all read that list.

A constrained update can fail silently: losses look fine while a temperature has not settled or a standard deviation is
frozen. `Health` averages the metrics of a run and warns, once per rule, with the setting to change.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

logger = logging.getLogger("minerva")

WINDOW = 20
"""Number of reports that are averaged; a run with fewer is not checked."""

# --- declarations -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """A plot of the report. Metrics of several algorithms whose panels have the same title share one plot."""

    title: str
    meaning: str
    at: float | None = None
    """Level at which a horizontal line is drawn."""
    log: bool = False
    bound: str | None = None
    """Setting that the metric is divided by; runs without it have no curve."""


@dataclass(frozen=True)
class Rule:
    """A health check: `broken` reads averaged metrics, `message` may quote them as `{<name>:.2g}`."""

    name: str
    broken: Callable[[Mapping[str, float]], bool]
    message: str


@dataclass(frozen=True)
class Metric:
    """The declaration of one metric of an update."""

    name: str
    """Its key in metrics.jsonl."""
    meaning: str
    label: str = ""
    """Its name in the terminal; empty: it is not shown there."""
    chart: str = ""
    """Title of its chart in TensorBoard, among those of the update's health; metrics may share one."""
    loss_chart: str = ""
    """Title of its chart in TensorBoard, among the losses."""
    panels: tuple[Panel, ...] = ()
    """The report's plots of it."""
    healthy: tuple[float, float] = (-math.inf, math.inf)
    """Range in which its average should lie."""
    warning: str = ""
    """Two or three words on what is wrong outside that range; empty: no warning."""
    advice: str = ""
    """The full warning, with the setting to change. It may quote metrics as `{<name>:.2g}`."""
    reduce: Literal["mean", "min", "max"] = "mean"
    """How the values of data-parallel ranks are reduced to one."""
    optional: bool = False
    """Whether only some settings produce it."""

    def is_healthy(self, value: float) -> bool:
        """Return whether an average lies within the healthy range."""
        return self.healthy[0] <= value <= self.healthy[1]


def range_rules(metrics: Iterable[Metric]) -> list[Rule]:
    """Return a rule for each metric that has a warning: its average must stay within the healthy range."""
    return [_range_rule(metric) for metric in metrics if metric.warning]


def _range_rule(metric: Metric) -> Rule:
    return Rule(metric.warning, lambda averages: not metric.is_healthy(averages[metric.name]), metric.advice)


# --- shared by several algorithms ---------------------------------------------------------------------------------

LEARNING_RATE = Metric("charts/learning_rate", "Learning rate of the policy in this update.", chart="learning rate")
DISCOUNT = Metric("charts/discount", "Discount, where it follows from the length of episodes.", optional=True)
PACE = Metric(
    "charts/pace",
    "Part of a step that the policy makes: below 1 where advantages are far smaller than usual.",
    optional=True,
)

MEAN_KL = Panel(
    "Mean: KL over its bound",
    "How far an update moves the policy's mean, in units of its bound. At or below 1 the trust region holds.",
    at=1.0,
    log=True,
)
STD_KL = Panel(
    "Standard deviation: KL over its bound",
    "How far an update moves the policy's standard deviation, in units of its bound.",
    at=1.0,
    log=True,
)
TEMPERATURE = Panel(
    "Temperature", "Small: the best samples take all the weight. Large: all samples count the same.", log=True
)
MEAN_MULTIPLIER = Panel(
    "Multiplier of the mean's KL",
    "The penalty on moving the mean. It should move away from its initial value.",
    log=True,
)
STD_MULTIPLIER = Panel(
    "Multiplier of the standard deviation's KL",
    "The penalty on changing the standard deviation. Stuck at a high value, it freezes the standard deviation.",
    log=True,
)
CHOICE_KL = Panel(
    "Discrete actions: KL over its bound",
    "How far an update moves the probabilities of discrete actions, in units of its bound.",
    at=1.0,
    log=True,
)
CHOICE_MULTIPLIER = Panel(
    "Multiplier of the discrete actions' KL", "The penalty on changing the probabilities of discrete actions.", log=True
)
EFFECTIVE_SAMPLES = Panel(
    "Effective samples",
    "How many samples the improved policy rests on: of each state's actions, or of the rollout's rows.",
    log=True,
)
ENTROPY = Panel("Entropy", "Should fall slowly as the policy becomes certain; a sudden drop ends exploration.")
EXPLAINED_VARIANCE = Panel(
    "Explained variance", "How much of the returns' variance the value network predicts: should approach 1.", at=1.0
)

# --- health checks ------------------------------------------------------------------------------------------------


class Health:
    """Averages the metrics of the last reports and warns, once per rule, when a rule is broken by the averages."""

    def __init__(self, rules: Iterable[Rule], window: int = WINDOW) -> None:
        self.rules = list(rules)
        """Rules that have not been broken yet."""
        self.rows: deque[Mapping[str, float]] = deque(maxlen=window)
        self.warned: list[str] = []
        """Names of the rules that have been broken so far."""

    def __call__(self, metrics: Mapping[str, float]) -> list[str]:
        """Add one report, log a warning for each rule that it breaks for the first time, and return their names."""
        self.rows.append(metrics)
        if len(self.rows) < (self.rows.maxlen or 1):
            return []
        averages = {name: math.fsum(row[name] for row in self.rows) / len(self.rows) for name in self._in_all()}
        broken = [rule for rule in self.rules if _broken(rule, averages)]
        for rule in broken:
            logger.warning(rule.message.format_map(averages))
        self.rules = [rule for rule in self.rules if rule not in broken]
        names = [rule.name for rule in broken]
        self.warned += names
        return names

    def state_dict(self) -> dict[str, Any]:
        """Return the last reports, and the names of the rules that have not been broken yet."""
        return {"rows": [dict(row) for row in self.rows], "unsaid": [rule.name for rule in self.rules]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state made by `state_dict` with the same rules."""
        rows = [{str(name): float(value) for name, value in row.items()} for row in state["rows"]]
        self.rows = deque(rows, self.rows.maxlen)
        self.rules = [rule for rule in self.rules if rule.name in state["unsaid"]]

    def _in_all(self) -> set[str]:
        return set.intersection(*(set(row) for row in self.rows))


def _broken(rule: Rule, averages: Mapping[str, float]) -> bool:
    """Return whether the rule is broken; not if a metric is missing, as in reports from before it existed."""
    try:
        return rule.broken(averages)
    except KeyError:
        return False
