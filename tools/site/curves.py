"""Learning curves of the committed results as SVG: a picture of each grid, and one of all algorithms."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from minerva.lab.analysis.comparison import Cell, Curve, curve, short

COLOURS = ("#1f5fbf", "#c0392b", "#2e8b57", "#8e44ad", "#d08700", "#16808a", "#7f5539", "#c2185b", "#5f6b76")
WIDTH, HEIGHT = 3.1, 2.5
"""Inches of a task's axes."""
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "minerva", "font.size": 8, "font.family": "sans-serif"}
"""Text stays text, and the same curves give the same file."""
DIGEST = "curves "

Drawn = Mapping[str, Sequence[tuple[str, Curve]]]
"""The curves of each task, each with its entry's name."""


def curves_of(cells: Sequence[Cell], tasks: Sequence[str]) -> dict[str, list[tuple[str, Curve]]]:
    """Return the curves of the cells of these environments, by environment; cells without evaluations are left out."""
    found = [(cell.task.env, cell.entry, curve(cell)) for cell in cells]
    return {env: [(entry, drawn) for at, entry, drawn in found if at == env and drawn is not None] for env in tasks}


def digest(drawn: Drawn) -> str:
    """Return a hash of the numbers in a picture, which the picture carries, to tell whether it is out of date."""
    parts = (
        (task, entry, *(values.round(6).tobytes() for values in line))
        for task, lines in drawn.items()
        for entry, line in lines
    )
    return hashlib.sha256(repr(list(parts)).encode()).hexdigest()[:16]


def write_svg(path: Path, drawn: Drawn) -> None:
    """Draw each task's curves, with the 95 % interval over seeds, and write the picture."""
    drawn = {task: lines for task, lines in drawn.items() if lines}
    places_needed = len(drawn) + 1  # the last is the legend's
    columns = places_needed if places_needed <= 4 else 3
    rows = -(-places_needed // columns)
    entries = list(dict.fromkeys(entry for entry, _ in chain.from_iterable(drawn.values())))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows), layout="constrained")
        places = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes, (task, lines) in zip(places, drawn.items(), strict=False):
            _draw(axes, task, lines, entries)
        for axes in places[len(drawn) :]:
            axes.set_axis_off()
        handles = {name: line for axes in places for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
        places[-1].legend(handles.values(), handles.keys(), loc="center left", frameon=False)
        figure.supxlabel("environment steps", fontsize=8)
        figure.supylabel("return", fontsize=8)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Description": DIGEST + digest(drawn)})
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
    axes.set_xlim(0, max(float(np.max(line.x)) for _, line in lines))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
