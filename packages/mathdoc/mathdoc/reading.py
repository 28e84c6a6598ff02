"""What a line's code alone tells: what its formula does not say, a symbol that it does not read, one written again."""

import ast
import re
from collections.abc import Iterator, Sequence

from mathdoc.extract import Source
from mathdoc.formula import Formula
from mathdoc.hidden import MODULES, hidden_faults
from mathdoc.lexer import tokens
from mathdoc.notation import normal
from mathdoc.problem import Problem
from mathdoc.tree import Apply, walk


def line_faults(source: Source, formulas: list[Formula]) -> list[Problem]:
    """Every fault that shows without running anything."""
    found: list[Problem] = list(hidden_faults(source, formulas))
    for formula in formulas:
        if formula.tree is not None:
            found += [*_unread(formula, formulas), *_misnamed(formula), *_misplaced(formula)]
    return found + list(_stale(source, formulas))


# --- symbols and variables --------------------------------------------------------------------------------------


def _unread(formula: Formula, formulas: Sequence[Formula]) -> Iterator[Problem]:
    """A symbol's variable must be in its line, or what its own formula computes it from; else the table says why."""
    value = formula.marker.value
    if value is None:
        return
    body = formula.marker.statement if formula.marker.whole else value
    read = {ast.dump(node) for part in (value, body) for node in ast.walk(part) if isinstance(node, ast.expr)}
    for node in walk(formula.tree) if formula.tree is not None else ():
        called = ast.parse(node.binding.var, mode="eval").body if isinstance(node, Apply) else None
        if called is not None and ast.dump(called) not in read:
            yield formula.marker.problem(f"this line does not call `{ast.unparse(called)}`", *node.span, level=2)
    counted = [index.round for use in formula.uses for index in use.indices]  # compared with the number of entries
    for binding in dict.fromkeys(use.binding for use in formula.uses if not any(use is other for other in counted)):
        expression = ast.parse(binding.var, mode="eval").body
        root = expression
        while formula.marker.whole and isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if binding.implied or ast.dump(root) in read or any(ast.dump(n) in read for n in _measured(expression)):
            continue
        above = next((other.marker.value for other in formulas if other.left is binding), None)
        if above is not None and _names(above) <= _names(value):
            continue
        span = next(use.span for use in formula.uses if use.binding is binding)
        hint = 'if the line holds it under another name, say which in its entry of the table: implied = "..."'
        message = f"`{binding.tex}` is `{binding.var}`, which this line does not read"
        yield formula.marker.problem(message, *span, hint=hint, level=2)


def _names(value: ast.expr) -> set[str]:
    """The variables that an expression reads."""
    return {node.id for node in ast.walk(value) if isinstance(node, ast.Name)} - MODULES


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


# --- places -----------------------------------------------------------------------------------------------------


def _misplaced(formula: Formula) -> Iterator[Problem]:
    """A line that writes a part of an array writes it where its formula, which reads neighbours, says."""
    shifts: dict[str, list[int]] = {}
    for use in formula.uses:
        for index in use.indices:
            shifts.setdefault(index.letter, []).append(0 if index.round else index.shift)
    target = getattr(formula.marker.statement, "targets", [None])[0]
    starts = _starts(target) if isinstance(target, ast.Subscript) else []
    written = {letter: shift for letter, shift in _written(formula.left.tex) if letter in formula.left.letters}
    for letter, start in zip(written, starts, strict=False):
        moved = shifts.get(letter, [])
        first = max([0, *(-shift for shift in moved)]) + written[letter]
        if any(moved) and start is not None and start != first:
            message = (
                f"the line writes from the entry {start} on, and by the formula {letter} begins at the entry {first}"
            )
            yield formula.marker.problem(message, *formula.left_span, level=2)


def _starts(target: ast.Subscript) -> list[int | None]:
    """Where each slice of an assigned part begins; None where that does not stand there as a number."""
    parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
    slices = [part for part in parts if isinstance(part, ast.Slice)]
    if not all(isinstance(part, (ast.Slice, ast.Constant)) and part.__dict__.get("value") is not ... for part in parts):
        return []
    said = [0 if part.lower is None else getattr(part.lower, "value", None) for part in slices if part.step is None]
    return [start if isinstance(start, int) else None for start in said] if len(said) == len(slices) else []


def _written(tex: str) -> Iterator[tuple[str, int]]:
    """The indices of a left-hand side with their shifts: `u_{i+1}`."""
    found = [token for token in tokens(tex) if token.scripted]
    for at, token in enumerate(found):
        if token.kind == "letter":
            sign, number = ([other.text for other in found[at + 1 : at + 3]] + ["", ""])[:2]
            shifted = sign in ("+", "-") and number.isdigit()
            yield token.text, int(sign + number) if shifted else 0


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
