"""Published results of other implementations, and which of them a result may be compared with."""

import functools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Annotated, Any, NamedTuple

from minerva.config import AT_LEAST_ONE, check_plain, checked
from minerva.errors import ConfigError

SAME_BUDGET = 0.05
"""Relative difference at which two budgets count as the same: a run ends with its last complete rollout."""


SUITE_MAXIMUM = {"dm_control": 1000.0}
"""Suites whose tasks all have the same maximum return, with that return."""


class Figure(NamedTuple):
    """One published result: mean and standard deviation over seeds on a task at a budget."""

    task: str
    algorithm: str
    budget: int
    mean: float
    std: float | None
    seeds: int | None
    protocol: str
    source: str
    reference: str

    @property
    def text(self) -> str:
        """Return mean ± standard deviation as text."""
        std = f" ± {_format_return(self.std)}" if self.std is not None else ""
        return f"{_format_return(self.mean)}{std}"

    @property
    def seeds_text(self) -> str:
        """Return the number of seeds in words."""
        return {None: "number of seeds unknown", 1: "one run"}.get(self.seeds, f"{self.seeds} seeds")


class Overall(NamedTuple):
    """Interquartile mean over the tasks of a set and all seeds with its 95 % interval, of scores from 0 to 1."""

    algorithm: str
    source: str
    budget: int
    tasks: str
    """Name of the set of tasks."""
    iqm: float
    low: float
    high: float


class Curves(NamedTuple):
    """Where the curves of every seed are published, of what, and under which licence."""

    where: str
    holds: str
    licence: str


class Published(NamedTuple):
    """All that a text like peers.toml holds."""

    figures: tuple[Figure, ...]
    overall: tuple[Overall, ...]
    task_sets: dict[str, tuple[str, ...]]
    """Sets of tasks over which comparisons are published, by name."""
    scale: dict[str, tuple[float, float]]
    """The returns on a task that score 0 and 1 in published comparisons."""
    curves: tuple[Curves, ...]


@functools.cache
def all_published() -> Published:
    """Return everything in peers.toml."""
    return parse_published(files("minerva.lab.analysis").joinpath("peers.toml").read_text())


def figures() -> tuple[Figure, ...]:
    """Return all published figures in peers.toml."""
    return all_published().figures


def parse_published(text: str) -> Published:
    """Return what a text like peers.toml holds. Raise ConfigError if it is none."""
    try:
        table = tomllib.loads(text)
        check_plain(table)
        sources = {source["id"]: source for source in table["source"]}
        blocks = [(block, sources[block["source"]]) for block in table["figures"]]
        return Published(
            tuple(figure for block in blocks for figure in _block(*block)),
            tuple(overall for block in blocks for overall in _overall(*block)),
            {name: tuple(checked(name, task, str) for task in tasks) for name, tasks in table["task_sets"].items()},
            {
                task: (checked(task, zero, float), checked(task, one, float))
                for task, (zero, one) in table["scale"].items()
            },
            tuple(Curves(*(checked(name, curves[name], str) for name in Curves._fields)) for curves in table["curves"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ConfigError(f"The published figures cannot be read ({reason}): write them as peers.toml does.") from None


def _block(block: Mapping[str, Any], source: Mapping[str, Any]) -> Iterator[Figure]:
    """Yield the figures of one algorithm at one budget."""
    about = {name: checked(name, source[name], str) for name in ("protocol", "reference")}
    seeds = checked("seeds", block.get("seeds", source.get("seeds")), Annotated[int | None, AT_LEAST_ONE])
    budget = checked("budget", block["budget"], Annotated[int, AT_LEAST_ONE])
    for task, (mean, *std) in block["values"].items():
        values = checked(task, mean, float), checked(task, std[0], float) if std else None
        name = checked("name", source["name"], str)
        yield Figure(task, checked("algorithm", block["algorithm"], str), budget, *values, seeds, source=name, **about)


def _overall(block: Mapping[str, Any], source: Mapping[str, Any]) -> Iterator[Overall]:
    """Yield the interquartile means of one algorithm at one budget, one for each set of tasks."""
    for tasks, (iqm, low, high) in block.get("iqm", {}).items():
        values = [checked(tasks, value, float) for value in (iqm, low, high)]
        yield Overall(block["algorithm"], source["name"], block["budget"], tasks, *values)


def published(env: str, budget: int) -> list[Figure]:
    """Return all published figures on a task at this budget, best first."""
    task = task_name(env)
    near = [figure for figure in figures() if figure.task == task and same_budget(figure.budget, budget)]
    return sorted(near, key=lambda figure: -figure.mean)


def best_peer(env: str, budget: int, algorithms: Sequence[str]) -> Figure | None:
    """Return the highest published figure at this budget of the first of these algorithms that has one."""
    found = published(env, budget)
    for algorithm in algorithms:
        for figure in found:
            if figure.algorithm == algorithm:
                return figure
    return None


def means_over(envs: Sequence[str], budget: int) -> list[tuple[Figure, float]]:
    """Return (a figure, mean score over the tasks) of each algorithm of each source that has all tasks, best first."""
    tasks = [task_name(env) for env in envs]
    by_task: dict[tuple[str, str], dict[str, Figure]] = {}
    for figure in figures():
        if figure.task in tasks and same_budget(figure.budget, budget):
            by_task.setdefault((figure.source, figure.algorithm), {})[figure.task] = figure
    found = []
    for known in by_task.values():
        if len(known) == len(tasks):
            scores = [score(figure.task, figure.mean) for figure in known.values()]
            found.append((known[tasks[0]], sum(scores) / len(scores)))
    return sorted(found, key=lambda row: -row[1])


def score(env: str, mean: float) -> float:
    """Return a return as a score: 0 for a random policy and 1 for TD3; on dm_control the return over the highest."""
    zero, one = (
        (0.0, SUITE_MAXIMUM["dm_control"]) if env.startswith("dm_control/") else all_published().scale[task_name(env)]
    )
    return (mean - zero) / (one - zero)


def task_sets_in(envs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the sets of tasks of published comparisons that these environments contain, as these environments."""
    by_task = {task_name(env): env for env in envs}
    sets = all_published().task_sets.items()
    return {
        name: tuple(by_task[task] for task in tasks) for name, tasks in sets if all(task in by_task for task in tasks)
    }


def overall_iqm(peer: Figure, tasks: str) -> Overall | None:
    """Return the interquartile mean over a set of tasks, of the algorithm and source of a figure and at its budget."""
    wanted = (peer.algorithm, peer.source, peer.budget, tasks)
    return next((known for known in all_published().overall if known[:4] == wanted), None)


def task_name(env: str) -> str:
    """Return the task without its version: published figures are for v3 and v4 of what is v5 now."""
    return re.sub(r"-v\d+$", "", env)


def same_budget(one: int, other: int) -> bool:
    """Return whether two numbers of steps are the same up to the last rollout."""
    return abs(one - other) <= SAME_BUDGET * max(one, other)


def _format_return(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 20 or value == round(value) else f"{value:,.1f}"
