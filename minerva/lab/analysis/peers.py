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


@functools.cache
def figures() -> tuple[Figure, ...]:
    """Return all published figures in peers.toml."""
    return parse_figures(files("minerva.lab.analysis").joinpath("peers.toml").read_text())


def parse_figures(text: str) -> tuple[Figure, ...]:
    """Return the published figures in a text like peers.toml. Raise ConfigError if it is none."""
    try:
        table = tomllib.loads(text)
        check_plain(table)
        sources = {source["id"]: source for source in table["source"]}
        return tuple(figure for block in table["figures"] for figure in _block(block, sources[block["source"]]))
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


def means_over(envs: Sequence[str], budget: int, algorithms: Sequence[str]) -> list[tuple[str, str, float]]:
    """Return (source, algorithm, mean over the tasks) of each source that published all tasks, best first."""
    found = []
    for source, algorithm in sorted({(figure.source, figure.algorithm) for figure in figures()}):
        if algorithm not in algorithms:
            continue
        by_task = {
            figure.task: figure.mean
            for figure in figures()
            if (figure.source, figure.algorithm) == (source, algorithm) and same_budget(figure.budget, budget)
        }
        values = [by_task.get(task_name(env)) for env in envs]
        known = [value for value in values if value is not None]
        if known and len(known) == len(envs):
            found.append((source, algorithm, sum(known) / len(known)))
    return sorted(found, key=lambda row: -row[2])


def task_name(env: str) -> str:
    """Return the task without its version: published figures are for v3 and v4 of what is v5 now."""
    return re.sub(r"-v\d+$", "", env)


def same_budget(one: int, other: int) -> bool:
    """Return whether two numbers of steps are the same up to the last rollout."""
    return abs(one - other) <= SAME_BUDGET * max(one, other)


def _format_return(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 20 or value == round(value) else f"{value:,.1f}"
