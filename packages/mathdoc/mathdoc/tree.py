"""A formula as a tree. Nodes are values: a mutant is a tree with one node replaced."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from mathdoc.notation import Binding

Span = tuple[int, int]


@dataclass(frozen=True)
class Node:
    """Base of all; `span` is the place in the formula's text."""

    span: Span = field(default=(0, 0), compare=False, kw_only=True)


@dataclass(frozen=True)
class Number(Node):
    """A literal."""

    value: float


@dataclass(frozen=True)
class Index:
    """How a symbol's axis is used: under which letter, shifted by how many places or by another letter (`n - k`).

    A shift that goes `round` comes back in at the other end. Without a letter the place is what another symbol says.
    """

    axis: str
    letter: str
    shift: int = 0
    other: str = ""
    sign: int = 1
    round: "Node | None" = None
    """The number of entries: `(i+1) \\bmod N`."""
    chosen: "Node | None" = None
    """The symbol that says the place: `y_n` of `p_{n,y_n}`."""

    @property
    def letters(self) -> frozenset[str]:
        """None, one or two."""
        return frozenset(filter(None, (self.letter, self.other)))


@dataclass(frozen=True)
class Use(Node):
    """A symbol of the notation."""

    binding: Binding
    indices: tuple[Index, ...]

    @property
    def inner(self) -> list[Node]:
        """The symbols inside its indices."""
        return [part for index in self.indices for part in (index.round, index.chosen) if part is not None]


@dataclass(frozen=True)
class Position(Node):
    """An index used as a number: the t of gamma^t."""

    letter: str


@dataclass(frozen=True)
class Sum(Node):
    """Terms with their signs."""

    terms: tuple[Node, ...]
    signs: tuple[int, ...]


@dataclass(frozen=True)
class Product(Node):
    """Factors."""

    factors: tuple[Node, ...]


@dataclass(frozen=True)
class Elementwise(Node):
    """A product entry by entry, also of matrices."""

    factors: tuple[Node, ...]


@dataclass(frozen=True)
class Transposed(Node):
    """A matrix or vector with rows and columns exchanged."""

    body: Node


@dataclass(frozen=True)
class Inverse(Node):
    """The inverse of a matrix."""

    body: Node


@dataclass(frozen=True)
class Matrix(Node):
    """A matrix by its entries, row after row; with one column a vector."""

    entries: tuple[Node, ...]
    columns: int


@dataclass(frozen=True)
class Identity(Node):
    """The identity matrix, of the size that what it is added to has."""


@dataclass(frozen=True)
class Quotient(Node):
    """A fraction, or `/`."""

    top: Node
    bottom: Node


@dataclass(frozen=True)
class Power(Node):
    """A base with an exponent that is an expression."""

    base: Node
    exponent: Node


