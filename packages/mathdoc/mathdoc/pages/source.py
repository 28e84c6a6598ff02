"""The math list and the annotated source of a module."""

import ast
import re

from mathdoc.check import Report
from mathdoc.extract import MARKER, Source
from mathdoc.pages.figure import figure, formula_name, symbol_names
from mathdoc.pages.highlight import Mark, highlighted, marks_in
from mathdoc.pages.text import fence
from mathdoc.problem import MathdocError
from mathdoc.verify import Verdict

NONE = "*This module has no formulas.*"


def math_page(source: Source, path: str, report: Report, rendered: bool, places: str) -> list[str]:
    """The blocks of the math list: each marker's statement and formula, then the whole source."""
    blocks = [f"# `{source.module}` Math-Annotated Source", f"`{path}`", "## Rendered Math Annotations"]
    verdicts = report.of(source.module)
    for verdict in verdicts:
        marker = verdict.formula.marker
        blocks.append(f"### {formula_name(verdict)}")
        if rendered:
            place = places.format(path=path, line=marker.statement.lineno)
            blocks += [statement_html(source, verdict), figure(verdict, place)]
        else:
            code = fence(statement_text(source, marker.statement))
            anchor = f'<a id="{verdict.formula.anchor}"></a>Line {marker.statement.lineno}'
            blocks += [anchor, code, f"$$\n{marker.tex}\n$$"]
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


def function_html(source: Source, verdicts: list[Verdict], places: str, scope: str) -> str:
    """The listing of one function or class, with its formulas."""
    node: ast.AST = source.tree
    for part in scope.split("."):
        node = next((child for child in ast.walk(node) if getattr(child, "name", None) == part), node)
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or node.name != part:
        raise MathdocError(f"{source.module} has no {scope}: name a function, `function` or `Class.method`.")
    lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    inside = [verdict for verdict in verdicts if verdict.formula.marker.statement.lineno in lines]
    return f'<div class="annotated highlight">{_listing(source, "", inside, places, lines)}</div>'


def statement_html(source: Source, verdict: Verdict) -> str:
    """The statement, highlighted, with a mark on each expression that a symbol stands for."""
    marker = verdict.formula.marker
    statement = marker.statement
    lines = highlighted(source.text, _marks(source, verdict))[statement.lineno - 1 : statement.end_lineno]
    if marker.line >= statement.lineno:
        lines = [_strip_comment(line, "") for line in lines]
    dedented = [re.sub(rf"^(<span class=\"w\">)? {{{statement.col_offset}}}", r"\1", line) for line in lines]
    return f'<div class="highlight statement"><pre><code>{"&#10;".join(dedented)}</code></pre></div>'


def _marks(source: Source, verdict: Verdict) -> list[Mark]:
    if verdict.formula.marker.whole:
        return []
    names = symbol_names(verdict)
    known = [(b.var, *names[b]) for b in names if b.var and b.var != "return"]
    return marks_in(source.text, verdict.formula.marker.statement, known)


def _listing(source: Source, path: str, verdicts: list[Verdict], places: str, lines_of: range | None = None) -> str:
    """The lines with their formulas: all of them, or those of a range."""
    marks = [mark for verdict in verdicts for mark in _marks(source, verdict)]
    lines = [_numbered(number, line) for number, line in enumerate(highlighted(source.text, marks), 1)]
    html, figures, at = "", "", lines_of.start if lines_of else 1
    for verdict in verdicts:
        marker = verdict.formula.marker
        first, last = marker.lines[0], marker.lines[-1]
        above = min(marker.line, first)
        html += _plain(lines[at - 1 : above - 1])
        trailing = marker.line >= first
        shown = [_strip_comment(line) if trailing else line for line in lines[first - 1 : last]]
        figures += figure(verdict, places.format(path=path, line=first))
        at = max(at, marker.line + 1)
        if marker.part[0] + 1 < marker.part[1]:
            continue  # the other results of the same function follow
        html += (
            f'<div class="pair" style="--indent:{marker.statement.col_offset}ch">{figures}'
            f"<pre><code>{''.join(shown)}</code></pre></div>"
        )
        figures, at = "", last + 1
    return html + _plain(lines[at - 1 : lines_of.stop - 1 if lines_of else None])


def _plain(lines: list[str]) -> str:
    return f"<pre><code>{''.join(lines)}</code></pre>" if lines else ""


def _numbered(number: int, line: str) -> str:
    """A line of the listing, with its number as a link to itself."""
    return f'<span class="line" id="L{number}"><a class="number" href="#L{number}">{number}</a>{line}\n</span>'


def _strip_comment(line: str, end: str = "\n</span>") -> str:
    """A highlighted line without the marker at its end."""
    at = line.find('<span class="c1"># LaTeX')
    return line if at < 0 else line[:at].rstrip() + end


def _without_marker(line: str) -> str:
    found = MARKER.search(line)
    return line if found is None else line[: found.start()].rstrip()
