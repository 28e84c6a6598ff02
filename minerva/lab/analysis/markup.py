"""HTML building blocks shared by the report's sections. All text read from files goes through `escape`."""

import json
from collections.abc import Sequence
from html import escape

from minerva.lab.analysis.chart import colour
from minerva.lab.analysis.comparison import Comparison


def section(anchor: str, title: str, *parts: str) -> str:
    """Return a section, or an empty string if it has no content."""
    content = "".join(parts)
    return f'<section id="{anchor}"><h2>{title}</h2>{content}</section>' if content else ""


def table(headings: Sequence[str], rows: Sequence[str], kind: str = "cards") -> str:
    """Return a table that narrow screens show as cards. Headings that end in # are those of numeric columns."""
    cells = [
        f'<th scope="col"{" class=number" * name.endswith("#")}>{escape(name.rstrip("#"))}</th>' for name in headings
    ]
    head = f"<thead><tr>{''.join(cells)}</tr></thead>"
    return f'<div class="scroll"><table class="{kind}">{head}<tbody>{"".join(rows)}</tbody></table></div>'


def td(name: str, content: str, numeric: bool = False) -> str:
    """Return a table cell; `content` is HTML."""
    return f'<td data-name="{escape(name)}"{" class=number" * numeric}>{content}</td>'


def entry_name(comparison: Comparison, entry: str) -> str:
    """Return an entry's name with its colour swatch."""
    place = comparison.entries.index(entry)
    return f'<span class="name"><span class="swatch {colour(place)}"></span><span>{escape(entry)}</span></span>'


def data_block(payload: object) -> str:
    """Return JSON that is safe inside a script element: no text in it can end the element or begin another."""
    text = json.dumps(payload, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
