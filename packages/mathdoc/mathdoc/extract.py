"""Level 0: each marker and the one statement it belongs to, found by the syntax tree.

A marker stands alone on the line directly above a statement, or at the end of the statement's first line:

    # LaTeX: y = a x + b
    # LaTeX[slack=1e-6 "why it is not exact"]: y = a x + b
    # LaTeX[slack float32=1e-4 "why single precision is not enough"]: y = a x + b
    # LaTeX[prose "why it is not checked"]: y = a x + b

Above a function it says what that returns for its arguments: where a loop begins and ends, and what is done last. A
function that returns several values has as many markers above it, in their order.
"""

import ast
import io
import math
import re
import tokenize
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from mathdoc.problem import MathdocError, Problem

MARKER = re.compile(
    r"#\s*LaTeX(?:\[(?:(?P<prose>prose)|slack(?: (?P<precision>float64|float32))?=(?P<slack>[0-9.e+-]+))"
    r'\s*"(?P<reason>[^"]+)"\])?:\s*'
)
PART = "__mathdoc_part__"
"""A function that takes one of several returned values out of them."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
NO_GRADIENTS = re.compile(r"\b(no_grad|inference_mode)\b|set_grad_enabled\(False\)")
ALMOST = re.compile(r"#\s*latex\b", re.IGNORECASE)


@dataclass(frozen=True)
class Marker:
    """A formula and its statement."""

    path: Path
    module: str
    scope: str
    """The function it is in, with its classes: `PPOAgent.loss`; empty at module level."""
    line: int
    """Line of the marker."""
    column: int
    """Column at which the formula's text begins."""
    tex: str
    statement: ast.stmt
    slack: dict[str, float] = field(default_factory=dict)
    """How far formula and line may differ, relatively, by precision; empty: no farther than rounding explains."""
    reason: str = ""
    prose: bool = False
    part: tuple[int, int] = (0, 1)
    """Of a function that returns several values: which one it is about, and how many there are."""
    stopped: bool = False
    """Whether the code around it switches gradients off."""

    @property
    def lines(self) -> range:
        """Its statement's lines; of a function those above the body."""
        node = self.statement
        if isinstance(node, ast.FunctionDef):
            return range(_first_line(node), node.body[0].lineno)
        return range(node.lineno, (node.end_lineno or node.lineno) + 1)

    @property
    def target(self) -> str:
        """What the statement assigns, as Python; `return` for a returned value."""
        node = self.statement
        if isinstance(node, ast.Assign) and not isinstance(node.targets[0], (ast.Tuple, ast.List)):
            return ast.unparse(node.targets[0])
        if isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            return ast.unparse(node.target)
        return "return" if isinstance(node, ast.Return) or self.whole else ""

    @property
    def whole(self) -> bool:
        """Whether it belongs to a function: from its arguments to what it returns."""
        return isinstance(self.statement, ast.FunctionDef)

    @property
    def value(self) -> ast.expr | None:
        """The expression that the statement computes."""
        node = self.statement
        if isinstance(node, ast.FunctionDef):
            again = _call_again(node)
            return (
                again
                if self.part[1] == 1
                else ast.parse(f"{PART}({ast.unparse(again)}, {self.part})", mode="eval").body
            )
        if isinstance(node, ast.AugAssign):
            before = ast.parse(ast.unparse(node.target), mode="eval").body
            return ast.BinOp(before, node.op, node.value)
        return getattr(node, "value", None)

    def problem(self, message: str, start: int = 0, end: int = 0, *, hint: str = "", level: int) -> Problem:
        """A fault at an offset of the formula."""
        width = max(1, (end or len(self.tex)) - start)
        return Problem(self.path, self.line, self.column + start, message, hint, width, level)


@dataclass
class Source:
    """A module: its text, its syntax, its markers."""

    path: Path
    module: str
    text: str
    tree: ast.Module
    markers: list[Marker] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def package_sources(package: Path, modules: Collection[str] | None = None) -> list[Source]:
    """The modules of a package, all or some, in the order of their names, which leave out the package's own."""
    paths = sorted(package.rglob("*.py"))
    if not paths:
        raise MathdocError(f"{package} holds no Python files: name the folder of a package.")
    named = [(path, _module_name(package, path)) for path in paths]
    return [read_source(path, module) for path, module in named if modules is None or module in modules]


def read_source(path: Path, module: str) -> Source:
    """One module with its markers."""
    text = path.read_text()
    try:
        source = Source(path, module, text, ast.parse(text, str(path)))
    except SyntaxError as error:
        empty = Source(path, module, text, ast.Module([], []))
        empty.problems.append(Problem(path, error.lineno or 1, (error.offset or 1) - 1, f"not Python: {error.msg}"))
        return empty
    statements = _statements(source.tree)
    stopped = {id(node) for node in _without_gradients(source.tree)}
    for comment, found in _comments(source):
        statement = _owner(source, comment, statements)
        if statement is not None:
            start = comment.start[1] + found.end()
            loose = [found["precision"]] if found["precision"] else ["float64", "float32"]
            slack = {precision: _number(found["slack"]) for precision in loose} if found["slack"] else {}
            about = (slack, found["reason"] or "", bool(found["prose"]))
            tex = comment.string[found.end() :].strip()
            node, scope = statement
            made = Marker(path, module, scope, comment.start[0], start, tex, node, *about)
            source.markers.append(replace(made, stopped=id(node) in stopped))
    _refuse_seconds(source)
    _number_parts(source)
    return source


