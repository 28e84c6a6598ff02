"""Tables of the results page over many tasks: all entries side by side, and what they reach over a set of tasks."""

from collections.abc import Mapping, Sequence

import numpy as np

from minerva.lab.analysis import statistics
from minerva.lab.analysis.comparison import Cell, Task, compare, number
from minerva.lab.analysis.peers import SUITE_MAXIMUM, means_over, overall_iqm, published, score, task_sets_in

LARGE = 20
"""A grid with more rows than this is shown as one table with tasks on one side and entries on the other."""
MARKED = ("dm_control, the 18 tasks of DreamerV3", "*")
NOT_RUN = "*not run*"

Cells = Mapping[tuple[str, Task], Cell | None]
"""The cell of every row of a grid, by its entry's name and task; None if no seed of it is finished."""


def side_by_side(cells: Cells) -> str:
    """Return the table of tasks times entries, the longer side downwards."""
    entries, tasks = _axes(cells)
    if len(entries) > len(tasks):
        return _by_entry(cells, entries, tasks)
    marked = task_sets_in([task.env for task in tasks]).get(MARKED[0], ())
    lines = []
    for task in tasks:
        mark = f" {MARKED[1]}" if task.env in marked else ""
        found = [_mean(cells[entry, task]) for entry in entries]
        lines.append(f"| {task.name}{mark} | {' | '.join(found)} | {_best_published(task)} |")
    head = f"| task | {' | '.join(entries)} | best published, any algorithm |"
    table = "\n".join([head, f"|---|{'--:|' * len(entries)}---|", *lines])
    return f"{table}\n\n{MARKED[1]} of {MARKED[0]}." if marked else table


def _by_entry(cells: Cells, entries: Sequence[str], tasks: Sequence[Task]) -> str:
    """Return the table of an ablation: a line for each entry, with its returns over the mean of the first entry's."""
    lines = []
    for entry in entries:
        found = [_mean(cells[entry, task]) for task in tasks]
        lines.append(f"| {entry} | {' | '.join(found)} | {_relative(cells, entry, entries[0], tasks)} |")
    names = " | ".join(task.name for task in tasks)
    head = f"| entry | {names} | over {entries[0]}: IQM [95 %] |"
    return "\n".join([head, f"|---|{'--:|' * (len(tasks) + 1)}", *lines])


def _relative(cells: Cells, entry: str, first: str, tasks: Sequence[Task]) -> str:
    """Return the interquartile mean, over tasks and seeds, of an entry's returns over the first entry's mean return."""
    ours, base = ([cells[name, task] for task in tasks] for name in (entry, first))
    pairs = [(cell, one.mean) for cell, one in zip(ours, base, strict=True) if cell and one and one.mean > 0]
    if len(pairs) < len(tasks):
        return NOT_RUN
    return _iqm([np.asarray(cell.scores) / mean for cell, mean in pairs])


def over_task_sets(cells: Cells) -> list[str]:
    """Return a table for every set of tasks of published comparisons that the grid has: its entries and the peers."""
    entries, tasks = _axes(cells)
    budgets = {task.budget for task in tasks}
    if len(budgets) > 1:
        return []
    by_env = {task.env: task for task in tasks}
    parts = []
    for name, envs in task_sets_in(list(by_env)).items():
        parts.append(_set_table(name, [by_env[env] for env in envs], entries, cells))
    if len(tasks) > 5 and not any(set(envs) == set(by_env) for envs in task_sets_in(list(by_env)).values()):
        parts.append(_own_scale(tasks, entries, cells))
    return [part for part in parts if part]


def _set_table(name: str, tasks: Sequence[Task], entries: Sequence[str], cells: Cells) -> str:
    """Return the table of a set of tasks, best first; entries that were not run on all of its tasks stand last."""
    unit = SUITE_MAXIMUM.get(tasks[0].suite, 1.0)
    done: list[tuple[float, str]] = []
    missing = []
    for entry in entries:
        found = [cells[entry, task] for task in tasks]
        have = [cell for cell in found if cell is not None]
        if len(have) < len(tasks):
            missing.append(f"| **{entry}** | {NOT_RUN} ({len(have)} of {len(tasks)} tasks are) | | |")
            continue
        scores = [np.array([score(cell.task.env, value) for value in cell.scores]) for cell in have]
        mean = float(statistics.mean(scores))
        runs = sum(len(cell.scores) for cell in have)
        done.append((mean, f"| **{entry}** | {_size(unit * mean)} | {_iqm(scores, unit)} | here, {runs} runs |"))
    for peer, mean in means_over([task.env for task in tasks], tasks[0].budget):
        known = overall_iqm(peer, name)
        iqm = _interval(*(unit * value for value in known[4:])) if known else ""
        about = f"{peer.source}, {peer.seeds_text}"
        done.append((mean, f"| {peer.algorithm} | {_size(unit * mean)} | {iqm} | {about} |"))
    ranked = [line for _, line in sorted(done, key=lambda row: -row[0])]
    what = "return" if unit > 1 else "score"
    head = f"| **{name}**, {tasks[0].name.split(' at ')[1]} | mean {what} | IQM [95 %] | where |\n|---|--:|--:|---|"
    return "\n".join([head, *ranked, *missing])


def _own_scale(tasks: Sequence[Task], entries: Sequence[str], cells: Cells) -> str:
    """Return the table over all tasks of a grid for which nobody published a scale: 1 is the best mean known."""
    lines = []
    records = [record for cell in cells.values() if cell is not None for record in cell.records]
    comparison = compare(records) if records else None
    for entry in entries:
        have = [task for task in tasks if cells[entry, task] is not None]
        if comparison is None or len(have) < len(tasks):
            lines.append(f"| **{entry}** | {NOT_RUN} ({len(have)} of {len(tasks)} tasks are) |")
        else:
            name = cells[entry, tasks[0]].entry  # type: ignore[union-attr]
            scores = [np.asarray(each) for each in comparison.normalized(name, tasks)]
            lines.append(f"| **{entry}** | {_iqm(scores)} |")
    head = f"| **all {len(tasks)} tasks**, {tasks[0].name.split(' at ')[1]} | IQM [95 %] |\n|---|--:|"
    note = "Scores: 0 is a random policy, 1 the best published mean at this budget or, without one, the best here."
    return "\n".join([head, *lines]) + f"\n\n{note}"


def _axes(cells: Cells) -> tuple[list[str], list[Task]]:
    return list(dict.fromkeys(entry for entry, _ in cells)), list(dict.fromkeys(task for _, task in cells))


def _mean(cell: Cell | None) -> str:
    return NOT_RUN if cell is None else cell.mean_text


def _best_published(task: Task) -> str:
    found = published(task.env, task.budget)
    return f"{found[0].text} ({found[0].algorithm}, {found[0].source})" if found else "none at this budget"


def _iqm(scores: Sequence[np.ndarray], unit: float = 1.0) -> str:
    low, high = statistics.bootstrap(statistics.iqm, scores)
    return _interval(*(unit * float(value) for value in (statistics.iqm(scores), low, high)))


def _interval(middle: float, low: float, high: float) -> str:
    return f"{_size(middle)} [{_size(low)}, {_size(high)}]"


def _size(value: float) -> str:
    return number(value) if abs(value) >= 20 else f"{value:.2f}"
