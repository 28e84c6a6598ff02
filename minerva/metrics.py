"""Whether the constraints of MPO and V-MPO do their work: metrics watched over time, warnings that name the remedy.

A constrained update can fail silently: losses look fine while a temperature has not settled or a spread is frozen.
Each algorithm states what it watches as rules; this file averages the metrics and speaks up, once per rule.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from minerva.compute.tree import Tree

logger = logging.getLogger("minerva")

WINDOW = 20
"""Reports that are averaged, and that a run has to make before it is judged."""


@dataclass(frozen=True)
class Rule:
    """A sign of ill health: `broken` looks at averaged metrics, `message` may name them as `{kl/mean:.2g}`."""

    name: str
    broken: Callable[[Mapping[str, float]], bool]
    message: str


class Health:
    """Averages the metrics of the last reports and warns, once per rule, when a rule is broken by the averages."""

    def __init__(self, rules: Iterable[Rule], window: int = WINDOW) -> None:
        self.rules = list(rules)
        """Those that were not warned about yet."""
        self.rows: deque[Mapping[str, float]] = deque(maxlen=window)
        self.warned: list[str] = []
        """Names of the rules that were broken so far."""

    def __call__(self, metrics: Mapping[str, float]) -> list[str]:
        """Take in one report; the names of the rules that were warned about because of it."""
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

    def state_dict(self) -> Tree:
        """The last reports, and the rules that nothing was said about yet, by name."""
        return {"rows": [dict(row) for row in self.rows], "unsaid": [rule.name for rule in self.rules]}

    def load_state_dict(self, state: Tree) -> None:
        """Take over a state made by `state_dict` under the same rules."""
        rows = [{str(name): float(value) for name, value in row.items()} for row in state["rows"]]
        self.rows = deque(rows, self.rows.maxlen)
        self.rules = [rule for rule in self.rules if rule.name in state["unsaid"]]

    def _in_all(self) -> set[str]:
        return set.intersection(*(set(row) for row in self.rows))


def _broken(rule: Rule, averages: Mapping[str, float]) -> bool:
    """What the reports do not all tell breaks no rule: those of a run begun before the metric was there."""
    try:
        return rule.broken(averages)
    except KeyError:
        return False