def functions(tree: ast.AST, scope: str = "") -> Iterator[tuple[Function, str]]:
    """Every function with its name as markers have it."""
    for node in ast.iter_child_nodes(tree):
        named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        inner = f"{scope}.{node.name}".lstrip(".") if named else scope  # type: ignore[attr-defined]
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node, inner
        yield from functions(node, inner)


def _without_gradients(tree: ast.AST, off: bool = False) -> Iterator[ast.AST]:
    """The statements for which the code itself switches gradients off, in a block or for a function."""
    for node in ast.iter_child_nodes(tree):
        switches: list[ast.expr] = []
        if isinstance(node, (ast.With, ast.AsyncWith)):
            switches = [item.context_expr for item in node.items]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            switches = list(node.decorator_list)
        found = off or any(NO_GRADIENTS.search(ast.unparse(part)) for part in switches)
        if found:
            yield node
        yield from _without_gradients(node, found)


def _first_line(node: ast.stmt) -> int:
    """Where a statement begins, with its decorators."""
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])


def _call_again(function: ast.FunctionDef) -> ast.expr:
    """A function's call with its own arguments, from inside it."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    owner = f"{names.pop(0)}." if names[:1] in (["self"], ["cls"]) else ""
    given = ", ".join([*names, *(f"{argument.arg}={argument.arg}" for argument in function.args.kwonlyargs)])
    return ast.parse(f"{owner}{function.name}({given})", mode="eval").body


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _module_name(package: Path, path: Path) -> str:
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or package.name


def _comments(source: Source) -> list[tuple[tokenize.TokenInfo, re.Match[str]]]:
    """Comments that are markers; what only looks like one is a problem."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type != tokenize.COMMENT:
            continue
        match = MARKER.match(token.string)
        if match:
            found.append((token, match))
        elif ALMOST.match(token.string):
            message = 'this is almost a marker: write `# LaTeX: ...` or `# LaTeX[prose "reason"]: ...`'
            source.problems.append(Problem(source.path, *token.start, message))
    return found


def _statements(tree: ast.Module) -> list[tuple[ast.stmt, str]]:
    """All statements with the function each is in."""
    found: list[tuple[ast.stmt, str]] = []

    def walk(node: ast.AST, scope: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                found.append((child, scope))
            named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            walk(child, f"{scope}.{child.name}".lstrip(".") if named else scope)  # type: ignore[attr-defined]

    walk(tree, "")
    return found


def _owner(
    source: Source, comment: tokenize.TokenInfo, statements: list[tuple[ast.stmt, str]]
) -> tuple[ast.stmt, str] | None:
    """The statement that a marker belongs to; None, with a problem noted, if there is none."""
    line, column = comment.start
    alone = not comment.line[:column].strip()
    first = line + 1 if alone else line
    lines = source.text.splitlines()
    while alone and first <= len(lines) and MARKER.match(lines[first - 1].strip()):
        first += 1  # the formulas of a function's results stand one above the other
    inside = [s for s, _ in statements if not hasattr(s, "body") and s.lineno < line <= (s.end_lineno or 0)]
    owners = [(s, scope) for s, scope in statements if first in (s.lineno, _first_line(s)) and not inside]
    if first > line + 1 and owners and not isinstance(owners[-1][0], ast.FunctionDef):
        source.problems.append(Problem(source.path, line, column, "two markers: a statement has one"))
        return None
    message = ""
    if inside:
        message = "this marker stands inside a statement: move it to the line above the statement's first"
    elif not owners:
        message = "this marker stands over nothing: it belongs on the line directly above a statement"
    elif isinstance(owners[-1][0], ast.FunctionDef):
        function, scope = owners[-1]
        return function, f"{scope}.{owners[-1][0].name}".lstrip(".")
    elif hasattr(owners[-1][0], "body"):
        message = "this marker stands over a block: it belongs to one plain statement or to a function"
    if message:
        source.problems.append(Problem(source.path, line, column, message, width=len(comment.string)))
        return None
    return owners[-1]


def _refuse_seconds(source: Source) -> None:
    """A statement has one marker."""
    seen: set[int] = set()
    for marker in list(source.markers):
        if id(marker.statement) in seen and not marker.whole:
            source.problems.append(marker.problem("this statement has a marker already", level=0))
            source.markers.remove(marker)
        seen.add(id(marker.statement))


def _number_parts(source: Source) -> None:
    """Several markers above a function are about the values that it returns, in their order."""
    for at, marker in enumerate(source.markers):
        alike = [number for number, other in enumerate(source.markers) if other.statement is marker.statement]
        source.markers[at] = replace(marker, part=(alike.index(at), len(alike)))
