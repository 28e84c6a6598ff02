"""Trained seeds arranged for comparison: entries times tasks, each cell's statistics, and the peer beside it."""

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minerva.lab.analysis import statistics
from minerva.lab.analysis.peers import Figure, best_peer, published
from minerva.lab.analysis.records import Record
from minerva.lab.analysis.statistics import Array, Scores
from minerva.trainers.registry import ALGORITHMS, published_as, title

SUITE_MAXIMUM = {"dm_control": 1000.0}
"""Suites whose tasks all have the same highest return."""


class Task(NamedTuple):
    """An environment and the steps that were allowed on it."""

    env: str
    budget: int

    @property
    def name(self) -> str:
        """As it is shown."""
        return f"{self.env.removeprefix('dm_control/')} at {short(self.budget)}"

    @property
    def suite(self) -> str:
        """What an id such as dm_control/walker/run begins with; empty for gymnasium's own."""
        return self.env.partition("/")[0] if "/" in self.env else ""


@dataclass(frozen=True)
class Cell:
    """All seeds of one entry on one task."""

    entry: str
    task: Task
    records: tuple[Record, ...]

    @property
    def published_as(self) -> tuple[str, ...]:
        """Whose published figures it is compared with, the closest first."""
        return published_as(self.records[0].algo, self.records[0].settings)

    @property
    def scores(self) -> list[float]:
        """Each seed's mean return."""
        return [record.score for record in self.records]

    @property
    def mean(self) -> float:
        """Over seeds."""
        return math.fsum(self.scores) / len(self.scores)

    @property
    def std(self) -> float | None:
        """Over seeds, of the population they are drawn from; None for one seed."""
        return float(np.std(self.scores, ddof=1)) if len(self.scores) > 1 else None

    @property
    def iqm(self) -> float:
        """Interquartile mean over seeds."""
        return statistics.interquartile_mean(self.scores)

    @property
    def mean_text(self) -> str:
        """Mean and spread over seeds, as they are printed."""
        return number(self.mean) + (f" ± {number(self.std, like=self.mean)}" if self.std is not None else "")

    @property
    def iqm_text(self) -> str:
        """Interquartile mean and its interval, as they are printed; one seed has none."""
        low, high = (number(end, like=self.iqm) for end in self.interval)
        return f"{number(self.iqm)} [{low}, {high}]" if len(self.records) > 1 else "one seed"

    @functools.cached_property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the interquartile mean."""
        return statistics.iqm_interval(self.scores)

    @property
    def peer(self) -> Figure | None:
        """The best published figure of the same algorithm at the same budget."""
        return best_peer(self.task.env, self.task.budget, self.published_as)

    @property
    def finished(self) -> bool:
        """Whether all seeds were trained to their end."""
        return all(record.finished for record in self.records)

    @property
    def verdict(self) -> str:
        """`won` or `lost` against the best peer, mean against mean; empty where there is none, or nothing final."""
        if self.peer is None or not self.finished:
            return ""
        return "won" if self.mean >= self.peer.mean else "lost"


class Group(NamedTuple):
    """Tasks of one suite and budget that the same entries were all run on: what may be averaged over tasks."""

    entries: tuple[str, ...]
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class Comparison:
    """All cells."""

    cells: tuple[Cell, ...]

    entries: tuple[str, ...]
    """All names, the algorithms with their presets first."""

    @property
    def tasks(self) -> list[Task]:
        """In order of environment and budget."""
        return list(dict.fromkeys(cell.task for cell in self.cells))

    def of(self, task: Task) -> list[Cell]:
        """A task's cells."""
        return [cell for cell in self.cells if cell.task == task]

    def groups(self) -> list[Group]:
        """Where there is something to compare: several seeds each, of two entries or more, or on two tasks or more."""
        found: dict[tuple[tuple[str, ...], str, int], list[Task]] = {}
        for task in self.tasks:
            entries = tuple(cell.entry for cell in self.of(task) if len(cell.records) > 1)
            found.setdefault((entries, task.suite, task.budget), []).append(task)
        groups = [Group(entries, tuple(tasks)) for (entries, _, _), tasks in found.items()]
        return [group for group in groups if group.entries and len(group.entries) * len(group.tasks) > 1]

    def normalized(self, entry: str, tasks: Sequence[Task]) -> Scores:
        """An entry's scores on each task, 0 for a random policy and 1 for `reference`."""
        scores = []
        for task in tasks:
            (cell,) = [cell for cell in self.of(task) if cell.entry == entry]
            zero, one, _ = self.reference(task)
            scores.append((np.asarray(cell.scores) - zero) / (one - zero))
        return scores

    def reference(self, task: Task) -> tuple[float, float, str]:
        """Which returns count as 0 and 1 on a task, and what the 1 is."""
        if task.suite in SUITE_MAXIMUM:
            return 0.0, SUITE_MAXIMUM[task.suite], "the highest possible return"
        cells = self.of(task)
        chance = [record.random for cell in cells for record in cell.records if record.random is not None]
        lowest = min(point.mean for cell in cells for record in cell.records for point in record.curve[:1] or ())
        zero = math.fsum(chance) / len(chance) if chance else lowest
        peers = published(task.env, task.budget)
        if peers and peers[0].mean > zero:
            return zero, peers[0].mean, f"{peers[0].algorithm} of {peers[0].source}"
        best = max(cells, key=lambda cell: cell.mean)
        return zero, max(best.mean, zero + 1e-9), f"{best.entry}, the best here"


