"""Automatic mutants of a formula: each is wrong in one place, and a check that means something rejects it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from mathdoc.capture import Sample
from mathdoc.evaluate import Evaluation
from mathdoc.problem import FormulaError
from mathdoc.shapes import shape_of
from mathdoc.tree import (
    Apply,
    Call,
    Cases,
    Continuous,
    Elementwise,
    Identity,
    Imaginary,
    Index,
    Indicator,
    Integral,
    Inverse,
    Matrix,
    Member,
    Node,
    Number,
    Position,
    Power,
    Product,
    Quotient,
    Reduce,
    Sum,
    Transposed,
    Use,
    free_axes,
    replaced,
    walk,
)

OPPOSITE = {"<": ">", ">": "<", "\\leq": "\\geq", "\\geq": "\\leq", "=": "\\neq", "\\neq": "="}
OTHER_KIND = {"sum": "mean", "mean": "sum", "max": "min", "min": "max", "prod": "sum", "var": "std", "std": "var"}
OTHER_KIND |= {"argmax": "argmin", "argmin": "argmax", "median": "mean"}


EXCHANGED = "two indices exchanged"
TURNED = "two matrices exchanged"


@dataclass(frozen=True)
class Mutant:
    """A changed tree, and what was changed."""

    tree: Node
    what: str
    span: tuple[int, int]


Change = tuple[Node, str] | tuple[Node, str, Node]
"""A node for the old one, what was changed, and where, if that is only a part of the node."""


def mutants(tree: Node) -> list[Mutant]:
    """Every formula that differs from this one in a single place."""
    uses = list({node.binding: node for node in walk(tree) if isinstance(node, Use)}.values())
    found = []
    for node in walk(tree):
        for new, what, *place in _changes(node, uses):
            if what == EXCHANGED and _renames(tree, node):
                continue
            found.append(Mutant(replaced(tree, node, new), what, place[0].span if place else node.span))
    return found


def equivalent(mutant: Mutant, tree: Node, sample: Sample) -> bool:
    """Whether an exchange is none, whatever the arrays hold: the trace of A B is that of B A."""
    if mutant.what not in (EXCHANGED, TURNED):
        return False
    random = np.random.default_rng(0)
    arrays = {b: v for b, v in sample.values.items() if b.shape != "function" and v.size > 1}
    others = {**sample.values, **{b: random.uniform(0.5, 1.5, v.shape) for b, v in arrays.items()}}
    try:
        one, two = (Evaluation(others, sample.sizes).run(node) for node in (tree, mutant.tree))
    except (FormulaError, KeyError):
        return False
    same = set(one.axes) == set(two.axes) and one.values.shape == two.over(one.axes).shape
    return same and np.allclose(one.values, two.over(one.axes), rtol=1e-12, atol=0)


def _changes(node: Node, uses: list[Use]) -> Iterator[Change]:
    if isinstance(node, Sum):
        yield from _sums(node)
    elif isinstance(node, (Product, Elementwise)):
        for at, factor in enumerate(node.factors):
            if not _one(factor) and not isinstance(factor, Identity):
                yield _product(node, at), "a factor dropped", factor
        yield from _exchanged(node)
    elif isinstance(node, Matrix) and shape_of(node) == "matrix":
        yield Transposed(node), "rows and columns exchanged"
    elif isinstance(node, (Transposed, Inverse)):
        yield node.body, "a transpose dropped" if isinstance(node, Transposed) else "an inverse dropped"
    elif isinstance(node, Cases):
        for value in node.values:
            yield value, "all cases but one dropped", value
        yield replace(node, values=node.values[::-1]), "the cases in the other order"
    elif isinstance(node, Quotient):
        yield node.top, "a denominator dropped"
        if not (isinstance(node.top, Number) and node.top.value == 1):
            yield replace(node, top=Number(1.0)), "a numerator dropped"
    elif isinstance(node, Power):
        yield node.base, "an exponent dropped"
    elif isinstance(node, Number):
        yield replace(node, value=node.value + 1 if math.isfinite(node.value) else 0.0), "a number changed"
    elif isinstance(node, Call):
        yield from _calls(node)
    else:
        yield from _special(node, uses)


def _special(node: Node, uses: list[Use]) -> Iterator[Change]:
    """Of conditions, of symbols, and of what runs over an index or a variable."""
    if isinstance(node, Apply):
        for argument in node.arguments:
            yield argument, f"`{node.binding.tex}` dropped"
    elif isinstance(node, Integral):
        (letter,) = free_axes(node.over)
        yield Reduce("sum", letter, node.body), "a sum for the integral"
        yield replace(node, body=Number(1.0)), "what is integrated dropped"
    elif isinstance(node, Continuous):
        yield replace(node, body=Number(1.0)), "what is integrated dropped"
        yield replace(node, lower=node.upper, upper=node.lower), "the limits exchanged"
    elif isinstance(node, Reduce):
        yield from _reductions(node)
    elif isinstance(node, Indicator):
        yield replace(node, relation=OPPOSITE[node.relation]), "a comparison turned round"
        yield Number(1.0), "an indicator dropped"
    elif isinstance(node, Member):
        yield Number(1.0), "a set dropped"
    elif isinstance(node, Imaginary):
        yield Number(1.0), "the imaginary unit dropped"
        yield Sum((node,), (-1,)), "the other sign"
    elif isinstance(node, Position):
        yield Number(1.0), "a position dropped"
    elif isinstance(node, Use):
        yield from _symbols(node, uses)


def _renames(tree: Node, node: Node) -> bool:
    """Whether exchanging a symbol's indices only renames them: both are summed alike, and nothing else has them."""
    assert isinstance(node, Use)
    letters = {index.letter for index in node.indices[:2]}
    others = [n for n in walk(tree) if isinstance(n, Use) and n is not node and letters & {i.letter for i in n.indices}]
    over = [n for n in walk(tree) if isinstance(n, Reduce) and n.letter in letters]
    return not others and len(over) == 2 and over[0].kind == over[1].kind and not any(n.beside for n in over)


