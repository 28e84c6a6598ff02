"""Numbers that have a name: a module's constants and the defaults of arguments."""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping

from mathdoc.extract import Function, functions

Operation = Callable[[float, float], float]
OPERATIONS: dict[type[ast.operator], Operation] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def folded(node: ast.AST, known: Mapping[str, float]) -> float | None:
    """The number that an expression of numbers is; None if there is anything else in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = folded(node.operand, known)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        left, right = folded(node.left, known), folded(node.right, known)
        try:
            return None if left is None or right is None else float(OPERATIONS[type(node.op)](left, right))
        except (ArithmeticError, TypeError):
            return None
    return None


def constants(tree: ast.Module) -> dict[str, float]:
    """The numbers that a module gives names in capitals."""
    found: dict[str, float] = {}
    for name, value in _assigned(tree):
        number = folded(value, found)
        if name.isupper() and number is not None:
            found[name] = number
    return found


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Each name that a statement of the module gives a value, `A, B = 1, 2` included."""
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = getattr(node, "value", None)
        for target in targets:
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                pairs = list(zip(target.elts, value.elts, strict=True))
            yield from ((part.id, given) for part, given in pairs if isinstance(part, ast.Name) and given is not None)


def defaults(function: Function, known: Mapping[str, float]) -> dict[str, float]:
    """The numbers that arguments are if nobody says otherwise."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    pairs = [
        *zip(positional[len(positional) - len(given.defaults) :], given.defaults, strict=True),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    numbers = {argument.arg: folded(value, known) for argument, value in pairs if value is not None}
    return {name: number for name, number in numbers.items() if number is not None}


def with_number(tree: ast.Module, scope: str, var: str, text: str) -> str:
    """A meaning that says the number, if its variable is one."""
    named = constants(tree)
    given = next((defaults(function, named) for function, name in functions(tree) if name == scope), {})
    if given.get(var, -1.0) >= 0:
        return f"{given[var]:.12g} by default: {text}"
    return f"{named[var]:.12g}: {text}" if named.get(var, -1.0) >= 0 else text
