"""Learning curves of the committed results as SVG: a picture of each grid, and one of all algorithms."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from minerva.lab.analysis.comparison import Cell, Curve, Task, curve, short
from minerva.lab.analysis.peers import figures, means_over, task_name, task_sets_in

COLOURS = ("#1f5fbf", "#c0392b", "#2e8b57", "#8e44ad", "#d08700", "#16808a", "#7f5539", "#c2185b", "#5f6b76")
WIDTH, HEIGHT = 3.1, 2.5
"""Inches of a task's axes."""
STYLE: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "minerva", "font.size": 8, "font.family": "sans-serif"}
"""Text stays text, and the same curves give the same file."""
DIGEST = "curves "

BEST = 3
ALWAYS = ("SAC", "PPO")
"""Of published algorithms the best ones are drawn, and always these, which people choose most often."""
MARKERS = "osD^v"
"""Of published algorithms, in their order."""

Drawn = Mapping[str, Sequence[tuple[str, Curve]]]
"""The curves of each task, each with its entry's name."""


class Picture(NamedTuple):
    """What is drawn: curves with intervals, and peers' published means with their standard deviations, as points."""

    ours: Drawn
    peers: Drawn


def curves_of(cells: Sequence[Cell], tasks: Sequence[str]) -> dict[str, list[tuple[str, Curve]]]:
    """Return the curves of the cells of these environments, by environment; cells without evaluations are left out."""
    found = [(cell.task.env, cell.entry, curve(cell)) for cell in cells]
    return {env: [(entry, drawn) for at, entry, drawn in found if at == env and drawn is not None] for env in tasks}


def peers_of(tasks: Sequence[Task]) -> Drawn:
    """Return what peers published on these tasks up to their budget, by environment: the best three, SAC and PPO.

    The best have the highest mean score over a set of tasks that is published as one. Of several sources of an
    algorithm, the one with most figures is taken, then the one with the highest mean.
    """
    sets = task_sets_in([task.env for task in tasks]).values()
    ranked = [peer for peer, _ in means_over(max(sets, key=len), tasks[0].budget)] if sets else []
    names = list(dict.fromkeys(peer.algorithm for peer in ranked))
    drawn: dict[str, list[tuple[str, Curve]]] = {task.env: [] for task in tasks}
    for name in names[:BEST] + [name for name in ALWAYS if name in names[BEST:]]:
        sources = [peer.source for peer in ranked if peer.algorithm == name]
        by_source = [{task.env: _published(task, name, source) for task in tasks} for source in sources]
        fullest = max(by_source, key=lambda found: sum(len(curve.x) for curve in found.values() if curve is not None))
        for env, points in fullest.items():
            drawn[env] += [(name, points)] if points is not None else []
    return drawn


def _published(task: Task, algorithm: str, source: str) -> Curve | None:
    """Return an algorithm's published means on a task up to its budget, and one standard deviation to both sides."""
    wanted = (task_name(task.env), algorithm, source)
    found = [figure for figure in figures() if (figure.task, figure.algorithm, figure.source) == wanted]
    points = sorted((figure.budget, figure.mean, figure.std or 0.0) for figure in found if figure.budget <= task.budget)
    if not points:
        return None
    x, mean, std = np.array(points).T
    return Curve(x, mean, mean - std, mean + std)


def digest(picture: Picture) -> str:
    """Return a hash of the numbers in a picture, which the picture carries, to tell whether it is out of date."""
    parts = (
        (task, entry, *(values.round(6).tobytes() for values in line))
        for drawn in picture
        for task, lines in drawn.items()
        for entry, line in lines
    )
    return hashlib.sha256(repr(list(parts)).encode()).hexdigest()[:16]


def write_svg(path: Path, picture: Picture) -> None:
    """Draw each task's curves, with the 95 % interval over seeds, and the peers' points, and write the picture."""
    drawn = picture.ours
    named = list(dict.fromkeys(peer for peer, _ in chain.from_iterable(picture.peers.values())))
    places_needed = len(drawn) + 1  # the last is the legend's
    columns = places_needed if places_needed <= 4 else 3
    rows = -(-places_needed // columns)
    entries = list(dict.fromkeys(entry for entry, _ in chain.from_iterable(drawn.values())))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows), layout="constrained")
        places = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes, (task, lines) in zip(places, drawn.items(), strict=False):
            _draw(axes, task, lines, entries)
            _draw_peers(axes, picture.peers.get(task, ()), named)
        for axes in places[len(drawn) :]:
            axes.set_axis_off()
        handles = {name: line for axes in places for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
        places[-1].legend(handles.values(), handles.keys(), loc="center left", frameon=False, fontsize=7)
        figure.supxlabel("environment steps", fontsize=8)
        figure.supylabel("return", fontsize=8)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Description": DIGEST + digest(picture)})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.getvalue())


def _draw(axes: Axes, task: str, lines: Sequence[tuple[str, Curve]], entries: Sequence[str]) -> None:
    for entry, line in lines:
        colour = COLOURS[entries.index(entry) % len(COLOURS)]
        axes.plot(line.x, line.middle, color=colour, linewidth=1.4, label=entry)
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
    axes.set_title(task.removeprefix("dm_control/"), fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda steps, _: short(steps)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlim(0, 1.02 * max(float(np.max(line.x)) for _, line in lines))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_peers(axes: Axes, points: Sequence[tuple[str, Curve]], named: Sequence[str]) -> None:
    """Draw published means as grey points, joined by thin lines, with one standard deviation."""
    for name, line in points:
        grey = 0.25 + 0.12 * named.index(name)
        style: dict[str, Any] = {
            "color": str(grey),
            "marker": MARKERS[named.index(name)],
            "markersize": 3.5,
            "linewidth": 0.6,
        }
        axes.errorbar(
            line.x,
            line.middle,
            line.high - line.middle,
            elinewidth=0.6,
            linestyle=":",
            label=f"{name}, published",
            **style,
        )
