"""Mathematics without a formula: statements that compute with arrays, and have no marker.

They are listed where a package has an `unmarked.toml` beside its folder of notation tables with the table `excused`:
the reasons for those that stay without one. The table `between` has the reasons for what functions with formulas do
between these:

    [excused]
    "envs.*" = "simulators, not the algorithms that the formulas describe"

    [between]
    "training.step" = "passes the values on; tests/test_training.py compares a whole step"

A key is a module with a function, a module, or the beginning of one before `*`.
"""

import ast
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from mathdoc.extract import Source
from mathdoc.hidden import MODULES
from mathdoc.notation import METHODS
from mathdoc.problem import MathdocError, Problem

FILE = "unmarked.toml"
OPERATIONS = 2
"""A statement with fewer is no formula: an index shifted by one, a loss negated."""
REDUCING = {"sum", "mean", "std", "var", "prod", "cumsum", "cumprod", "logsumexp", "softmax", "log_softmax", "einsum"}
COMPUTING = {*METHODS.split(), *REDUCING} - {
    "detach",
    "where",
    "gt",
    "lt",
    "ge",
    "le",
    "eq",
    "ne",
    "round",
    "add",
    "median",
}
ARRAYS = ("Tensor", "ndarray", "Array", "Rows", "Tree")


class Excuses:
    """One table of the file: the reasons by name, and which of them were needed."""

    def __init__(self, folder: Path, table: str) -> None:
        self.path = folder / FILE
        try:
            tables = tomllib.loads(self.path.read_text()) if self.path.is_file() else {}
        except tomllib.TOMLDecodeError as error:
            raise MathdocError(f"{self.path} cannot be read: {error}") from error
        unknown = sorted(tables.keys() - {"excused", "between"})
        if unknown:
            raise MathdocError(f"{self.path} has a table [{unknown[0]}]: known are excused and between.")
        self.listed = table in tables
        self.reasons: dict[str, str] = tables.get(table, {})
        self.needed: set[str] = set()

    def reason(self, name: str) -> str:
        """Why something has no formula; empty if nobody said."""
        keys = [key for key in self.reasons if fnmatchcase(name, key) or name.startswith(f"{key}.")]
        self.needed.update(keys[:1])
        return self.reasons[keys[0]] if keys else ""

    def faults(self) -> list[Problem]:
        """Excuses without a reason, and those of which nothing is left to excuse."""
        return [
            Problem(self.path, 1, 0, f'"{key}" {"excuses nothing: remove it" if why.strip() else "has no reason"}')
            for key, why in self.reasons.items()
            if key not in self.needed or not why.strip()
        ]


def unmarked(sources: Iterable[Source], folder: Path) -> list[Problem]:
    """A problem for each such statement that nobody excused, and for each excuse that is not needed."""
    excuses = Excuses(folder, "excused")
    if not excuses.listed:
        return []
    problems = []
    for source in sources:
        for statement, scope in _found(source):
            name = f"{source.module}.{scope}".rstrip(".")
            if not excuses.reason(name):
                message = "this computes with arrays and has no formula"
                hint = f'write a marker above it, or its reason into {FILE}: "{name}" = "..."'
                problems.append(Problem(source.path, statement.lineno, statement.col_offset, message, hint, level=0))
    return problems + excuses.faults()


def _found(source: Source) -> Iterator[tuple[ast.stmt, str]]:
    """The statements of a module that compute with arrays, with the function that each is in."""
    marked = {id(marker.statement) for marker in source.markers}

    def within(node: ast.AST, scope: str, arrays: bool) -> Iterator[tuple[ast.stmt, str]]:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            inner = f"{scope}.{child.name}".lstrip(".") if named else scope  # type: ignore[attr-defined]
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if id(child) in marked:
                    continue  # the formula above it is about all of it
                signature = ast.unparse(child.args) + (ast.unparse(child.returns) if child.returns else "")
                yield from within(child, inner, any(word in signature for word in ARRAYS))
                continue
            plain = isinstance(child, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)) and child.value
            if plain and id(child) not in marked and scope and _computes(child, arrays):
                assert isinstance(child, ast.stmt)
                yield child, scope
            yield from within(child, inner, arrays)

    yield from within(source.tree, "", False)


def _computes(statement: ast.AST, arrays: bool) -> bool:
    """Whether a statement has enough operations, and they are those of arrays."""
    count = isinstance(statement, ast.AugAssign) * 1
    library = False
    for node in ast.walk(statement):
        if isinstance(node, ast.BinOp) and isinstance(
            node.op, (ast.Mult, ast.Div, ast.Pow, ast.MatMult, ast.Add, ast.Sub)
        ):
            text = any(
                isinstance(side, (ast.Constant, ast.JoinedStr)) and _is_text(side) for side in (node.left, node.right)
            )
            count += not text
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            computing = node.func.attr.rstrip("_") in COMPUTING
            count += computing
            owner = ast.unparse(node.func).split(".")[0]
            library = library or (computing and (owner in MODULES - {"math"}))
        elif isinstance(node, (ast.ListComp, ast.DictComp, ast.JoinedStr, ast.Lambda)):
            continue
    return count >= OPERATIONS and (arrays or library)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