@dataclass(frozen=True)
class Call(Node):
    """A function of one or more arguments, by its name in FUNCTIONS."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Apply(Node):
    """A function of the code, which a symbol of the notation stands for, at its arguments."""

    binding: Binding
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Member(Node):
    """1 where the index is in the set, which is a mask."""

    letter: str
    mask: Use


@dataclass(frozen=True)
class Indicator(Node):
    """1 where the relation holds."""

    relation: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Cases(Node):
    """The first value whose condition holds; the last may have none."""

    values: tuple[Node, ...]
    conditions: tuple[Node, ...]


@dataclass(frozen=True)
class Reduce(Node):
    """A sum, product, mean, maximum, minimum, variance or place of the largest over an index.

    With `member` only over the set; with `lower` and `upper` from and up to there, both included; with `apart` without
    that one. `base` is the number of the first entry.
    """

    kind: str
    letter: str
    body: Node
    member: Use | None = None
    base: int = 0
    lower: Node | None = None
    upper: Node | None = None
    apart: Node | None = None
    pair: str = ""
    """The index that stands alone in the limit: with `i < j` a sum runs over both, where nothing else fixes j."""

    @property
    def beside(self) -> frozenset[str]:
        """The other indices that say how far this one runs."""
        limits = [limit for limit in (self.lower, self.upper, self.apart) if limit is not None]
        return frozenset[str]().union(*(free_axes(limit) for limit in limits))


@dataclass(frozen=True)
class Integral(Node):
    """By the trapezoidal rule, over the points of a symbol with one index; `lower` and `upper` are the outermost."""

    body: Node
    over: Use
    lower: Node | None = None
    upper: Node | None = None


@dataclass(frozen=True)
class Dummy(Node):
    """What an integral runs over, inside it."""

    name: str


@dataclass(frozen=True)
class Imaginary(Node):
    """The imaginary unit."""


@dataclass(frozen=True)
class Continuous(Node):
    """An integral from limit to limit over a variable of its own."""

    body: Node
    name: str
    lower: Node
    upper: Node


def children(node: Node) -> list[Node]:
    """The nodes directly below."""
    found: list[Node] = node.inner if isinstance(node, Use) else []
    for part in fields(node):
        value = getattr(node, part.name)
        if isinstance(value, Node):
            found.append(value)
        elif isinstance(value, tuple):
            found += [item for item in value if isinstance(item, Node)]
    return found


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def replaced(tree: Node, old: Node, new: Node) -> Node:
    """The tree with this very node (not one that equals it) replaced."""
    if tree is old:
        return new
    changes: dict[str, Any] = {}
    if isinstance(tree, Use) and tree.inner:
        changes["indices"] = tuple(_index_with(index, old, new) for index in tree.indices)
    for part in fields(tree):
        value = getattr(tree, part.name)
        if isinstance(value, Node):
            changes[part.name] = replaced(value, old, new)
        elif isinstance(value, tuple) and any(isinstance(item, Node) for item in value):
            changes[part.name] = tuple(replaced(item, old, new) for item in value)
    same = all(getattr(tree, name) is value or getattr(tree, name) == value for name, value in changes.items())
    unchanged = same and not any(found is old for found in walk(tree))
    return tree if unchanged or not changes else replace(tree, **changes)


def _index_with(index: Index, old: Node, new: Node) -> Index:
    around, chosen = (node and replaced(node, old, new) for node in (index.round, index.chosen))
    return replace(index, round=around, chosen=chosen)


def paired(tree: Node, outside: frozenset[str]) -> Node:
    r"""Sums such as `\sum_{i<j}` over both their indices, unless the other one is `outside`, on the left-hand side."""
    for node in walk(tree):
        if isinstance(node, Reduce) and node.pair in free_axes(tree) - outside:
            return paired(
                replaced(tree, node, Reduce(node.kind, node.pair, replace(node, pair=""), span=node.span)), outside
            )
    return tree


def free_axes(node: Node) -> frozenset[str]:
    """The letters that the value still depends on."""
    if isinstance(node, Use):
        inner = [free_axes(part) for part in node.inner]
        return frozenset[str]().union(*(index.letters for index in node.indices), *inner)
    if isinstance(node, Position):
        return frozenset((node.letter,))
    if isinstance(node, Apply) and node.binding.axes is not None:
        return node.binding.letters
    below = frozenset[str]().union(*(free_axes(child) for child in children(node)))
    if isinstance(node, Reduce):
        return below - {node.letter}
    if isinstance(node, Integral):
        return below - free_axes(node.over)
    return below


def fixed(tree: Node) -> set[float]:
    """The numbers that stand in a formula, also as powers, products and fractions of such: 10^{-8}."""
    found: set[float] = set()

    def value(node: Node) -> float | None:
        below = [value(child) for child in children(node)]
        known = [number for number in below if number is not None]
        result = None
        if isinstance(node, Number):
            result = node.value
        elif known and len(known) == len(below):
            try:
                result = _computed(node, known)
            except ArithmeticError:
                result = None
        if isinstance(result, float):
            found.add(result)
        return result

    value(tree)
    return found


def _computed(node: Node, parts: list[float]) -> float | None:
    if isinstance(node, Sum):
        return sum(sign * part for sign, part in zip(node.signs, parts, strict=True))
    if isinstance(node, (Product, Elementwise)):
        return math.prod(parts)
    if isinstance(node, Quotient):
        return parts[0] / parts[1]
    return parts[0] ** parts[1] if isinstance(node, Power) else None