def _one(node: Node) -> bool:
    return isinstance(node, Number) and node.value == 1


def _exchanged(node: Product | Elementwise) -> Iterator[Change]:
    """Matrices in the other order."""
    for at, (one, other) in enumerate(pairwise(node.factors)):
        if shape_of(one) == shape_of(other) == "matrix" and isinstance(node, Product):
            factors = (*node.factors[:at], other, one, *node.factors[at + 2 :])
            yield replace(node, factors=factors), TURNED, other


def _product(node: Product | Elementwise, without: int) -> Node:
    rest = tuple(factor for at, factor in enumerate(node.factors) if at != without)
    return rest[0] if len(rest) == 1 else replace(node, factors=rest)


def _sums(node: Sum) -> Iterator[Change]:
    for at, changed in enumerate(node.terms):
        signs = tuple(-sign if k == at else sign for k, sign in enumerate(node.signs))
        yield replace(node, signs=signs), "the other sign", changed
        if len(node.terms) > 1:
            terms = tuple(term for k, term in enumerate(node.terms) if k != at)
            kept = tuple(sign for k, sign in enumerate(node.signs) if k != at)
            yield replace(node, terms=terms, signs=kept), "a term dropped", changed


def _calls(node: Call) -> Iterator[Change]:
    for argument in node.arguments[: 1 if node.function == "clip" else None]:
        yield argument, f"{node.function} dropped"
    if node.function in ("max", "min"):
        yield replace(node, function=OTHER_KIND[node.function]), "max and min exchanged"
    if node.function == "clip":
        x, low, high = node.arguments
        yield Call("max", (x, low)), "an upper end dropped"
        yield Call("min", (x, high)), "a lower end dropped"


def _reductions(node: Reduce) -> Iterator[Change]:
    yield replace(node, kind=OTHER_KIND[node.kind]), f"a {OTHER_KIND[node.kind]} for the {node.kind} over {node.letter}"
    yield node.body, f"a {node.kind} over {node.letter} dropped"
    if node.member is not None:
        yield replace(node, member=None), "a set dropped"
    if node.lower is not None:
        yield replace(node, lower=Sum((node.lower, Number(1.0)), (1, 1))), "a limit moved by one"
    if node.upper is not None:
        yield replace(node, upper=Sum((node.upper, Number(1.0)), (1, -1))), "a limit moved by one"
    if node.apart is not None:
        yield replace(node, apart=None), "a limit dropped"


def _symbols(node: Use, uses: list[Use]) -> Iterator[Change]:
    for at, index in enumerate(node.indices):
        if index.shift:
            plain = (*node.indices[:at], Index(index.axis, index.letter), *node.indices[at + 1 :])
            yield replace(node, indices=plain), "a shift dropped"
        if index.other:
            turned = (*node.indices[:at], replace(index, sign=-index.sign), *node.indices[at + 1 :])
            yield replace(node, indices=turned), "an index with the other sign"
    if len(node.indices) > 1 and not any(index.chosen for index in node.indices):
        first, second, *rest = node.indices
        swapped = (Index(first.axis, second.letter, second.shift), Index(second.axis, first.letter, first.shift))
        yield replace(node, indices=(*swapped, *rest)), EXCHANGED
    for other in uses:
        same_axes = {i.letter for i in other.indices} == {i.letter for i in node.indices}
        if other.binding is not node.binding and same_axes:
            yield replace(other, span=node.span), f"`{other.binding.tex}` written for `{node.binding.tex}`"
            break
