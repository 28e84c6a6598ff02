"""What a line's code alone tells: what its formula does not say, a symbol that it does not read, one written again."""

import ast
import re
from collections.abc import Iterator

from mathdoc.extract import Source
from mathdoc.formula import Formula
from mathdoc.hidden import hidden_faults
from mathdoc.notation import normal
from mathdoc.problem import Problem


def line_faults(source: Source, formulas: list[Formula]) -> list[Problem]:
    """Every fault that shows without running anything."""
    found: list[Problem] = list(hidden_faults(source, formulas))
    for formula in formulas:
        if formula.tree is not None:
            found += [*_unread(formula), *_misnamed(formula)]
    return found + list(_stale(source, formulas))


# --- symbols and variables --------------------------------------------------------------------------------------


def _unread(formula: Formula) -> Iterator[Problem]:
    """A symbol's variable must be in its line, or the table says why it need not."""
    value = formula.marker.value
    if value is None:
        return
    body = formula.marker.statement if formula.marker.whole else value
    read = {ast.dump(node) for part in (value, body) for node in ast.walk(part) if isinstance(node, ast.expr)}
    for binding in formula.bindings:
        expression = ast.parse(binding.var, mode="eval").body
        root = expression
        while formula.marker.whole and isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if binding.implied or ast.dump(root) in read or any(ast.dump(n) in read for n in _measured(expression)):
            continue
        span = next(use.span for use in formula.uses if use.binding is binding)
        hint = 'if it is there under another name, say so in the table: implied = "..."'
        message = f"`{binding.tex}` is `{binding.var}`, which this line does not read"
        yield formula.marker.problem(message, *span, hint=hint, level=2)


def _measured(expression: ast.expr) -> Iterator[ast.expr]:
    """The array of which an expression is the size: a mean over it divides by that."""
    if isinstance(expression, ast.Subscript) and isinstance(expression.value, ast.Attribute):
        if expression.value.attr == "shape":
            yield expression.value.value
    elif isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name) and expression.func.id == "len":
        yield from expression.args
    elif isinstance(expression, ast.Call) and ast.unparse(expression.func).endswith((".size", ".numel")):
        yield ast.parse(ast.unparse(expression.func).rpartition(".")[0], mode="eval").body


GREEK = "alpha beta gamma delta epsilon eta theta kappa lambda mu nu rho sigma tau phi psi omega"


def _misnamed(formula: Formula) -> Iterator[Problem]:
    r"""A variable called `gamma` is `\gamma`, if its line has both."""
    value = formula.marker.value
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)} if value is not None else set()
    for binding in formula.bindings:
        letter = binding.tex.removeprefix("\\")
        if letter in GREEK.split() and letter in names and binding.var != letter and not binding.implied:
            span = next(use.span for use in formula.uses if use.binding is binding)
            message = f"`{binding.tex}` is `{binding.var}` in the table, and the line has a variable `{letter}`"
            yield formula.marker.problem(message, *span, level=2)


# --- variables written again ------------------------------------------------------------------------------------


def _stale(source: Source, formulas: list[Formula]) -> Iterator[Problem]:
    """A variable that a formula defines is not written again without a formula, nor one that a formula reads."""
    marked = {id(formula.marker.statement): formula for formula in formulas}
    for function in ast.walk(source.tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        inside = {id(node) for node in ast.walk(function)}
        here = [formula for formula in formulas if id(formula.marker.statement) in inside]
        here = [formula for formula in here if _innermost(function, formula.marker.statement)]
        here = [formula for formula in here if not formula.marker.whole]
        for target, place in _writes(function):
            writer = marked.get(id(place))
            for formula in here:
                if writer is not None:
                    yield from _renamed(function, formula, writer)
                    continue
                what = _made_stale(function, formula, target, place)
                if what:
                    yield formula.marker.problem(
                        f"{what}, and line {place.lineno} writes that again without a formula",
                        hint="give the second value a name of its own",
                        level=2,
                    )


def _made_stale(function: ast.AST, formula: Formula, target: str, place: ast.stmt) -> str:
    """What a write makes untrue of a formula in the same function."""
    statement = formula.marker.statement
    if (
        target == formula.marker.target
        and place.lineno > statement.lineno
        and not _exclusive(function, statement, place)
    ):
        return f"`{formula.left.tex}` is `{target}`"
    parameters = {argument.arg for argument in ast.walk(function) if isinstance(argument, ast.arg)}
    read = {binding.var: binding for binding in formula.bindings if binding.when != "before"}
    if target in read and target in parameters and place.lineno < statement.lineno:
        return f"`{read[target].tex}` is the argument `{target}`"
    return ""


def _renamed(function: ast.AST, formula: Formula, writer: Formula) -> Iterator[Problem]:
    """A symbol of the table whose variable an earlier formula has given another value: that value has its symbol."""
    statement, earlier = formula.marker.statement, writer.marker.statement
    if earlier.lineno >= statement.lineno or _exclusive(function, earlier, statement):
        return
    for binding in formula.bindings:
        other = _without_index(binding.tex) != _without_index(writer.left.tex)
        if binding.var == writer.marker.target and not binding.assigned and other:
            span = next(use.span for use in formula.uses if use.binding is binding)
            message = (
                f"`{binding.tex}` is `{binding.var}`, which has become `{writer.left.tex}` in line {earlier.lineno}"
            )
            yield formula.marker.problem(message, *span, hint="compute this line before that one", level=2)


def _without_index(tex: str) -> str:
    return re.sub(r"_(\{[^{}]*\}|.)", "", normal(tex).replace(" ", ""))


def _innermost(function: ast.AST, statement: ast.stmt) -> bool:
    nested = [node for node in ast.walk(function) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return not any(node is not function and any(statement is n for n in ast.walk(node)) for node in nested)


def _writes(function: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """Each variable that a statement of a function writes, with the statement."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
                yield from ((ast.unparse(part), node) for part in parts)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            yield ast.unparse(node.target), node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and called.attr.endswith("_") and not called.attr.startswith("_"):
                yield ast.unparse(called.value), node


def _exclusive(function: ast.AST, one: ast.stmt, other: ast.stmt) -> bool:
    """Whether two statements are in different branches, so that only one of them runs."""
    for node in ast.walk(function):
        if isinstance(node, ast.If):
            ends = isinstance(node.body[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break))
            if ends and any(one is n for n in ast.walk(node)) and other.lineno > (node.end_lineno or 0):
                return True
            yes = {id(n) for part in node.body for n in ast.walk(part)}
            no = {id(n) for part in node.orelse for n in ast.walk(part)}
            if (id(one) in yes and id(other) in no) or (id(one) in no and id(other) in yes):
                return True
    return False
