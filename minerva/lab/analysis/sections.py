"""The report's main sections as HTML: curves, final table, comparison over tasks, constraint health."""

from collections.abc import Sequence
from html import escape

import numpy as np

from minerva.lab.analysis import statistics
from minerva.lab.analysis.chart import Chart, Level, Line, figure
from minerva.lab.analysis.comparison import (
    Cell,
    Comparison,
    Group,
    Over,
    Task,
    curve,
    number,
    points,
    short,
)
from minerva.lab.analysis.health import own_panels, panels
from minerva.lab.analysis.markup import entry_name, table, td
from minerva.lab.analysis.peers import SUITE_MAXIMUM, published
from minerva.metrics import Panel

OPEN_TASKS = 3
"""Number of tasks whose constraint health is unfolded initially; in print all of it is."""


# --- learning curves ------------------------------------------------------------------------------------------------


def curves(comparison: Comparison, over: Over = "steps") -> str:
    """Return one learning-curve chart per task."""
    drawn = [_curve_chart(comparison, task, over) for task in comparison.tasks]
    if not any(drawn):
        return ""
    what = "Interquartile mean over seeds with its 95 % confidence interval; thin lines are single seeds. "
    what += "Dashed: the best published figure at the same budget, where it is close enough to fit the chart."
    return f'<p class="soft">{what}</p><div class="charts">{"".join(drawn)}</div>'


def _curve_chart(comparison: Comparison, task: Task, over: Over) -> str:
    lines = []
    for cell in comparison.of(task):
        found = curve(cell, over)
        if found is not None:
            place = comparison.entries.index(cell.entry)
            seeds = [seed for seed in (points(record, over) for record in cell.records) if len(seed[0])]
            lines.append(Line(place, cell.entry, *found, seeds=seeds if len(seeds) > 1 else ()))
    if not lines:
        return ""
    counts = sorted({len(cell.records) for cell in comparison.of(task)})
    seeds_text = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    note = f"{seeds_text} seed{'s' * (counts[-1] > 1)}"
    levels = _levels(comparison.of(task), lines)
    if over == "seconds":
        return figure(Chart(task.name, lines, "seconds since the start", note=note, levels=levels, x_numbers=True))
    return figure(Chart(task.name, lines, note=note, levels=levels, x_range=(0, task.budget)))


def _levels(cells: Sequence[Cell], lines: Sequence[Line]) -> list[Level]:
    """Return the best published figures, except those so far off that the curves would look flat."""
    low = min(float(line.y.min()) for line in lines)
    high = max(float(line.y.max()) for line in lines)
    peers = {cell.peer for cell in cells if cell.peer is not None}
    near = [peer for peer in peers if low <= peer.mean <= high + 0.7 * (high - low)]
    brief = {peer: f"{peer.algorithm} {number(peer.mean)}" for peer in sorted(near)}
    return [Level(peer.mean, f"{text} ({peer.source})", text) for peer, text in brief.items()]


# --- the final table ------------------------------------------------------------------------------------------------

HEADINGS = ("task", "entry", "seeds#", "mean ± std#", "IQM [95 % interval]#", "best peer, same budget", "")


def finals(comparison: Comparison) -> str:
    """Return the final table: our scores and the best published figures."""
    protocols = {record.protocol for cell in comparison.cells for record in cell.records}
    ours = f" Ours: {escape(protocols.pop())}." if len(protocols) == 1 else ""
    rows = [_final_row(comparison, cell, named=not ours) for cell in comparison.cells]
    verdicts = [cell.verdict for cell in comparison.cells]
    won, lost = verdicts.count("won"), verdicts.count("lost")
    without = len(verdicts) - won - lost
    summary = (
        f"<p>Our mean against the best published mean of the same algorithm at the same budget: "
        f'<span class="won">{won} won</span>, <span class="lost">{lost} lost</span>'
        f"{f', {without} without a published figure' if without else ''}. "
        f"Protocols differ; each is stated with its figure.{ours}</p>"
    )
    return summary + table(HEADINGS, rows) + _published(comparison)


def _final_row(comparison: Comparison, cell: Cell, named: bool) -> str:
    first = comparison.of(cell.task)[0] is cell
    place = comparison.entries.index(cell.entry)
    steps = min(record.steps for record in cell.records)
    unfinished = "" if cell.finished else f" <small>not finished: at {short(steps)} steps</small>"
    protocols = " · ".join(sorted({record.protocol for record in cell.records}))
    protocol = f"<small>{escape(protocols)}</small>" if named else ""
    parts = [
        f'<th scope="row">{escape(cell.task.name)}</th>',
        td("entry", f"<span>{entry_name(comparison, cell.entry)}{protocol}</span>"),
        td("seeds", str(len(cell.records)), numeric=True),
        td("mean ± std", f"<span>{cell.mean_text}{unfinished}</span>", numeric=True),
        td("IQM [95 %]", cell.iqm_text, numeric=True),
        td("best peer", _peer(cell)),
        td("verdict", _verdict(cell)) if cell.verdict else "<td></td>",
    ]
    return f'<tr data-entry="{place}"{" class=first" * first}>{"".join(parts)}</tr>'


