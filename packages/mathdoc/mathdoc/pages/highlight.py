"""Source as highlighted HTML lines, with marks on the expressions that symbols stand for.

The file is lexed once as a whole: line by line, a docstring's words would be taken for code.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from pygments.lexers.python import PythonLexer
from pygments.token import STANDARD_TYPES

from mathdoc.pages.text import escape


@dataclass(frozen=True)
class Mark:
    """A stretch of the text that belongs to a symbol."""

    start: int
    end: int
    symbol: str
    title: str


def highlighted(text: str, marks: Iterable[Mark] = ()) -> list[str]:
    """Each line as HTML."""
    starts = {mark.start: mark for mark in marks}
    ends = {mark.end for mark in starts.values()}
    cuts = sorted({*starts, *ends})
    lines, line = [], ""
    for offset, kind, value in _pieces(text, cuts):
        mark = starts.get(offset)
        if mark:
            line += f'<span class="sym" data-sym="{mark.symbol}" title="{escape(mark.title)}">'
        if value == "\n":
            lines.append(line)
            line = ""
        else:
            line += f'<span class="{kind}">{escape(value)}</span>' if kind else escape(value)
        if offset + len(value) in ends:
            line += "</span>"
    return [*lines, line] if line else lines


def _pieces(text: str, cuts: list[int]) -> Iterable[tuple[int, str, str]]:
    """Tokens, cut at the ends of lines and marks: offset, class, text."""
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    for offset, kind, value in lexer.get_tokens_unprocessed(text):
        at = 0
        inner = {cut - offset for cut in cuts if offset < cut < offset + len(value)}
        breaks = {place for k, letter in enumerate(value) if letter == "\n" for place in (k, k + 1)}
        for end in sorted({*inner, *breaks, len(value)} - {0}):
            yield offset + at, STANDARD_TYPES.get(kind, ""), value[at:end]
            at = end


def marks_in(text: str, statement: ast.stmt, symbols: Iterable[tuple[str, str, str]]) -> list[Mark]:
    """Where the expressions of symbols (Python, name, title) stand in a statement; an outer one hides those inside."""
    wanted = {_dump(var): (name, title) for var, name, title in symbols}
    offsets = _line_offsets(text)
    found: list[Mark] = []
    for node in ast.walk(statement):
        known = wanted.get(_normal(node)) if isinstance(node, ast.expr) else None
        if known is None or not isinstance(node, ast.expr):
            continue
        start = offsets(node.lineno, node.col_offset)
        end = offsets(node.end_lineno or node.lineno, node.end_col_offset or 0)
        hidden = any(mark.start < end and start < mark.end for mark in found)
        if not hidden and "\n" not in text[start:end]:
            found.append(Mark(start, end, *known))
    return found


def _line_offsets(text: str):  # type: ignore[no-untyped-def]
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    return offset


def _dump(expression: str) -> str:
    return _normal(ast.parse(expression, mode="eval").body)


def _normal(node: ast.AST) -> str:
    """An expression's shape, whether it is read or assigned."""
    return ast.dump(node).replace("ctx=Store()", "ctx=Load()")
