"""Line charts as SVG, rendered in Python so that a page shows them without scripts; hover values are attached."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from minerva.lab.analysis.comparison import short

WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 50, 10, 10, 38
NAME_HEIGHT = 12
COLOURS = 10
"""Number of colours in the style sheet; an eleventh entry is dashed in the first one's colour."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """One entry's line, its interval band if it has one, and the thin lines of its seeds."""

    entry: int
    name: str
    x: Values
    y: Values
    low: Values | None = None
    high: Values | None = None
    seeds: Sequence[tuple[Values, Values]] = ()


class Level(NamedTuple):
    """A dashed horizontal line; its brief name is used where the full one would overlap a neighbour's."""

    value: float
    name: str
    brief: str = ""


@dataclass(frozen=True)
class Chart:
    """Contents of one chart: lines, levels, axis names and ranges."""

    title: str
    lines: Sequence[Line]
    x_name: str = "environment steps"
    y_name: str = "return"
    levels: Sequence[Level] = ()
    log: bool = False
    note: str = ""
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    x_numbers: bool = field(default=False)
    """True if x is a plain number rather than a count of steps."""


class Axis(NamedTuple):
    """Mapping of values to pixels: from `low` at pixel `start` to `high` at pixel `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, values: npt.ArrayLike) -> Values:
        """Return the pixel positions of values."""
        array = np.asarray(values, dtype=np.float64)
        low, high = self.low, self.high
        if self.log:
            array, low, high = np.log10(np.maximum(array, self.low)), math.log10(low), math.log10(high)
        return self.start + (array - low) / (high - low) * (self.end - self.start)

    def ticks(self, wanted: int) -> list[float]:
        """Return about `wanted` round numbers within the range."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for factors in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
                found = [factor * 10.0**power for power in powers for factor in factors]
                inside = [value for value in found if self.low <= value <= self.high]
                if len(inside) >= 2:
                    break
            return inside[:: max(math.ceil(len(inside) / wanted), 1)]
        rough = (self.high - self.low) / wanted
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        return [step * n for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def figure(chart: Chart) -> str:
    """Return a chart as an HTML figure."""
    x, y = _axes(chart)
    title = escape(chart.title)
    note = f"<p>{escape(chart.note)}</p>" if chart.note else ""
    values = escape(json.dumps(_hover_data(chart, x, y), separators=(",", ":")))
    return (
        f'<figure class="chart" data-chart="{values}"><figcaption><strong>{title}</strong>{note}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" tabindex="0" aria-label="{escape(_summary(chart))}">'
        f"{_frame(chart, x, y)}{''.join(_line(line, x, y) for line in chart.lines)}"
        f"{_levels(chart.levels, y)}</svg></figure>"
    )


def colour(entry: int) -> str:
    """Return the CSS classes that give an entry its colour."""
    return f"c{entry % COLOURS}" + (" dashed" if entry >= COLOURS else "")


def _axes(chart: Chart) -> tuple[Axis, Axis]:
    x = np.concatenate([line.x for line in chart.lines])
    levels = np.array([level.value for level in chart.levels])
    y = np.concatenate([*(part for line in chart.lines for part in _drawn(line)), levels])
    if chart.log:
        y = y[y > 0]
    low, high = chart.y_range or _padded(float(y.min()), float(y.max()), chart.log)
    left, right = chart.x_range or (float(x.min()), float(x.max()))
    right = max(right, float(x.max()))
    across = Axis(left, right if right > left else left + 1, LEFT, WIDTH - RIGHT)
    return across, Axis(low, high, HEIGHT - BOTTOM, TOP, chart.log)


def _padded(low: float, high: float, log: bool) -> tuple[float, float]:
    if log:
        return 10 ** math.floor(math.log10(low)), 10 ** max(
            math.ceil(math.log10(high)), math.floor(math.log10(low)) + 1
        )
    pad = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return low - pad, high + pad


# --- parts of the drawing -------------------------------------------------------------------------------------------


def _frame(chart: Chart, x: Axis, y: Axis) -> str:
    parts = [f'<g class="y-ticks">{"".join(map(_y_tick, _labels(y.ticks(5)), y.place(y.ticks(5))))}</g>']
    ticks = x.ticks(5)
    for text, place in zip(_labels(ticks, plain=chart.x_numbers), x.place(ticks), strict=True):
        anchor = "end" if place > WIDTH - RIGHT - 12 else "middle"
        parts.append(f'<text class="tick" x="{place:.1f}" y="{HEIGHT - 22}" text-anchor="{anchor}">{text}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    base = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    parts.append(f'<text class="name" x="{middle}" y="{HEIGHT - 5}" text-anchor="middle">{escape(chart.x_name)}</text>')
    across = f'text-anchor="middle" transform="translate(11 {(TOP + base) / 2}) rotate(-90)"'
    parts.append(f'<text class="name" {across}>{escape(chart.y_name)}</text>')
    return "".join(parts)


def _y_tick(text: str, place: float) -> str:
    line = f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place:.1f}" y2="{place:.1f}"/>'
    return f'{line}<text class="tick" x="{LEFT - 6}" y="{place + 3.5:.1f}" text-anchor="end">{text}</text>'


def _labels(ticks: Sequence[float], plain: bool = False) -> list[str]:
    """Return the numbers at an axis, with as many digits as it takes to show them; 1,000 is 1k unless `plain`."""
    gap = min((later - earlier for earlier, later in pairwise(ticks)), default=math.inf)
    enough = (n for n in range(4, 16) if all(abs(float(f"{tick:.{n}g}") - tick) < gap / 1000 for tick in ticks))
    digits = next(enough, 15)
    brief = [f"{tick:.{digits}g}" if plain or abs(tick) < 1000 else short(tick, digits) for tick in ticks]
    return [text.replace("e-0", "e-") for text in brief]


def _levels(levels: Sequence[Level], y: Axis) -> str:
    """Return the level lines with their names; names of close neighbours are joined."""
    rows: list[list[Level]] = []
    for level in sorted(levels, reverse=True):
        near = rows and float(y.place(level.value)) - float(y.place(rows[-1][-1].value)) < NAME_HEIGHT
        rows[-1].append(level) if near else rows.append([level])
    parts = []
    for row in rows:
        name = row[0].name if len(row) == 1 else ", ".join(level.brief for level in row)
        parts += [_level(level, name if level is row[0] else "", y) for level in row]
    return "".join(parts)


def _level(level: Level, name: str, y: Axis) -> str:
    place = float(y.place(level.value))
    right, up = WIDTH - RIGHT, place - 4  # put the name on the left, where curves are still low
    text = f'<text class="level-name" x="{LEFT + 4}" y="{up:.1f}">{escape(name)}</text>' if name else ""
    line = f'<line class="level" x1="{LEFT}" x2="{right}" y1="{place:.1f}" y2="{place:.1f}"/>'
    return f'<g class="level-group" data-value="{level.value}">{line}{text}</g>'


def _line(line: Line, x: Axis, y: Axis) -> str:
    parts = [f'<path class="seed" d="{_path(x.place(steps), y.place(values))}"/>' for steps, values in line.seeds]
    along = x.place(line.x)
    if line.low is not None and line.high is not None and len(line.x) > 1:
        there, back = _path(along, y.place(line.high)), _path(along[::-1], y.place(line.low)[::-1])
        parts.append(f'<path class="band" d="{there}L{back[1:]}Z"/>')
    parts.append(f'<path class="line" d="{_path(along, y.place(line.y))}"/>')
    if len(line.x) == 1:
        parts.append(f'<circle class="dot" cx="{along[0]:.1f}" cy="{y.place(line.y)[0]:.1f}" r="3"/>')
    return f'<g class="{colour(line.entry)}" data-entry="{line.entry}">{"".join(parts)}</g>'


def _path(x: Values, y: Values) -> str:
    return "M" + "L".join(f"{across:.1f} {up:.1f}" for across, up in zip(x, y, strict=True))


# --- data for the page's script -------------------------------------------------------------------------------------


def _hover_data(chart: Chart, x: Axis, y: Axis) -> dict[str, Any]:
    lines = [
        {
            "entry": line.entry,
            "name": line.name,
            "x": _digits(line.x),
            "y": _digits(line.y),
            "low": None if line.low is None else _digits(line.low),
            "high": None if line.high is None else _digits(line.high),
            "range": [min(float(part.min()) for part in _drawn(line)), max(float(part.max()) for part in _drawn(line))],
        }
        for line in chart.lines
    ]
    axes = {"x": x._asdict(), "y": y._asdict(), "fixed": chart.log or chart.y_range is not None}
    return {**axes, "xName": chart.x_name, "steps": not chart.x_numbers, "lines": lines}


def _drawn(line: Line) -> list[Values]:
    """Return the y values of a line, its band and its seeds."""
    return [part for part in (line.y, line.low, line.high, *(seed for _, seed in line.seeds)) if part is not None]


def _digits(values: Values) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _summary(chart: Chart) -> str:
    """Return a description of the chart for screen readers."""
    ends = "; ".join(f"{line.name} ends at {line.y[-1]:,.4g}" for line in chart.lines)
    return f"{chart.title}. {chart.y_name} over {chart.x_name}. {ends}. Arrow keys move along the curve."