def _peer(cell: Cell) -> str:
    peer = cell.peer
    if peer is None:
        return '<span class="soft">none at this budget</span>'
    wanted = cell.published_as[0]
    instead = f" (no published {escape(wanted)})" if peer.algorithm != wanted else ""
    who = f"{escape(peer.algorithm)}, {escape(peer.source)}, {peer.seeds_text}{instead}"
    return f"<span>{peer.text}<small>{who}<br>{escape(peer.protocol)}</small></span>"


def _verdict(cell: Cell) -> str:
    if not cell.verdict or cell.peer is None:
        return ""
    share = abs(cell.mean - cell.peer.mean) / max(abs(cell.peer.mean), 1e-9)
    return f'<span><span class="{cell.verdict}">{cell.verdict}</span> by {share:.0%}</span>'


def _published(comparison: Comparison) -> str:
    """Return all published figures on these tasks at their budgets, of any algorithm."""
    rows = []
    for task in comparison.tasks:
        for figure_ in published(*task):
            values = [figure_.algorithm, figure_.text, figure_.source, figure_.seeds_text, figure_.protocol]
            names = ("algorithm", "mean ± std", "source", "seeds", "protocol")
            cells = [td(name, escape(value)) for name, value in zip(names, values, strict=True)]
            rows.append(f'<tr><th scope="row">{escape(task.name)}</th>{"".join(cells)}</tr>')
    if not rows:
        return ""
    inner = table(("task", "algorithm", "mean ± std", "source", "seeds", "protocol"), rows)
    what = f"All {len(rows)} published figures on these tasks, of any algorithm"
    return f"<details><summary>{what}</summary>{inner}</details>"


# --- over tasks -----------------------------------------------------------------------------------------------------


def aggregates(comparison: Comparison) -> str:
    """Return performance profiles and probabilities of improvement for each group of tasks with the same entries."""
    return "".join(_aggregate(comparison, group) for group in comparison.groups())


def _aggregate(comparison: Comparison, group: Group) -> str:
    names = ", ".join(task.name for task in group.tasks)
    what = f"{len(group.tasks)} tasks: {names}" if len(group.tasks) > 1 else names
    references = [(task, *comparison.reference(task)) for task in group.tasks]
    ones = "; ".join(f"{number(one)} on {task.name} ({why})" for task, _, one, why in references)
    if len({(one, why) for _, _, one, why in references}) == 1:
        ones = f"{number(references[0][2])} ({references[0][3]})"
    matrix = _improvement(comparison, group) if len(group.entries) > 1 else ""
    side = f'<div class="beside">{_profile(comparison, group)}{_totals(comparison, group)}</div>'
    zero = "no reward" if group.tasks[0].suite in SUITE_MAXIMUM else "a random policy"
    note = f'<p class="small soft">A score of 0 is {zero}; 1 is a return of {escape(ones)}.</p>'
    return f"<h3>{escape(what)}</h3>{side}{note}{matrix}"


def _best_first(comparison: Comparison, group: Group) -> list[str]:
    return sorted(group.entries, key=lambda entry: -float(statistics.iqm(comparison.normalized(entry, group.tasks))))


def _totals(comparison: Comparison, group: Group) -> str:
    """Return the table of normalised scores over tasks and seeds, with confidence intervals."""
    kinds = {"IQM": statistics.iqm, "mean": statistics.mean, "gap to 1": statistics.optimality_gap}
    rows = []
    for entry in _best_first(comparison, group):
        scores = comparison.normalized(entry, group.tasks)
        cells = []
        for name, kind in kinds.items():
            low, high = statistics.bootstrap(kind, scores)
            text = f"<span>{float(kind(scores)):.2f} <small>[{float(low):.2f}, {float(high):.2f}]</small></span>"
            cells.append(td(name, text, numeric=True))
        place = comparison.entries.index(entry)
        name = f'<th scope="row">{entry_name(comparison, entry)}</th>'
        rows.append(f'<tr data-entry="{place}">{name}{"".join(cells)}</tr>')
    return table(("normalised score", *(f"{name}#" for name in kinds)), rows)


