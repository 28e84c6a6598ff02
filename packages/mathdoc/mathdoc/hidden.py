"""What a line's code does and its formula does not say: limits, choices, roundings, numbers that do not show.

All of it may be without effect on the small data of the exercises, and have one elsewhere; so it is read from the code.
"""

import ast
import math
import re
from collections.abc import Callable, Iterator, Sequence

from mathdoc.constants import constants, folded
from mathdoc.extract import Source
from mathdoc.formula import Formula
from mathdoc.problem import Problem
from mathdoc.tree import Call, Cases, Indicator, Member, Node, Power, Reduce, Use, walk
from mathdoc.tree import fixed as fixed_numbers

LIMITS = {"clamp", "clip", "minimum", "maximum", "fmin", "fmax", "relu", "relu6", "hardtanh", "threshold", "leaky_relu"}
CHOICES = {"where", "masked_fill", "masked_select", "heaviside", "piecewise", "select", "choose", "cond", "switch"}
COMPARISONS = {"gt", "lt", "ge", "le", "eq", "ne", "greater", "less", "greater_equal", "less_equal", "isclose"}
ROUNDINGS = {"floor", "ceil", "round", "rint", "trunc", "fix", "int", "long", "short", "half", "bfloat16"}
FOLDS = {"abs", "absolute", "fabs"}
PLACES = {"gather", "take_along_dim", "take_along_axis", "index_select", "one_hot", "take", "scatter"}
SIZED = {"range", "arange", "linspace", "zeros", "ones", "full", "empty", "reshape", "view", "expand", "randn"}
"""Calls whose plain numbers are sizes."""
MODULES = {"torch", "np", "numpy", "jnp", "jax", "math", "F"}

WHOLE_NUMBERS = re.compile(r"\b(u?int(8|16|32|64)?|long|short)\b")
NARROW = re.compile(r"\b(u?int(8|16)|short|b?float16|half)\b")
SMALL, LARGE = 1e-4, 10
"""Numbers below the one and from the other on may have no effect that shows."""
SMALL_NAME = re.compile(r"(^|_)(eps|epsilon|tiny)(_|\d|$)", re.IGNORECASE)

Functions = dict[str, ast.FunctionDef]


def hidden_faults(source: Source, formulas: Sequence[Formula]) -> Iterator[Problem]:
    """Each thing of this kind in the marked lines of a module; for a formula above a function, in all its lines."""
    marked = {marker.scope for marker in source.markers}
    helpers = {n.name: n for n in source.tree.body if isinstance(n, ast.FunctionDef) and n.name not in marked}
    known = constants(source.tree)
    for formula in formulas:
        if formula.tree is None or formula.marker.value is None:
            continue
        code = [formula.marker.value, *_unmarked(formula, formulas)]
        yield from _operations(formula, formula.tree, [call for part in code for call in _calls(part, helpers)])
        if "float64" not in formula.marker.slack:
            yield from _numbers(formula, formula.tree, code, known)
        yield from _axes(formula, code)


def _unmarked(formula: Formula, formulas: Sequence[Formula]) -> list[ast.AST]:
    """The plain statements of a function that has a formula above it, but for those with one of their own."""
    marked = {id(other.marker.statement) for other in formulas}
    plain = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)
    nodes = list(ast.walk(formula.marker.statement)) if formula.marker.whole else []
    found: list[ast.AST] = [node for node in nodes if isinstance(node, plain) and id(node) not in marked]
    return found + [node.iter for node in nodes if isinstance(node, ast.For)]


# --- limits, choices, roundings ---------------------------------------------------------------------------------


def _operations(formula: Formula, tree: Node, calls: Sequence[tuple[ast.AST, str]]) -> Iterator[Problem]:
    """Operations of the code for which its formula has no room."""
    limits, choices, roundings, folds = _said(tree)
    for kind, room, what in (
        ("limit", limits + choices, "limits a value"),
        ("choice", limits + choices, "chooses between values"),
        ("comparison", limits + choices + folds + _ranges(tree), "compares values"),
        ("or", len(calls) if formula.marker.whole else limits + choices, "chooses between values"),
        ("rounding", roundings, "rounds a value"),
        ("fold", limits + folds, "takes an absolute value"),
        ("never", 0, "replaces what is not a number"),
    ):
        extra = [call for call, name in calls if name == kind][room:]
        if extra:
            message = f"the line {what} and the formula does not say so: `{ast.unparse(extra[-1])}`"
            yield formula.marker.problem(message, hint="write it in the formula, or leave it out", level=2)


