"""Trained seeds arranged for comparison: entries times tasks, with each cell's statistics and best published figure."""

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from minerva.lab.analysis import statistics
from minerva.lab.analysis.peers import SUITE_MAXIMUM, Figure, best_peer, published
from minerva.lab.analysis.records import Record
from minerva.lab.analysis.statistics import Array, Scores
from minerva.trainers.registry import ALGORITHMS, published_as, title

Over = Literal["steps", "seconds"]
"""What a learning curve is drawn over: environment steps, or seconds since the run was started."""


class Task(NamedTuple):
    """An environment and the budget of environment steps on it."""

    env: str
    budget: int

    @property
    def name(self) -> str:
        """Return the name shown in reports."""
        return f"{self.env.removeprefix('dm_control/')} at {short(self.budget)}"

    @property
    def suite(self) -> str:
        """Return the suite of an id such as dm_control/walker/run; empty for Gymnasium's own tasks."""
        return self.env.partition("/")[0] if "/" in self.env else ""


@dataclass(frozen=True)
class Cell:
    """All seeds of one entry on one task."""

    entry: str
    task: Task
    records: tuple[Record, ...]

    @property
    def published_as(self) -> tuple[str, ...]:
        """Return the algorithm names to look up in published figures, the closest first."""
        return published_as(self.records[0].algo, self.records[0].settings)

    @property
    def scores(self) -> list[float]:
        """Return each seed's mean return."""
        return [record.score for record in self.records]

    @property
    def mean(self) -> float:
        """Return the mean over seeds."""
        return math.fsum(self.scores) / len(self.scores)

    @property
    def std(self) -> float | None:
        """Return the sample standard deviation over seeds (ddof=1); None for one seed."""
        return float(np.std(self.scores, ddof=1)) if len(self.scores) > 1 else None

    @property
    def iqm(self) -> float:
        """Return the interquartile mean over seeds."""
        return statistics.interquartile_mean(self.scores)

    @property
    def mean_text(self) -> str:
        """Return mean ± standard deviation over seeds as text."""
        return number(self.mean) + (f" ± {number(self.std, like=self.mean)}" if self.std is not None else "")

    @property
    def iqm_text(self) -> str:
        """Return the interquartile mean and its interval as text, or "one seed" where there is no interval."""
        low, high = (number(end, like=self.iqm) for end in self.interval)
        return f"{number(self.iqm)} [{low}, {high}]" if len(self.records) > 1 else "one seed"

    @functools.cached_property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % confidence interval of the interquartile mean."""
        return statistics.iqm_interval(self.scores)

    @property
    def peer(self) -> Figure | None:
        """Return the best published figure of the same algorithm at the same budget, or None.

        Fine-tuned runs have none: the budget does not count the steps that their first weights took.
        """
        if self.records[0].origin is not None:
            return None
        return best_peer(self.task.env, self.task.budget, self.published_as)

    @property
    def finished(self) -> bool:
        """Return whether all seeds finished training."""
        return all(record.finished for record in self.records)

    @property
    def verdict(self) -> str:
        """Return `won` or `lost` against the best peer, mean against mean; empty without a peer or if unfinished."""
        if self.peer is None or not self.finished:
            return ""
        return "won" if self.mean >= self.peer.mean else "lost"


class Group(NamedTuple):
    """Tasks of one suite and budget on which the same entries were run, so that scores may be averaged over tasks."""

    entries: tuple[str, ...]
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class Comparison:
    """All cells of a report and the names of their entries."""

    cells: tuple[Cell, ...]

    entries: tuple[str, ...]
    """Names of all entries, algorithms with their presets first."""

    @property
    def tasks(self) -> list[Task]:
        """Return the tasks, in order of environment and budget."""
        return list(dict.fromkeys(cell.task for cell in self.cells))

    def of(self, task: Task) -> list[Cell]:
        """Return the cells of a task."""
        return [cell for cell in self.cells if cell.task == task]

    def groups(self) -> list[Group]:
        """Return the groups with several seeds per cell and at least two entries or two tasks to compare."""
        found: dict[tuple[tuple[str, ...], str, int], list[Task]] = {}
        for task in self.tasks:
            entries = tuple(cell.entry for cell in self.of(task) if len(cell.records) > 1)
            found.setdefault((entries, task.suite, task.budget), []).append(task)
        groups = [Group(entries, tuple(tasks)) for (entries, _, _), tasks in found.items()]
        return [group for group in groups if group.entries and len(group.entries) * len(group.tasks) > 1]

    def normalized(self, entry: str, tasks: Sequence[Task]) -> Scores:
        """Return an entry's normalised scores on each task: 0 for a random policy and 1 for `reference`."""
        scores = []
        for task in tasks:
            (cell,) = [cell for cell in self.of(task) if cell.entry == entry]
            zero, one, _ = self.reference(task)
            scores.append((np.asarray(cell.scores) - zero) / (one - zero))
        return scores

    def reference(self, task: Task) -> tuple[float, float, str]:
        """Return the returns that score 0 and 1 on a task, and a description of the latter."""
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
    """Group records into cells, under names that distinguish the entries."""
    rows: dict[tuple[str, Task], list[Record]] = {}
    names = _names(records)
    for record in records:
        rows.setdefault((names[id(record)], Task(record.env, record.budget)), []).append(record)
    cells = [
        Cell(entry, task, tuple(sorted(found, key=lambda record: record.seed))) for (entry, task), found in rows.items()
    ]
    firsts = {
        names[id(record)]: (bool(record.label), record.origin is not None, _algorithm_order(record.algo))
        for record in reversed(records)
    }
    entries = sorted(firsts, key=lambda entry: (firsts[entry], entry))
    cells.sort(key=lambda cell: (cell.task, entries.index(cell.entry)))
    return Comparison(tuple(cells), tuple(entries))


