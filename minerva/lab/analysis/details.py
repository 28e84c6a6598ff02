"""The report's later sections as HTML: speed, settings, videos, and the source of every number."""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from minerva.lab.analysis.comparison import Cell, Comparison, differing, format_value, number
from minerva.lab.analysis.markup import entry_name, table, td
from minerva.trainers.registry import title

LARGEST_VIDEO = 30_000_000
"""Bytes; a larger video is listed but not embedded."""


def speed(comparison: Comparison) -> str:
    """Return the table of steps per second, training time, device and engine."""
    timed = [cell for cell in comparison.cells if any(record.steps_per_second for record in cell.records)]
    together = any(record.together > 1 for cell in timed for record in cell.records)
    rows = [_speed_row(comparison, cell, together) for cell in timed]
    group_headings = ("seeds together#", "steps/s, all seeds#") if together else ()
    headings = ("task", "entry", "steps/s per seed#", *group_headings, "training time#", "device, engine")
    return table(headings, rows) if rows else ""


def _speed_row(comparison: Comparison, cell: Cell, together: bool) -> str:
    each = [record.steps_per_second for record in cell.records if record.steps_per_second]
    mean, first = sum(each) / len(each), cell.records[0]
    where = ", ".join(first.about[name] for name in ("device", "engine") if name in first.about)
    group_cells = [
        td("seeds together", str(first.together), numeric=True),
        td("steps/s, all seeds", f"{mean * first.together:,.0f}", numeric=True),
    ]
    parts = [
        f'<th scope="row">{escape(cell.task.name)}</th>',
        td("entry", entry_name(comparison, cell.entry)),
        td("steps/s per seed", f"{mean:,.0f}", numeric=True),
        *(group_cells if together else ()),
        td("training time", _duration(first.steps / mean), numeric=True),
        td("device, engine", escape(where or "unknown")),
    ]
    return f'<tr data-entry="{comparison.entries.index(cell.entry)}">{"".join(parts)}</tr>'


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def settings(comparison: Comparison) -> str:
    """Return, per algorithm, the hyperparameters that differ and the entries that have each value."""
    parts = []
    for algo in dict.fromkeys(cell.records[0].algo for cell in comparison.cells):
        cells = [cell for cell in comparison.cells if cell.records[0].algo == algo]
        whole = [cell.records[0].settings for cell in cells if "preset" not in cell.records[0].settings]
        partly = [cell.records[0].settings for cell in cells if "preset" in cell.records[0].settings]
        names = dict.fromkeys(
            [*differing(whole), *differing(partly)]
        )  # a result file lists only the changes to its preset
        rows = [row for name in names for row in _setting_rows(name, cells)]
        if rows:
            heading = escape(title(algo))
            parts.append(f"<h3>{heading}</h3>{table(('setting', 'value', 'entries'), rows, 'cards settings')}")
    return "".join(parts)


def _setting_rows(name: str, cells: Sequence[Cell]) -> list[str]:
    """Return a row per value of a setting, the most common last."""
    cells_by_value: dict[str, list[Cell]] = {}
    for cell in cells:
        values = cell.records[0].settings
        cells_by_value.setdefault(format_value(values[name]) if name in values else "the preset's", []).append(cell)
    ordered = sorted(cells_by_value.items(), key=lambda item: len(item[1]))
    rows = []
    for value, who in ordered:
        common = len(cells_by_value) > 1 and value == ordered[-1][0] and len(who) > 2
        text = "all others" if common else "; ".join(_entry_names(who, cells))
        first = " class=first" * (value == ordered[0][0])
        cells_ = td("value", f"<code>{escape(value)}</code>") + td("entries", escape(text))
        rows.append(f'<tr{first}><th scope="row"><code>{escape(name)}</code></th>{cells_}</tr>')
    return rows


def _entry_names(who: Sequence[Cell], cells: Sequence[Cell]) -> list[str]:
    """Return the entries of `who`, with their tasks where these are not all tasks of the entry in `cells`."""
    names = []
    for entry in dict.fromkeys(cell.entry for cell in who):
        mine = [cell for cell in who if cell.entry == entry]
        whole = len(mine) == sum(cell.entry == entry for cell in cells)
        tasks = ", ".join(cell.task.name for cell in mine)
        names.append(entry if whole else f"{entry} on {tasks}")
    return names


def videos(comparison: Comparison) -> str:
    """Return the videos of the runs' folders, embedded in the page."""
    parts: list[str] = []
    for cell in comparison.cells:
        for record in cell.records:
            for path in record.videos:
                caption = escape(f"{cell.entry}, {cell.task.name}, seed {record.seed}: {path.name}")
                inside = f'{_video(path, caption)}<figcaption class="small">{caption}</figcaption>'
                parts.append(f'<figure data-entry="{comparison.entries.index(cell.entry)}">{inside}</figure>')
    return f'<div class="videos">{"".join(parts)}</div>' if parts else ""


def _video(path: Path, caption: str) -> str:
    size = path.stat().st_size
    if size > LARGEST_VIDEO:
        return f"<p>{size / 1e6:.0f} MB, too large to be embedded.</p>"
    content = base64.b64encode(path.read_bytes()).decode()
    if path.suffix == ".gif":
        return f'<img alt="{caption}" src="data:image/gif;base64,{content}">'
    return f'<video controls muted loop playsinline src="data:video/mp4;base64,{content}"></video>'


def sources(comparison: Comparison) -> str:
    """Return the table of every seed: its score, its files, versions and commit."""
    rows = []
    for cell in comparison.cells:
        for record in cell.records:
            about = {name: value for name, value in record.about.items() if name not in ("device", "engine", "command")}
            if record.origin is not None:
                about["first weights of"] = f"{record.origin.checkpoint}, sha256 {record.origin.weights}"
            made = ", ".join(f"{name} {value}" for name, value in about.items())
            command = record.about.get("command", "")
            code = f"<small><code>{escape(command)}</code></small>" if command else ""
            parts = [
                td("entry", entry_name(comparison, cell.entry)),
                td("seed", str(record.seed), numeric=True),
                td("mean return", number(record.score), numeric=True),
                td("steps", f"{record.steps:,}", numeric=True),
                td(
                    "source",
                    f"<span><code>{escape(str(record.source))}</code>{code}<small>{escape(made)}</small></span>",
                ),
            ]
            place = comparison.entries.index(cell.entry)
            rows.append(f'<tr data-entry="{place}"><th scope="row">{escape(cell.task.name)}</th>{"".join(parts)}</tr>')
    inner = table(("task", "entry", "seed#", "mean return#", "steps#", "source"), rows)
    return f'<details class="sources"><summary>Every seed, its file, versions and commit</summary>{inner}</details>'
