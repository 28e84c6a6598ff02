"""A self-contained HTML report of runs: opened from disk, it makes no network requests."""

import base64
import hashlib
import time
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from minerva.lab.analysis import details, sections
from minerva.lab.analysis.chart import colour
from minerva.lab.analysis.comparison import Comparison, Over, short
from minerva.lab.analysis.markup import data_block, section
from minerva.lab.analysis.records import Record
from minerva.version import __version__

GLOSSARY = """
<dl>
<dt>Seeds</dt><dd>A score is one seed's mean return over deterministic episodes of its last policy. Standard deviations
and intervals are over seeds, not over episodes.</dd>
<dt>IQM</dt><dd>Interquartile mean, the mean of the middle half: more robust than the mean, and statistically more
efficient than the median.</dd>
<dt>Interval</dt><dd>95 % percentile interval of the stratified bootstrap: seeds are resampled within each task, 2,000
times. With three seeds an interval is little more than the observed range; five to ten seeds say more.</dd>
<dt>Won, lost</dt><dd>Our mean against the best published mean of the same algorithm within 5 % of the same number of
environment steps. A figure published on another version of the task or with a more favourable protocol (best over
training, one run) is labelled as such, not corrected.</dd>
<dt>Probability of improvement</dt><dd>Probability that a run of one entry beats a run of the other on the same task,
averaged over tasks. Coloured where the interval excludes one half.</dd>
</dl>
<p class="soft">Agarwal et al. 2021, <em>Deep reinforcement learning at the edge of the statistical precipice</em>,
argue for these statistics. The numbers agree with their library rliable.</p>
"""


def page(
    comparison: Comparison, title: str, name: str = "report", unread: Sequence[Exception] = (), over: Over = "steps"
) -> str:
    """Return the report as one HTML page: curves `over` steps or seconds, `unread` runs, downloads called `name`."""
    style, script = _asset("report.css"), _asset("report.js")
    parts = {
        "curves": ("Learning curves", sections.curves(comparison, over)),
        "final": ("Final performance", sections.finals(comparison)),
        "over-tasks": ("Comparison over tasks", sections.aggregates(comparison)),
        "health": ("Constraint health", sections.health(comparison)),
        "own": ("Logged by your code", sections.own(comparison)),
        "speed": ("Speed", details.speed(comparison)),
        "settings": ("Hyperparameters that differ", details.settings(comparison)),
        "videos": ("Videos", details.videos(comparison)),
        "unread": ("Runs that could not be read", "".join(f"<p>{escape(str(error))}</p>" for error in unread)),
        "data": ("Raw data", _data(comparison)),
        "how": ("How to read this page", GLOSSARY),
    }
    present = {anchor: part for anchor, part in parts.items() if part[1]}
    links = "".join(f'<a href="#{anchor}">{heading}</a>' for anchor, (heading, _) in present.items())
    body = "".join(section(anchor, heading, content) for anchor, (heading, content) in present.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<header class="top"><h1>{escape(title)}</h1>{_tiles(comparison)}<nav aria-label="Sections">{links}</nav></header>
{_legend(comparison)}
<main>{body}
<footer>Made by Minerva {escape(__version__)}, {time.strftime("%Y-%m-%d %H:%M")}.
This file is self-contained: it loads nothing and sends nothing.</footer></main>
<div id="tip" role="status" aria-live="polite" hidden></div>
<script type="application/json" id="raw">{data_block(payload(comparison, name))}</script>
<script>{script}</script>
</body>
</html>
"""


def payload(comparison: Comparison, name: str) -> dict[str, Any]:
    """Return the raw data of the report: every episode of every evaluation."""
    runs = [{"entry": cell.entry, **_raw(record)} for cell in comparison.cells for record in cell.records]
    return {"name": name, "minerva": __version__, "runs": runs}


def _raw(record: Record) -> dict[str, Any]:
    return {
        "algo": record.algo,
        "env": record.env,
        "seed": record.seed,
        "label": record.label,
        "budget": record.budget,
        "steps": record.steps,
        "init_from": record.origin.to_dict() if record.origin else None,
        "finished": record.finished,
        "protocol": record.protocol,
        "returns": record.returns,
        "curve": [point._asdict() for point in record.curve],
        "random": record.random,
        "settings": _plain(record.settings),
        "steps_per_second": record.steps_per_second,
        "health": [track._asdict() for track in record.health],
        "about": dict(record.about),
        "source": str(record.source),
    }


def _plain(value: Any) -> Any:
    """Return a value of a config file in a form that JSON can represent."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    finite = isinstance(value, float) and value == value and abs(value) != float("inf")
    return value if value is None or finite or isinstance(value, (bool, int, str)) else str(value)


def _asset(name: str) -> str:
    return files("minerva.lab.analysis").joinpath("assets", name).read_text()


def _policy(style: str, script: str) -> str:
    """Return a content security policy that allows only the page's own style and script, by digest, and data URLs."""
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; "
        "img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
    )


def _tiles(comparison: Comparison) -> str:
    records = [record for cell in comparison.cells for record in cell.records]
    counts = {
        "runs": len(records),
        "tasks": len({task.env for task in comparison.tasks}),
        "entries": len(comparison.entries),
        "environment steps": short(sum(record.steps for record in records)),
        "evaluation episodes": f"{sum(len(r.returns) + sum(len(p.returns) for p in r.curve) for r in records):,}",
    }
    tiles = [f"<li><b>{count}</b>{name if count != 1 else name.rstrip('s')}</li>" for name, count in counts.items()]
    return f'<ul class="tiles">{"".join(tiles)}</ul>'


def _legend(comparison: Comparison) -> str:
    boxes = [
        f'<label><input type="checkbox" checked data-switch="{place}">'
        f'<span class="swatch {colour(place)}"></span>{escape(entry)}</label>'
        for place, entry in enumerate(comparison.entries)
    ]
    views = [
        f'<label class="view"><input type="checkbox" checked data-view="{view}">{name}</label>'
        for view, name in (("seeds", "single seeds"), ("bands", "intervals"))
    ]
    every = '<button data-all="on">all</button><button data-all="off">none</button>' if len(boxes) > 2 else ""
    inside = f'{"".join(boxes)}{every}<span class="gap"></span>{"".join(views)}'
    return f'<div class="legend unscripted"><div>{inside}</div></div>'


def _data(comparison: Comparison) -> str:
    return (
        "<p>Every evaluation episode of every seed; the data are part of this file.</p>"
        '<p><button data-download="json">Download JSON</button> <button data-download="csv">Download CSV</button></p>'
        + details.sources(comparison)
    )