def _algorithm_order(algo: str) -> int:
    return list(ALGORITHMS).index(algo) if algo in ALGORITHMS else len(ALGORITHMS)


def _names(records: Sequence[Record]) -> dict[int, str]:
    """Return each record's entry name: algorithm, label, origin, and the settings that differ if it is ambiguous."""
    alike: dict[tuple[str, str, str, int, str], list[Record]] = {}
    for record in records:
        alike.setdefault((record.algo, record.label, record.env, record.budget, record.parent), []).append(record)
    names = {}
    titles = [(entry_title(algo, label, budget), env, budget, parent) for algo, label, env, budget, parent in alike]
    for (algo, label, env, budget, parent), found in alike.items():
        base = entry_title(algo, label, budget)
        if titles.count((base, env, budget, parent)) > 1:  # without the budget the labels would be the same
            base = f"{title(algo)} {label}".strip()
        if parent:
            base = f"{base}, {found[0].origin}"
        varied = [] if label else differing([record.settings for record in found])
        for record in found:
            changed = " ".join(f"{name}={format_value(record.settings.get(name))}" for name in varied)
            names[id(record)] = f"{base} {changed}".strip()
    return names


def entry_title(algo: str, label: str, budget: int) -> str:
    """Return algorithm and label, without a suffix of the label that only repeats the budget."""
    without_budget = re.sub(rf"(^|[-_.]){re.escape(short(budget))}$", "", label, flags=re.IGNORECASE)
    return f"{title(algo)} {without_budget}".strip()


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the settings whose values differ."""
    names = dict.fromkeys(name for each in settings for name in each)
    return [name for name in names if len({json.dumps(each.get(name), default=str) for each in settings}) > 1]


# --- curves -------------------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """Interquartile mean over seeds and its confidence interval, at the steps or seconds that all seeds reached."""

    x: Array
    middle: Array
    low: Array
    high: Array


def points(record: Record, over: Over = "steps") -> tuple[Array, Array]:
    """Return a seed's evaluations: the steps or seconds at which they were, where known, and the mean returns."""
    at = [point.step if over == "steps" else point.seconds for point in record.curve]
    known = [(x, point.mean) for x, point in zip(at, record.curve, strict=True) if x is not None]
    x, means = np.array(known, dtype=np.float64).reshape(-1, 2).T
    return x, means


def curve(cell: Cell, over: Over = "steps") -> Curve | None:
    """Return a cell's learning curve, or None if its records have no evaluations."""
    known = [seed for seed in (points(record, over) for record in cell.records) if len(seed[0])]
    if not known:
        return None
    reached = min(x[-1] for x, _ in known)
    longest = max((x for x, _ in known), key=len)
    grid = longest[longest <= reached]
    values = np.stack([np.interp(grid, x, means) for x, means in known])
    return Curve(grid, *statistics.iqm_band(values))


# --- formatting ---------------------------------------------------------------------------------------------------


def short(steps: float, digits: int = 4) -> str:
    """Format a number of steps briefly: 1,000,000 as 1M, 500,000 as 500k."""
    for size, mark in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(steps) >= size:
            return f"{steps / size:.{digits}g}{mark}"
    return f"{steps:.{digits}g}"


def number(value: float, like: float | None = None) -> str:
    """Format a return with at least three digits; `like` is a value whose number of decimals to use."""
    size = abs(value if like is None else like)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{decimals}f}"


def format_value(value: Any) -> str:
    """Format a setting's value briefly."""
    if isinstance(value, (list, tuple)):
        return "×".join(map(str, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
