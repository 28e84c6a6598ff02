"""What the check of a formula could not see, although it passed: each is a way in which a wrong line would pass too."""

import ast
import re
from collections.abc import Iterator, Sequence

import numpy as np

from mathdoc.capture import Probe, Sample
from mathdoc.formula import Formula
from mathdoc.named import Array
from mathdoc.notation import Binding
from mathdoc.problem import Problem
from mathdoc.reading import MODULES


def blind_spots(formula: Formula, probe: Probe, compared: set[Binding]) -> list[Problem]:
    """Gradients that were not compared, symbols that never changed, symbols that were always equal."""
    samples = probe.samples
    found = [
        *_gradients(formula, probe, compared),
        *_constant(formula, samples),
        *_alike(formula, samples),
    ]
    return [formula.marker.problem(f"not seen: {message}", *_place(formula, b), level=3) for b, message in found]


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
