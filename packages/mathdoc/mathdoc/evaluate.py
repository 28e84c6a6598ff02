"""The value of a formula on captured values, in float64, on named axes."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from mathdoc.named import Array, Named, arranged, combined, reduced
from mathdoc.notation import Binding
from mathdoc.problem import FormulaError
from mathdoc.tree import (
    Call,
    Index,
    Indicator,
    Member,
    Node,
    Number,
    Position,
    Power,
    Product,
    Quotient,
    Reduce,
    Sum,
    Use,
    walk,
)

Values = Mapping[Binding, Array]

_erf = np.vectorize(math.erf, otypes=[np.float64])

FUNCTIONS: dict[str, Callable[..., Array]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "floor": np.floor,
    "sign": np.sign,
    "relu": lambda x: np.maximum(x, 0),
    "softplus": lambda x: np.logaddexp(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": _erf,
    "sg": lambda x: x,
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "max": np.maximum,
    "min": np.minimum,
}

COMPARE: dict[str, Callable[..., Array]] = {"<": np.less, ">": np.greater, "\\leq": np.less_equal}
COMPARE["\\geq"] = np.greater_equal

REDUCE: dict[str, Callable[..., Array]] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "mean": np.mean,
    "var": np.var,
    "std": np.std,
}

NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf, "mean": 0.0}


@dataclass
class Evaluation:
    """One evaluation. `branches` notes which sides of each min, max, clip and indicator were taken.

    `stopped` holds the values inside each stop-gradient from an earlier evaluation, to be used instead.
    """

    values: Values
    sizes: dict[str, int] = field(default_factory=dict)
    branches: dict[Node, set[str]] | None = None
    stopped: dict[Node, Named] | None = None
    record_stops: dict[Node, Named] | None = None

    def run(self, tree: Node) -> Named:
        """The tree's value."""
        self.sizes = self._sizes(tree)
        with np.errstate(all="ignore"):
            return self.value(tree)

    # --- sizes ----------------------------------------------------------------------------------------------

    def _sizes(self, tree: Node) -> dict[str, int]:
        """How many values each index takes. Where one is shifted, it runs as far as all its uses are defined."""
        lengths: dict[str, list[tuple[int, int]]] = {}
        for node in walk(tree):
            if isinstance(node, Use):
                for name, size in self._array(node).sizes().items():
                    index = _index(node, name)
                    lengths.setdefault(index.letter, []).append((size, index.shift))
        sizes: dict[str, int] = {}
        for letter, found in lengths.items():
            shifted = any(shift for _, shift in found)
            if not shifted and len({size for size, _ in found}) > 1:
                seen = " and ".join(str(size) for size in sorted({size for size, _ in found}))
                raise FormulaError(f"the index {letter} runs over {seen} values: one of its symbols has another axis")
            sizes[letter] = min(size - max(shift, 0) for size, shift in found)
        return sizes

    def _array(self, use: Use) -> Named:
        binding = use.binding
        if binding.axes is None:
            raise FormulaError(f"the axes of `{binding.tex}` are not known: add them to the table", *use.span)
        array = arranged(binding.axes, self.values[binding])
        if array is None:
            declared, shape = " ".join(binding.axes) or "none", self.values[binding].shape
            message = f"`{binding.tex}` is `{binding.var}` of shape {shape}, but its axes are: {declared}"
            raise FormulaError(message, *use.span, f'name {len(shape)} axes, left to right: axes = "..."')
        return array

    # --- values ---------------------------------------------------------------------------------------------

    def value(self, node: Node) -> Named:
        """The value of one node."""
        if isinstance(node, Number):
            return Named(np.asarray(node.value), ())
        if isinstance(node, Use):
            return self._use(node)
        if isinstance(node, Position):
            return self._position(node)
        if isinstance(node, Sum):
            parts = [self.value(term) for term in node.terms]
            signs = node.signs
            return combined(lambda *x: sum(s * v for s, v in zip(signs, x, strict=True)), *parts)
        if isinstance(node, Product):
            return combined(lambda *x: math.prod(x, start=np.ones(())), *(self.value(f) for f in node.factors))
        if isinstance(node, Quotient):
            return combined(np.divide, self.value(node.top), self.value(node.bottom))
        if isinstance(node, Power):
            return combined(np.power, self.value(node.base), self.value(node.exponent))
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, Indicator):
            held = combined(COMPARE[node.relation], self.value(node.left), self.value(node.right))
            self._note(node, {"true": held.values > 0, "false": held.values == 0})
            return held
        if isinstance(node, Member):
            held = combined(lambda mask: mask > 0, self._use(node.mask))
            self._note(node, {"inside": held.values > 0, "outside": held.values == 0})
            return held
        assert isinstance(node, Reduce)
        return self._below(node) if node.below else self._reduce(node)

    def _use(self, use: Use) -> Named:
        array = self._array(use)
        values, letters = array.values, []
        for dimension, name in enumerate(array.axes):
            index = _index(use, name)
            start = max(index.shift, 0)
            values = values[(slice(None),) * dimension + (slice(start, start + self.sizes[index.letter]),)]
            letters.append(index.letter)
        if len(set(letters)) < len(letters):
            raise FormulaError(f"`{use.binding.tex}` has the same index on two of its axes", *use.span)
        return Named(values, tuple(letters))

    def _position(self, node: Position) -> Named:
        if node.letter not in self.sizes:
            raise FormulaError(f"{node.letter} is used as a number, but nothing here has the index {node.letter}")
        return Named(np.arange(self.sizes[node.letter], dtype=np.float64), (node.letter,))

    def _call(self, node: Call) -> Named:
        if node.function == "sg" and self.stopped is not None:
            return self.stopped[node]
        parts = [self.value(argument) for argument in node.arguments]
        result = combined(FUNCTIONS[node.function], *parts)
        if node.function == "sg" and self.record_stops is not None:
            self.record_stops[node] = result
        if node.function in ("max", "min", "clip") and self.branches is not None:
            wide = [combined(_repeated, part, result) for part in parts]
            names = ("inside", "at the lower end", "at the upper end") if node.function == "clip" else ("left", "right")
            same = {name: result.values == part.over(result.axes) for name, part in zip(names, wide, strict=True)}
            self._note(node, same)
        return result

    def _note(self, node: Node, taken: dict[str, Array]) -> None:
        if self.branches is not None:
            seen = self.branches.setdefault(node, set())
            seen.update(side for side, where in taken.items() if np.any(where))

    def _reduce(self, node: Reduce) -> Named:
        body = self.value(node.body)
        if node.letter not in body.axes:
            raise FormulaError(f"nothing below this {node.kind} has the index {node.letter}", *node.span)
        if node.member is None:
            return reduced(REDUCE[node.kind], body, node.letter, f"a {node.kind}")
        mask = combined(lambda values: values > 0, self._use(node.member))
        self._note(node, {"inside": mask.values > 0, "outside": mask.values == 0})
        kept = combined(lambda x, m: np.where(m > 0, x, NEUTRAL[node.kind]), body, mask)
        if node.kind == "mean":
            total = reduced(np.sum, kept, node.letter, "a mean")
            return combined(np.divide, total, reduced(np.sum, mask, node.letter, "a mean"))
        return reduced(REDUCE[node.kind], kept, node.letter, f"a {node.kind}")

    def _below(self, node: Reduce) -> Named:
        """Over the values of an index below those of another, which the result has instead."""
        body = self.value(node.body)
        size = self.sizes.get(node.letter, 0)
        order = np.arange(size)
        wanted = order[:, None] <= order[None, :] if node.or_equal else order[:, None] < order[None, :]
        mask = Named(wanted.astype(np.float64), (node.letter, node.below))
        kept = combined(lambda x, m: np.where(m > 0, x, NEUTRAL[node.kind]), body, mask)
        return reduced(REDUCE[node.kind], kept, node.letter, f"a {node.kind}")


def _repeated(values: Array, like: Array) -> Array:
    return np.broadcast_arrays(values, like)[0]


def _index(use: Use, axis: str) -> Index:
    """How an axis is used; the dimensions behind `...` keep their names."""
    return next((index for index in use.indices if index.axis == axis), Index(axis, axis))