def _ranges(tree: Node) -> int:
    """How many indices end before their arrays do, which code may see to by a comparison."""
    ends = [node for node in walk(tree) if isinstance(node, Reduce) and any((node.lower, node.upper, node.apart))]
    indices = [index for node in walk(tree) if isinstance(node, Use) for index in node.indices]
    return len(ends) + sum(bool(index.shift or index.other) for index in indices)


def _said(tree: Node) -> tuple[int, int, int, int]:
    """How many limits, choices, roundings and absolute values a formula has."""
    limits = choices = roundings = folds = 0
    for node in walk(tree):
        if isinstance(node, Call):
            limits += {"clip": 2, "max": 1, "min": 1, "relu": 1}.get(node.function, 0)
            roundings += node.function in ("floor", "ceil", "round", "sign", "mod")
            folds += node.function in ("abs", "sqrt", "norm", "norm1", "norminf")
        elif isinstance(node, Reduce):
            limits += node.kind in ("max", "min")
            choices += node.member is not None
        elif isinstance(node, (Indicator, Member)):
            choices += 1
        elif isinstance(node, Cases):
            choices += len(node.values)
        folds += isinstance(node, Power)
    return limits, choices, roundings, folds


def _calls(value: ast.AST, helpers: Functions) -> Iterator[tuple[ast.AST, str]]:
    """The operations in an expression by kind, and those in the module's functions without markers that it calls."""
    conditions, places = _inside(value, _conditions), _inside(value, _places)
    for node in ast.walk(value):
        if isinstance(node, ast.IfExp):
            yield node, "choice"
        elif isinstance(node, ast.BoolOp) and id(node) not in conditions:
            yield node, "or"
        elif isinstance(node, ast.Compare) and id(node) not in conditions and _of_numbers(node):
            yield node, "comparison"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv) and id(node) not in places:
            yield node, "rounding"
        elif isinstance(node, ast.Call):
            kind = _kind(node, id(node) in places)
            yield from ((node, kind) for _ in range(2 if kind == "limit" and _two_ended(node) else bool(kind)))
            if isinstance(node.func, ast.Name) and node.func.id in helpers:
                without = {key: helper for key, helper in helpers.items() if key != node.func.id}
                inside = [kind for part in helpers[node.func.id].body for _, kind in _calls(part, without)]
                yield from ((node, kind) for kind in inside if kind not in ("comparison", "or"))


def _kind(call: ast.Call, place: bool) -> str:
    """What a call does to values, by its name; whole numbers that are places in an array round nothing."""
    name = ast.unparse(call.func).rpartition(".")[2].rstrip("_")
    if name.startswith("nan"):
        return "never"
    if name in LIMITS or name.startswith(("clip_", "clamp_")) or (name in ("max", "min") and _of_two(call)):
        return "limit"
    if name in ROUNDINGS or _to_whole_numbers(call, name):
        return "" if place else "rounding"
    kinds = {"choice": CHOICES, "comparison": COMPARISONS, "fold": FOLDS}
    return next((kind for kind, names in kinds.items() if name in names), "")


def _to_whole_numbers(call: ast.Call, name: str) -> bool:
    """Whether a call makes whole numbers, or others that few values fit in, of what is no comparison."""
    if name in ("astype", "to", "type") and isinstance(call.func, ast.Attribute):
        given = " ".join(ast.unparse(part) for part in (*call.args, *(keyword.value for keyword in call.keywords)))
        return bool(WHOLE_NUMBERS.search(given)) and not isinstance(call.func.value, ast.Compare)
    return any(keyword.arg == "dtype" and NARROW.search(ast.unparse(keyword.value)) for keyword in call.keywords)


def _inside(value: ast.AST, chosen: Callable[[ast.AST], list[ast.AST]]) -> set[int]:
    """The nodes below those parts of an expression that a function names."""
    return {id(node) for part in ast.walk(value) for top in chosen(part) for node in ast.walk(top)}