def compare(records: Sequence[Record]) -> Comparison:
    """Records as cells, under names that tell entries apart."""
    rows: dict[tuple[str, Task], list[Record]] = {}
    names = _names(records)
    for record in records:
        rows.setdefault((names[id(record)], Task(record.env, record.budget)), []).append(record)
    cells = [
        Cell(entry, task, tuple(sorted(found, key=lambda record: record.seed))) for (entry, task), found in rows.items()
    ]
    firsts = {names[id(record)]: (bool(record.label), _place(record.algo)) for record in reversed(records)}
    entries = sorted(firsts, key=lambda entry: (firsts[entry], entry))
    cells.sort(key=lambda cell: (cell.task, entries.index(cell.entry)))
    return Comparison(tuple(cells), tuple(entries))


def _place(algo: str) -> int:
    return list(ALGORITHMS).index(algo) if algo in ALGORITHMS else len(ALGORITHMS)


def _names(records: Sequence[Record]) -> dict[int, str]:
    """The name of each record's entry: algorithm and label, and where that is not enough the settings that differ."""
    alike: dict[tuple[str, str, str, int], list[Record]] = {}
    for record in records:
        alike.setdefault((record.algo, record.label, record.env, record.budget), []).append(record)
    names = {}
    titles = [(entry_title(algo, label, budget), env, budget) for algo, label, env, budget in alike]
    for (algo, label, env, budget), found in alike.items():
        base = entry_title(algo, label, budget)
        if titles.count((base, env, budget)) > 1:  # the label says more than the budget after all
            base = f"{title(algo)} {label}".strip()
        varied = [] if label else differing([record.settings for record in found])
        for record in found:
            changed = " ".join(f"{name}={shown(record.settings.get(name))}" for name in varied)
            names[id(record)] = f"{base} {changed}".strip()
    return names


def entry_title(algo: str, label: str, budget: int) -> str:
    """Algorithm and label; the end of a label that only repeats the budget is left out."""
    told = re.sub(rf"(^|[-_.]){re.escape(short(budget))}$", "", label, flags=re.IGNORECASE)
    return f"{title(algo)} {told}".strip()


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of settings that are not the same everywhere."""
    names = dict.fromkeys(name for each in settings for name in each)
    return [name for name in names if len({json.dumps(each.get(name), default=str) for each in settings}) > 1]


# --- curves -------------------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """Interquartile mean over seeds and its interval, at the steps that all seeds reached."""

    steps: Array
    middle: Array
    low: Array
    high: Array


def curve(cell: Cell) -> Curve | None:
    """A cell's learning curve; None if its records have none."""
    known = [record.curve for record in cell.records if record.curve]
    if not known:
        return None
    steps = [np.array([point.step for point in points], dtype=np.float64) for points in known]
    reached = min(each[-1] for each in steps)
    longest = max(steps, key=len)
    grid = longest[longest <= reached]
    means = [[point.mean for point in points] for points in known]
    values = np.stack([np.interp(grid, each, mean) for each, mean in zip(steps, means, strict=True)])
    return Curve(grid, *statistics.iqm_band(values))


# --- words --------------------------------------------------------------------------------------------------------


def short(steps: float) -> str:
    """1,000,000 as 1M, 500,000 as 500k."""
    for size, mark in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(steps) >= size:
            return f"{steps / size:.4g}{mark}"
    return f"{steps:.4g}"


def number(value: float, like: float | None = None) -> str:
    """A return as it is printed: three digits at least, and no more decimals than needed, or than `like` has."""
    size = abs(value if like is None else like)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{decimals}f}"


def shown(value: Any) -> str:
    """A setting's value in few letters."""
    if isinstance(value, (list, tuple)):
        return "×".join(map(str, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
