"""Numbers behind symbols: what a constant is, and what an argument is by default, is in no formula.

A meaning says it: `"0.9: share that is kept"` of a constant, `"0.9 by default: share that is kept"` of an argument.
"""

import math
import re
from collections.abc import Iterator, Sequence

from mathdoc.constants import constants, defaults
from mathdoc.extract import Source, functions
from mathdoc.formula import Formula
from mathdoc.notation import Binding
from mathdoc.problem import Problem

FIGURES = r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
NUMBER = re.compile(FIGURES + r"(?=$|[:;])")
DEFAULT = re.compile(FIGURES + r" by default\b")


def unsaid(source: Source, formulas: Sequence[Formula]) -> list[Problem]:
    """Blind spots: constants and defaults whose number no meaning says."""
    return [
        formula.marker.problem(f"not seen: {message}", *_span(formula, binding), hint=hint, level=3)
        for formula, binding, number, form in _numbers(source, formulas)
        if not form.match(binding.text)
        for said in [f"{number:.12g}{' by default' if form is DEFAULT else ''}"]
        for message in [f"that `{binding.tex}`, `{binding.var}`, is {said}"]
        for hint in [f'begin its meaning with it: text = "{said}: {binding.text}"']
    ]


def wrong_defaults(source: Source, formulas: Sequence[Formula]) -> list[Problem]:
    """Defaults that are not what the meaning says."""
    return [
        formula.marker.problem(
            f"the table says that `{binding.tex}` is {said[1]} by default, and `{binding.var}` is {number:g}",
            *_span(formula, binding),
            level=2,
        )
        for formula, binding, number, form in _numbers(source, formulas)
        for said in [DEFAULT.match(binding.text)]
        if form is DEFAULT and said and not math.isclose(float(said[1]), number, rel_tol=1e-9)
    ]


def _numbers(source: Source, formulas: Sequence[Formula]) -> Iterator[tuple[Formula, Binding, float, re.Pattern[str]]]:
    """Each symbol that stands for a constant or for an argument with a default, its number, and how it is said."""
    named = constants(source.tree)
    arguments = {scope: defaults(function, named) for function, scope in functions(source.tree)}
    seen: set[int] = set()
    for formula in formulas:
        given = arguments.get(formula.marker.scope, {})
        for binding in formula.bindings:
            number = given.get(binding.var, named.get(binding.var, -1.0))
            if number >= 0 and id(binding) not in seen:
                seen.add(id(binding))
                yield formula, binding, number, DEFAULT if binding.var in given else NUMBER


def _span(formula: Formula, binding: Binding) -> tuple[int, int]:
    return next(use.span for use in formula.uses if use.binding is binding)
