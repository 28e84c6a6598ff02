"""How a run is drawn in a terminal: a few lines that stay in place."""

import math
from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from minerva.runs.status import GaugeValue, RunStatus

LEVELS, PLAIN_LEVELS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
INDENT = 10
"""Columns of the names at the left."""
NARROW = 50
"""Columns below which names are left out."""
SPARK = 24
"""Evaluations in a sparkline at most."""


def drawn(step: int, total: int, speed: float, glances: Sequence[RunStatus], console: Console) -> RenderableType:
    """Progress and speed, then one run in a few lines, or a row for each of several."""
    options = console.options
    lines: list[RenderableType] = [_progress(step, total, speed, options)]
    if len(glances) == 1:
        lines += _one(glances[0], options)
    else:
        lines.append(_many(glances, options))
    return Group(*lines)


def duration(seconds: float) -> str:
    """As on a clock: 0:05, 12:34, 1:02:03."""
    if not math.isfinite(seconds):
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def sparkline(values: Sequence[float], length: int = SPARK, levels: str = LEVELS) -> str:
    """The last values as a line of bars, the lowest of them the lowest bar."""
    shown = [value for value in values if math.isfinite(value)][-length:]
    if len(shown) < 2:
        return ""
    low, high = min(shown), max(shown)
    top = len(levels) - 1
    return "".join(levels[round(top * (value - low) / (high - low)) if high > low else 0] for value in shown)


def packed(items: Sequence[Text], width: int) -> list[Text]:
    """The items one after another, in as many lines as they need; none is broken in two."""
    lines: list[Text] = []
    for item in items:
        if lines and lines[-1].cell_len + 3 + item.cell_len <= width:
            lines[-1].append("   ").append_text(item)
        else:
            lines.append(Text().append_text(item))
    return lines


def _progress(step: int, total: int, speed: float, options: ConsoleOptions) -> RenderableType:
    left = (total - step) / speed if speed > 0 else math.inf
    told = [f"{100 * step // total:3d} %", f"{step:,} of {total:,}", f"{speed:,.0f} steps/s", f"{duration(left)} left"]
    items = [Text(text, style="bold" if n == 0 else "") for n, text in enumerate(told)]
    row = packed(items, options.max_width)
    spare = options.max_width - row[0].cell_len - 3
    if len(row) > 1 or spare < 8:
        return Group(*row)
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_row(ProgressBar(total=total, completed=step, width=min(spare, 30)), row[0])
    return table


def _one(glance: RunStatus, options: ConsoleOptions) -> list[RenderableType]:
    levels = PLAIN_LEVELS if options.ascii_only else LEVELS
    spark = sparkline(glance.evaluations, levels=levels)
    returns = [
        _item("training", number(glance.train)),
        _item("evaluated", number(glance.evaluated)),
        _item("best", number(glance.best)),
    ]
    if spark:
        returns.append(Text(spark, style="cyan"))
    health = [
        _item(reading.label, short(reading.value), "" if reading.healthy else "yellow") for reading in glance.readings
    ]
    warned = [Text(warning, style="yellow") for warning in glance.warnings]
    table = Table.grid(padding=(0, 2, 0, 0))
    named = options.max_width >= NARROW
    for name, items in (("return", returns), ("health", health), ("warnings", warned)):
        for n, line in enumerate(packed(items, options.max_width - (INDENT if named else 0))):
            table.add_row(*([Text(name if n == 0 else "", style="dim")] if named else []), line)
    return [table]


def _many(glances: Sequence[RunStatus], options: ConsoleOptions) -> RenderableType:
    """A row for each run, with as many columns as there is room for."""
    levels = PLAIN_LEVELS if options.ascii_only else LEVELS
    rows = glances[: max(options.max_height - 4, 1)]
    columns: list[tuple[str, list[Text]]] = [
        ("", [Text(glance.label) for glance in rows]),
        ("evaluated", [Text(number(glance.evaluated)) for glance in rows]),
        ("training", [Text(number(glance.train)) for glance in rows]),
        ("", [Text(sparkline(glance.evaluations, 12, levels), style="cyan") for glance in rows]),
    ]
    if any(glance.warnings for glance in rows):
        columns.append(("", [Text("!" if glance.warnings else "", style="bold yellow") for glance in rows]))
    labels = dict.fromkeys(reading.label for glance in rows for reading in glance.readings)
    columns += [(short_label(label), [_reading(glance.readings, label) for glance in rows]) for label in labels]
    table = _fitting(columns, options.max_width)
    if len(rows) < len(glances):
        return Group(table, Text(f"and {len(glances) - len(rows)} more", style="dim"))
    return table


def _fitting(columns: Sequence[tuple[str, list[Text]]], room: int) -> Table:
    """The first columns, as many as there is room for; empty ones are left out."""
    table = Table.grid(padding=(0, 2, 0, 0))
    shown: list[list[Text]] = []
    for heading, cells in columns:
        width = max(len(heading), *(cell.cell_len for cell in cells))
        if width + 2 > room and shown:
            break
        if width > 0:
            room -= width + 2
            table.add_column(justify="right" if heading else "left", no_wrap=True)
            shown.append([Text(heading, style="dim"), *cells])
    for row in zip(*shown, strict=True):
        table.add_row(*row)
    return table


def number(value: float | None) -> str:
    """A return, as the rest of Minerva prints it."""
    return "-" if value is None else f"{value:,.1f}"


def short_label(label: str) -> str:
    """A gauge's name at the head of a column."""
    return label.removesuffix("/bound").removeprefix("effective ")


def short(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _item(name: str, value: str, style: str = "") -> Text:
    return Text.assemble((f"{name} ", "dim"), (value, style or "bold"))


def _reading(readings: Sequence[GaugeValue], label: str) -> Text:
    found = next((reading for reading in readings if reading.label == label), None)
    return Text(short(found.value), style="" if found.healthy else "yellow") if found else Text("-", style="dim")
