"""The math list and the annotated source of a module."""

import ast

from mathdoc.check import Report
from mathdoc.extract import MARKER, Source
from mathdoc.pages.figure import figure, symbol_names
from mathdoc.pages.highlight import Mark, highlighted, marks_in
from mathdoc.pages.text import fence
from mathdoc.verify import Verdict

NONE = "*This module has no formulas.*"


def math_page(source: Source, path: str, report: Report, rendered: bool, places: str) -> list[str]:
    """The blocks of the math list: each marker's statement and formula, then the whole source."""
    blocks = [f"# `{source.module}` Math-Annotated Source", f"`{path}`", "## Rendered Math Annotations"]
    verdicts = report.of(source.module)
    for verdict in verdicts:
        marker = verdict.formula.marker
        blocks += [f"### Line {marker.statement.lineno}", fence(statement_text(source, marker.statement))]
        if rendered:
            blocks.append(figure(verdict, places.format(path=path, line=marker.statement.lineno)))
        else:
            blocks += [f'<a id="{verdict.formula.anchor}"></a>', f"$$\n{marker.tex}\n$$"]
    if not verdicts:
        blocks.append(NONE)
    return [*blocks, "## Full Source", fence(source.text)]


def statement_text(source: Source, statement: ast.stmt) -> str:
    """The whole statement as it is written, without its marker."""
    lines = source.text.splitlines()[statement.lineno - 1 : statement.end_lineno]
    lines = [_without_marker(line) for line in lines]
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] if not line[:indent].strip() else line for line in lines)


def annotated_page(source: Source, path: str, report: Report, places: str) -> list[str]:
    """The blocks of the annotated source: one continuous listing with each marker as its rendered formula."""
    verdicts = report.of(source.module)
    listing = _listing(source, path, verdicts, places)
    return [
        "---\nhide:\n  - toc\n  - navigation\n---",
        f"# `{source.module}`",
        f"`{path}`",
        "## Annotated Source",
        f'<div class="annotated highlight">{listing}</div>',
    ]


def _listing(source: Source, path: str, verdicts: list[Verdict], places: str) -> str:
    marks: list[Mark] = []
    for verdict in verdicts:
        names = symbol_names(verdict)
        known = [(b.var, *names[b]) for b in names if b.var and b.var != "return"]
        marks += marks_in(source.text, verdict.formula.marker.statement, known)
    lines = [_numbered(number, line) for number, line in enumerate(highlighted(source.text, marks), 1)]
    html, at = "", 1
    for verdict in verdicts:
        marker = verdict.formula.marker
        first, last = marker.statement.lineno, marker.statement.end_lineno or marker.statement.lineno
        above = min(marker.line, first)
        html += _plain(lines[at - 1 : above - 1])
        trailing = marker.line >= first
        shown = [_strip_comment(line) if trailing else line for line in lines[first - 1 : last]]
        shown_figure = figure(verdict, places.format(path=path, line=first))
        html += (
            f'<div class="pair" style="--indent:{marker.statement.col_offset}ch">{shown_figure}'
            f"<pre><code>{''.join(shown)}</code></pre></div>"
        )
        at = last + 1
    return html + _plain(lines[at - 1 :])


def _plain(lines: list[str]) -> str:
    return f"<pre><code>{''.join(lines)}</code></pre>" if lines else ""


def _numbered(number: int, line: str) -> str:
    """A line of the listing, with its number as a link to itself."""
    return f'<span class="line" id="L{number}"><a class="number" href="#L{number}">{number}</a>{line}\n</span>'


def _strip_comment(line: str) -> str:
    """A highlighted line without the marker at its end."""
    at = line.find('<span class="c1"># LaTeX')
    return line if at < 0 else line[:at].rstrip() + "\n</span>"


def _without_marker(line: str) -> str:
    found = MARKER.search(line)
    return line if found is None else line[: found.start()].rstrip()