def _profile(comparison: Comparison, group: Group) -> str:
    scores = {entry: comparison.normalized(entry, group.tasks) for entry in group.entries}
    highest = max(float(np.max(task)) for tasks in scores.values() for task in tasks)
    thresholds = np.linspace(0.0, max(highest * 1.05, 0.1), 101)
    lines = []
    for entry, tasks in scores.items():
        drawn = statistics.resampled(tasks, statistics.resamples(tasks))
        low, high = statistics.interval(statistics.performance_profile(drawn, thresholds))
        profile = statistics.performance_profile(tasks, thresholds)
        lines.append(Line(comparison.entries.index(entry), entry, thresholds, profile, low, high))
    note = "Share of runs that score more than τ. Higher is better; the area under a line is its mean score."
    names = ("Performance profile", lines, "normalised score τ", "share of runs")
    return figure(Chart(*names, note=note, x_range=(0, thresholds[-1]), y_range=(0, 1.02), x_numbers=True))


def _improvement(comparison: Comparison, group: Group) -> str:
    scores = {entry: comparison.normalized(entry, group.tasks) for entry in group.entries}
    ordered = _best_first(comparison, group)
    rows = []
    for entry in ordered:
        cells = [_chance(comparison, entry, other, scores[entry], scores[other]) for other in ordered]
        place = comparison.entries.index(entry)
        name = f'<th scope="row">{entry_name(comparison, entry)}</th>'
        rows.append(f'<tr data-entry="{place}">{name}{"".join(cells)}</tr>')
    heads = [
        f'<th scope="col" data-entry="{comparison.entries.index(other)}">{escape(other)}</th>' for other in ordered
    ]
    head = f"<thead><tr><th>row beats column</th>{''.join(heads)}</tr></thead>"
    note = "Probability of improvement: that a run of the row's entry beats a run of the column's on the same task."
    matrix = f'<table class="matrix">{head}<tbody>{"".join(rows)}</tbody></table>'
    return f'<p class="small soft">{note}</p><div class="scroll">{matrix}</div>'


def _chance(
    comparison: Comparison, entry: str, other: str, scores: statistics.Scores, others: statistics.Scores
) -> str:
    column = comparison.entries.index(other)
    if entry == other:
        return f'<td data-entry="{column}">·</td>'
    value = float(statistics.probability_of_improvement(scores, others))
    pair = [
        statistics.resampled(each, statistics.resamples(each, seed=seed)) for seed, each in enumerate((scores, others))
    ]
    low, high = statistics.interval(statistics.probability_of_improvement(*pair))
    kind = "better" if low > 0.5 else "worse" if high < 0.5 else ""
    return (
        f'<td class="{kind}" data-entry="{column}">{value:.2f}<small>[{float(low):.2f}, {float(high):.2f}]</small></td>'
    )


# --- constraint health ----------------------------------------------------------------------------------------------


def health(comparison: Comparison) -> str:
    """Return, for every task, the metrics that show whether an algorithm's constraints hold."""
    return _by_task(comparison, panels())


def own(comparison: Comparison) -> str:
    """Return, for every task, what the users' code has logged, and the means of the environment's `info`."""
    records = [record for task in comparison.tasks for cell in comparison.of(task) for record in cell.records]
    return _by_task(comparison, own_panels(track for record in records for track in record.health))


def _by_task(comparison: Comparison, shown: Sequence[Panel]) -> str:
    """Return the charts of these panels, folded by task."""
    parts: list[str] = []
    for task in comparison.tasks:
        charts = [chart for panel in shown if (chart := _panel(comparison, task, panel))]
        if charts:
            is_open = " open" * (len(parts) < OPEN_TASKS)
            inner = f'<div class="charts">{"".join(charts)}</div>'
            parts.append(f"<details{is_open}><summary><h3>{escape(task.name)}</h3></summary>{inner}</details>")
    return "".join(parts)


def _panel(comparison: Comparison, task: Task, panel: Panel) -> str:
    lines: list[Line] = []
    metrics: list[str] = []
    for cell in comparison.of(task):
        tracks = [track for record in cell.records for track in record.health if track.panel == panel.title]
        tracks = [track for track in tracks if not panel.log or min(track.values) > 0]
        if not tracks:
            continue
        metrics.append(tracks[0].metric)
        each = [(np.array(track.steps, dtype=float), np.array(track.values)) for track in tracks]
        reached = min(steps[-1] for steps, _ in each)
        grid = max((steps for steps, _ in each), key=len)
        grid = grid[grid <= reached]
        band = statistics.iqm_band(np.stack([np.interp(grid, *one) for one in each]))
        place = comparison.entries.index(cell.entry)
        lines.append(Line(place, cell.entry, grid, *band, seeds=each if len(each) > 1 else ()))
    if not lines:
        return ""
    levels = [Level(panel.at, "")] if panel.at is not None else []
    note = f"{panel.meaning} ({', '.join(dict.fromkeys(metrics))})"
    return figure(
        Chart(panel.title, lines, y_name="", levels=levels, log=panel.log, note=note, x_range=(0, task.budget))
    )