def _conditions(node: ast.AST) -> list[ast.AST]:
    """What a choice depends on."""
    if isinstance(node, ast.IfExp):
        return [node.test]
    name = ast.unparse(node.func).rpartition(".")[2].rstrip("_") if isinstance(node, ast.Call) else ""
    return list(node.args) if isinstance(node, ast.Call) and name in CHOICES else []


def _places(node: ast.AST) -> list[ast.AST]:
    """Where an array is read."""
    if isinstance(node, ast.Subscript):
        return [node.slice]
    name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
    return list(node.args) if isinstance(node, ast.Call) and name in PLACES else []


def _of_numbers(node: ast.Compare) -> bool:
    plain = all(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)) for op in node.ops)
    texts = [part for part in (node.left, *node.comparators) if isinstance(part, ast.Constant)]
    return plain and not any(isinstance(part.value, str) or part.value is None for part in texts)


def _of_two(call: ast.Call) -> bool:
    """Whether a `max` or `min` is that of two values, not that over an axis."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    module = isinstance(owner, ast.Name) and owner.id in MODULES
    given = len(call.args) + (0 if owner is None or module else 1)
    axis = bool(call.args) and isinstance(_positive(call.args[-1]), ast.Constant)
    return given >= 2 and (owner is None or not axis)


def _two_ended(call: ast.Call) -> bool:
    """Whether a clamp has a lower and an upper end: as a minimum of a maximum, it limits twice."""
    name = ast.unparse(call.func).rpartition(".")[2].rstrip("_")
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    module = owner is None or (isinstance(owner, ast.Name) and owner.id in MODULES)
    return name in ("clamp", "clip") and len(call.args) + len(call.keywords) - module >= 2


def _positive(node: ast.expr) -> ast.expr:
    return node.operand if isinstance(node, ast.UnaryOp) else node


# --- numbers and axes -----------------------------------------------------------------------------------


def _numbers(formula: Formula, tree: Node, code: Sequence[ast.AST], known: dict[str, float]) -> Iterator[Problem]:
    """Numbers so small or so large that they may do nothing in the exercises, and the formula does not have them."""
    said = fixed_numbers(tree)
    bound = {name for binding in formula.bindings for name in re.findall(r"\w+", binding.var)}
    for part in code:
        for node, value in _extremes(part, known):
            text = ast.unparse(node)
            if not any(math.isclose(abs(value), abs(other), rel_tol=1e-9) for other in said) and not (
                bound & set(re.findall(r"\w+", text))
            ):
                message = f"the line has `{text}`, and the formula does not say so"
                yield formula.marker.problem(message, hint="write it in the formula, or leave it out", level=2)


def _extremes(part: ast.AST, known: dict[str, float]) -> Iterator[tuple[ast.AST, float]]:
    """The numbers in an expression that may not show: written, computed from such, constants, and those called so."""
    added = isinstance(part, ast.BinOp) and isinstance(part.op, (ast.Add, ast.Sub))  # 1 + 1e-12 is near 1, and differs
    value = None if added else folded(part, known)
    if value is not None:
        if value != 0 and math.isfinite(value) and not SMALL <= abs(value) < LARGE:
            yield part, value
        return
    name = getattr(part, "id", getattr(part, "attr", ""))
    if isinstance(part, (ast.Name, ast.Attribute)) and SMALL_NAME.search(name):
        yield part, math.nan
        return
    sizes = isinstance(part, ast.Call) and ast.unparse(part.func).rpartition(".")[2] in SIZED
    for child in ast.iter_child_nodes(part):
        if not (sizes and isinstance(child, ast.Constant)):
            yield from _extremes(child, known)


def _axes(formula: Formula, code: Sequence[ast.AST]) -> Iterator[Problem]:
    """An axis of one entry is as good as another, unless it is by chance that it has one."""
    for node in (node for part in code for node in ast.walk(part) if isinstance(node, ast.Call)):
        function = node.func
        module = isinstance(function, ast.Attribute) and ast.unparse(function.value) in MODULES
        if ast.unparse(function).endswith("squeeze") and len(node.args) + len(node.keywords) == module:
            message = f"`{ast.unparse(node)}` takes away every axis that happens to have one entry"
            yield formula.marker.problem(message, hint="say which axis: squeeze(-1)", level=2)
