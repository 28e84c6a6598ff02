"""What would have to change for a wrong formula to hold: the difference said in words."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations

from mathdoc.capture import Sample
from mathdoc.formula import Formula
from mathdoc.mutate import mutants
from mathdoc.notation import Binding
from mathdoc.tree import (
    Call,
    Index,
    Member,
    Node,
    Number,
    Product,
    Quotient,
    Reduce,
    Sum,
    Use,
    free_axes,
    replaced,
    walk,
)


def repair(formula: Formula, tree: Node, holds: Callable[[Node], bool], sample: Sample) -> str:
    """A sentence that names the one change after which the formula holds, or what the line reads and it does not."""
    for candidate, what, node in _candidates(tree, sample):
        if holds(candidate):
            part = formula.marker.tex[slice(*node.span)] if node.span != (0, 0) else ""
            return f"it would hold with {what}{f' at `{part}`' if part else ''}"
    statement = ast.unparse(formula.marker.statement)
    return _unread(formula) or f"the line is: {statement}"


def _candidates(tree: Node, sample: Sample) -> Iterator[tuple[Node, str, Node]]:
    places = {node.span: node for node in walk(tree)}
    for mutant in mutants(tree):
        yield mutant.tree, mutant.what, places.get(mutant.span, tree)
    extra = [_use(binding) for binding in sample.values if binding.axes is not None and binding.shape != "function"]
    letters = sorted({index.letter for node in walk(tree) if isinstance(node, Use) for index in node.indices})
    sets = _sets(tree)
    for node in walk(tree):
        for new, what in [*_insertions(node, extra), *_renamed(node, letters)]:
            if isinstance(new, Use) or not any(node is mask for mask in sets):
                yield replaced(tree, node, new), what, node


def _sets(tree: Node) -> list[Node]:
    """The masks of a tree: nothing can stand there but a symbol."""
    reduced = [node.member for node in walk(tree) if isinstance(node, Reduce) and node.member is not None]
    return [*reduced, *(node.mask for node in walk(tree) if isinstance(node, Member))]


def _use(binding: Binding) -> Use:
    return Use(binding, tuple(Index(axis, axis) for axis in binding.letters if axis != "..."))


def _insertions(node: Node, extra: list[Use]) -> Iterator[tuple[Node, str]]:
    """What may have been left out at a node."""
    if isinstance(node, Number):
        for other in (node.value - 1, 0.5 * node.value, 2 * node.value):
            yield replace(node, value=other), f"{other:g}"
    yield Sum((node,), (-1,)), "the other sign"
    yield Product((Number(0.5), node)), "a factor 1/2"
    yield Product((Number(2.0), node)), "a factor 2"
    yield Call("exp", (node,)), "exp"
    yield Call("log", (node,)), "log"
    yield Call("sqrt", (node,)), "a square root"
    yield Product((node, node)), "a square"
    if isinstance(node, Quotient):
        yield replace(node, top=node.bottom, bottom=node.top), "the fraction turned over"
    free = free_axes(node)
    for use in extra:
        name = use.binding.tex
        if free_axes(use) <= free or isinstance(node, Use):
            yield from _with(node, use, name)
    if isinstance(node, Reduce) and node.member is None:
        for use in extra:
            if free_axes(use) == {node.letter}:
                yield replace(node, member=use), f"`{node.letter} \\in {use.binding.tex}`"


def _renamed(node: Node, letters: list[str]) -> Iterator[tuple[Node, str]]:
    """A symbol with other indices of the formula."""
    if not isinstance(node, Use) or len(node.indices) > 3:
        return
    for chosen in permutations(letters, len(node.indices)):
        if chosen != tuple(index.letter for index in node.indices):
            indices = tuple(replace(index, letter=letter) for index, letter in zip(node.indices, chosen, strict=True))
            yield replace(node, indices=indices), f"the indices {', '.join(chosen)}"


def _with(node: Node, use: Use, name: str) -> Iterator[tuple[Node, str]]:
    if isinstance(node, Use) and node.binding is not use.binding and free_axes(node) == free_axes(use):
        yield use, f"`{name}`"
    yield Product((node, use)), f"a factor `{name}`"
    yield Quotient(node, use), f"a division by `{name}`"
    yield Product((node, Sum((Number(1.0), use), (1, -1)))), f"a factor `1 - {name}`"
    yield Sum((node, use), (1, 1)), f"`+ {name}`"
    yield Sum((node, use), (1, -1)), f"`- {name}`"


def _unread(formula: Formula) -> str:
    """The names that the statement reads and no symbol of the formula stands for."""
    value = formula.marker.value
    if value is None:
        return ""
    called = {id(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)}
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name) and id(node) not in called}
    known = " ".join(binding.var for binding in formula.bindings)
    words = {node.id for node in ast.walk(ast.parse(known.replace(" ", ";"))) if isinstance(node, ast.Name)}
    missing = sorted(names - words - {"torch", "np", "numpy", "math", "self"})
    return f"the line reads {', '.join(f'`{name}`' for name in missing)}, and the formula does not" if missing else ""
