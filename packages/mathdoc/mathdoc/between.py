"""What a function does between its formulas: lines that no formula describes.

A formula holds for what its line read. That the line read the right thing, and that what it computed is what the
function returns, is seen only by a formula above the function. Without one, the lines between are named here, unless
they only pass a value on under its own name: `rewards = batch["rewards"]`, a guard that raises, a `return` of what
the last formula gave.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from mathdoc.extract import Function, Source, functions
from mathdoc.formula import Formula
from mathdoc.problem import Problem


def between(source: Source, formulas: Sequence[Formula]) -> dict[str, Problem]:
    """A blind spot for each function with such lines, by the function's name."""
    found = {}
    marked = {id(marker.statement) for marker in source.markers}
    for function, scope in functions(source.tree):
        inside = [formula for formula in formulas if formula.marker.scope == scope]
        whole = any(formula.marker.whole for formula in inside)
        lines = sorted({node.lineno for node in _unseen(function, marked, whole)} if inside else ())
        if lines:
            where = f"line {lines[0]}" if len(lines) == 1 else f"lines {_ranges(lines)}"
            message = f"not seen: what {where} of `{scope}` {'does' if len(lines) == 1 else 'do'} between its formulas"
            hint = "write a formula there, or one above the function, or the reason into unmarked.toml:\n"
            hint += f'[between]\n"{source.module}.{scope}" = "..."'
            found[scope] = Problem(source.path, lines[0], function.col_offset, message, hint, level=3)
        elif not inside:
            found |= _set_elsewhere(source, function, scope, formulas)
    return found


def _set_elsewhere(source: Source, function: Function, scope: str, formulas: Sequence[Formula]) -> dict[str, Problem]:
    """An attribute that formulas of the class read, and that another method makes of an argument of another name."""
    owner = scope.rpartition(".")[0]
    read = {
        binding.var: binding.tex
        for formula in formulas
        if owner and formula.marker.scope.startswith(f"{owner}.")
        for binding in formula.bindings
        if binding.var.startswith("self.")
    }
    arguments = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)} - {"self"}
    for node in _statements(function.body):
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        for target in _targets(node):
            var = ast.unparse(target)
            if var in read and names & arguments and not _passes_on(node, ""):
                message = (
                    f"not seen: whether line {node.lineno} of `{scope}` gives `{var}` what `{read[var]}` stands for"
                )
                hint = f'write the reason into unmarked.toml:\n[between]\n"{source.module}.{scope}" = "..."'
                return {scope: Problem(source.path, node.lineno, node.col_offset, message, hint, level=3)}
    return {}


def _ranges(lines: Iterable[int]) -> str:
    """`3, 5-7`."""
    groups = [[line for _, line in run] for _, run in groupby(enumerate(lines), lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in groups)


def _unseen(function: Function, marked: set[int], whole: bool) -> Iterator[ast.stmt]:
    """The statements that could be wrong unseen. Beside a formula above the function, those that keep something."""
    last = ""
    for node in _statements(function.body):
        if id(node) in marked:
            last = ast.unparse(getattr(node, "target", None) or getattr(node, "targets", [ast.Name("")])[0])
        elif whole:
            if any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in _targets(node)):
                yield node
        elif not _passes_on(node, last):
            yield node


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a function in their order, without those of functions in it."""
    for node in body:
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, part, ()))


def _passes_on(node: ast.stmt, last: str) -> bool:
    """Whether a statement computes and chooses nothing."""
    if isinstance(node, ast.Return):
        return node.value is None or ast.unparse(_converted(node.value)) == last
    if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        return False
    if isinstance(node, ast.If):
        return not node.orelse and all(isinstance(part, ast.Raise) for part in node.body)
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, (ast.Call, ast.Await))
    targets = _targets(node)
    if not targets:
        return True
    value = getattr(node, "value", None)
    values = value.elts if isinstance(value, ast.Tuple) else [value and _converted(value)]
    return not isinstance(node, ast.AugAssign) and [_name(part) for part in values] == [_name(part) for part in targets]


def _targets(node: ast.stmt) -> list[ast.expr]:
    """What a statement writes."""
    if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        return [node.target] if node.value is not None else []
    if not isinstance(node, ast.Assign):
        return []
    return [
        part
        for target in node.targets
        for part in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])
    ]


def _converted(value: ast.expr) -> ast.expr:
    """The array of `float(array)`, `np.asarray(array)` and `array.item()`."""
    name = ast.unparse(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
    if isinstance(value, ast.Call) and name in ("float", "asarray", "array", "as_tensor") and len(value.args) == 1:
        return value.args[0]
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "item":
        return value.func.value
    return value


def _name(node: ast.expr | None) -> str | None:
    """What a variable, an attribute or an entry with a text for its key is called; None for what is computed."""
    if isinstance(node, ast.Attribute):
        return node.attr if _name(node.value) is not None else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and _name(node.value) is not None:
        return str(node.slice.value)
    return node.id if isinstance(node, ast.Name) else None
