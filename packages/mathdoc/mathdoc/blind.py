"""What the check of a formula could not see, although it passed: each is a way in which a wrong line would pass too."""

import ast
import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from mathdoc.capture import Probe, Sample
from mathdoc.constants import folded
from mathdoc.evaluate import Evaluation
from mathdoc.formula import Formula
from mathdoc.hidden import MODULES
from mathdoc.named import Array, combined
from mathdoc.notation import Binding
from mathdoc.problem import Problem
from mathdoc.tree import Indicator, Reduce, fixed, walk


def blind_spots(formula: Formula, probe: Probe, compared: set[Binding]) -> list[Problem]:
    """Gradients that were not compared, symbols that never changed, symbols that were always equal."""
    samples = probe.samples
    found = [
        *_gradients(formula, probe, compared),
        *_constant(formula, samples),
        *_alike(formula, samples),
    ]
    spots = [(_place(formula, binding), message) for binding, message in found]
    spots += [*_one_size(formula, samples), *_never_equal(formula, samples), *_branches(probe)]
    hint = "extend the exercises until they show it"
    return [formula.marker.problem(f"not seen: {message}", *span, hint=hint, level=3) for span, message in spots]


def _place(formula: Formula, binding: Binding) -> tuple[int, int]:
    return next(use.span for use in formula.uses if use.binding is binding)


def _gradients(formula: Formula, probe: Probe, compared: set[Binding]) -> Iterator[tuple[Binding, str]]:
    for binding in formula.smooth:
        differentiable = binding in probe.uncompared or any(binding in sample.gradients for sample in probe.samples)
        if differentiable and binding not in compared and not binding.implied:
            why = probe.uncompared.get(binding, "every exercise is at a kink")
            yield binding, f"the gradient in `{binding.tex}` was not compared: {why}"


def _constant(formula: Formula, samples: Sequence[Sample]) -> Iterator[tuple[Binding, str]]:
    """A number that the exercises never change may stand in the line as that number. Constants of the code may."""
    for binding in formula.bindings:
        seen = np.unique(np.concatenate([sample.values[binding].ravel() for sample in samples]))
        if len(seen) == 1 and not _is_constant(binding.var):
            yield binding, f"`{binding.tex}` always had the value {seen[0]:g}"


def _is_constant(var: str) -> bool:
    """Whether an expression is a constant by its name: in capitals, or of a module such as math."""
    root = ast.parse(var, mode="eval").body
    while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
        if isinstance(root, ast.Attribute) and re.fullmatch(r"[A-Z][A-Z0-9_]*", root.attr):
            return True
        root = root.func if isinstance(root, ast.Call) else root.value
    return isinstance(root, ast.Name) and (root.id.isupper() or root.id in MODULES)


def _alike(formula: Formula, samples: Sequence[Sample]) -> Iterator[tuple[Binding, str]]:
    """Two variables with equal or opposite values in every exercise may be exchanged unseen."""
    bindings = formula.bindings
    for at, one in enumerate(bindings):
        for other in bindings[at + 1 :]:
            if one.var != other.var and not (_is_constant(one.var) and _is_constant(other.var)):
                for name, sign in (("equal", 1.0), ("opposite", -1.0)):
                    if all(_same(sample.values[one], sign * sample.values[other]) for sample in samples):
                        yield one, f"`{one.tex}` and `{other.tex}` always had {name} values"


def _same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and bool(np.array_equal(one, other)) and bool(np.any(one))


Spot = tuple[tuple[int, int], str]


def _one_size(formula: Formula, samples: Sequence[Sample]) -> Iterator[Spot]:
    """What runs over an index of one size only may have that size written into it, if the line has such a number: a
    sum over 7, divided by 7.
    """
    assert formula.tree is not None
    if not _own_numbers(formula):
        return
    reduced = {node.letter: node for node in walk(formula.tree) if isinstance(node, Reduce)}
    sizes: dict[str, set[int]] = {}
    for sample in samples:
        evaluation = Evaluation(sample.values)
        evaluation.run(formula.tree)
        for letter, size in evaluation.sizes.items():
            sizes.setdefault(letter, set()).add(size)
    for letter, node in reduced.items():
        found = sizes.get(letter, set())
        if len(found) == 1:
            yield node.span, f"the index {letter} always ran over {found.pop()} values"


def _own_numbers(formula: Formula) -> bool:
    """Whether the line has numbers that its formula does not have: of those that name an axis, none counts."""
    assert formula.tree is not None
    said = {0.0, 1.0, *map(abs, fixed(formula.tree))}
    body = formula.marker.statement if formula.marker.whole else formula.marker.value

    def own(node: ast.AST) -> bool:
        if isinstance(node, ast.Subscript):
            return (isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int)) or own(node.value)
        if isinstance(node, ast.keyword) and node.arg in ("dim", "axis", "correction", "ddof", "keepdim"):
            return False
        number = folded(node, {}) if isinstance(node, ast.Constant) else None
        if number is not None:
            return not any(math.isclose(abs(number), other) for other in said)
        return any(map(own, ast.iter_child_nodes(node)))

    return body is not None and own(body)


STRICT = {"<": True, ">": True, "\\leq": False, "\\geq": False}
COMPARED: dict[type[ast.cmpop], bool] = {ast.Lt: True, ast.Gt: True, ast.LtE: False, ast.GtE: False}


def _never_equal(formula: Formula, samples: Sequence[Sample]) -> Iterator[Spot]:
    """Where the formula has `<` and the line `<=`, only equal values tell whether they say the same."""
    assert formula.tree is not None
    nodes = [node for node in walk(formula.tree) if isinstance(node, Indicator) and node.relation in STRICT]
    value = formula.marker.value
    code = [] if value is None or formula.marker.whole else list(ast.walk(value))
    used = [
        COMPARED[type(op)] for part in code if isinstance(part, ast.Compare) for op in part.ops if type(op) in COMPARED
    ]
    if not used or sorted(used) == sorted(STRICT[node.relation] for node in nodes):
        return
    for node in nodes:
        if not any(_meet(formula, node, sample) for sample in samples):
            yield node.span, "the two sides of this comparison were never equal, and the line has another one"


def _meet(formula: Formula, node: Indicator, sample: Sample) -> bool:
    assert formula.tree is not None
    evaluation = Evaluation(sample.values)
    evaluation.run(formula.tree)
    away = combined(np.subtract, evaluation.value(node.left), evaluation.value(node.right))
    return bool(np.any(away.values == 0))


def _branches(probe: Probe) -> Iterator[Spot]:
    """A way that the exercises never went."""
    for (line, outcome), reached in probe.branches.items():
        if not reached:
            yield (0, 0), f"the condition in line {line} was never {str(outcome).lower()}"
