"""Mathematics without a formula: statements that compute with arrays, and have no marker.

They are listed where a package has an `unmarked.toml` beside its folder of notation tables, with the reasons for those
that stay without one:

    [excused]
    "formulas.categorical.edges" = "the middle between two atoms; tests/test_categorical.py checks it"
    "envs.*" = "simulators, not the algorithms that the formulas describe"

A key is a module with a function, a module, or the beginning of one before `*`.
"""

import ast
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from mathdoc.extract import Source
from mathdoc.notation import METHODS
from mathdoc.problem import MathdocError, Problem
from mathdoc.reading import MODULES

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


def unmarked(sources: Iterable[Source], folder: Path) -> list[Problem]:
    """A problem for each such statement that nobody excused, and for each excuse that is not needed."""
    path = folder / FILE
    if not path.is_file():
        return []
    try:
        excused: dict[str, str] = tomllib.loads(path.read_text()).get("excused", {})
    except tomllib.TOMLDecodeError as error:
        raise MathdocError(f"{path} cannot be read: {error}") from error
    needed: set[str] = set()
    problems = []
    for source in sources:
        for statement, scope in _found(source):
            name = f"{source.module}.{scope}".rstrip(".")
            keys = [key for key in excused if fnmatchcase(name, key) or name.startswith(f"{key}.")]
            needed.update(keys[:1])
            if not keys:
                message = "this computes with arrays and has no formula"
                hint = f'write a marker above it, or its reason into {FILE}: "{name}" = "..."'
                problems.append(Problem(source.path, statement.lineno, statement.col_offset, message, hint, level=0))
    for key, reason in excused.items():
        if key not in needed or not reason.strip():
            fault = "excuses nothing: remove it" if reason.strip() else "has no reason"
            problems.append(Problem(path, 1, 0, f'"{key}" {fault}', level=0))
    return problems


def _found(source: Source) -> Iterator[tuple[ast.stmt, str]]:
    """The statements of a module that compute with arrays, with the function that each is in."""
    marked = {id(marker.statement) for marker in source.markers}

    def within(node: ast.AST, scope: str, arrays: bool) -> Iterator[tuple[ast.stmt, str]]:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            inner = f"{scope}.{child.name}".lstrip(".") if named else scope  # type: ignore[attr-defined]
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
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
