"""The value of a formula on captured values, in float64, on named axes."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from mathdoc.named import COLUMN, ROW, Array, Named, arranged, combined, reduced
from mathdoc.notation import Binding
from mathdoc.problem import FormulaError
from mathdoc.shapes import identity, inverted, of_matrix, shape_of, times, transposed
from mathdoc.tree import (
    Call,
    Cases,
    Elementwise,
    Identity,
    Index,
    Indicator,
    Inverse,
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
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "arcsin": np.arcsin,
    "arccos": np.arccos,
    "arctan": np.arctan,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
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
COMPARE |= {"\\geq": np.greater_equal, "=": np.equal, "\\neq": np.not_equal}
OF_MATRIX = {"norm", "norm1", "norminf", "tr", "det", "softmax"}

REDUCE: dict[str, Callable[..., Array]] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "mean": np.mean,
    "var": np.var,
    "std": np.std,
    "argmax": np.argmax,
    "argmin": np.argmin,
}

NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf, "mean": 0.0, "argmax": -np.inf}
NEUTRAL["argmin"] = np.inf


@dataclass
class Evaluation:
    """One evaluation. `branches` notes which sides of each min, max, clip and indicator were taken.

    `stopped` holds the values inside each stop-gradient from an earlier evaluation, to be used instead.
    """

    values: Values
    sizes: dict[str, int] = field(default_factory=dict)
    branches: dict[Node, set[str]] | None = None
    stopped: dict[Node, Named] | None = None
    bases: dict[str, int] = field(default_factory=dict)
    """The number of the first entry, for an index that does not count from 0."""
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
                    if name in (ROW, COLUMN):
                        continue
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
            return self._sum(node)
        if isinstance(node, Product):
            return reduce(lambda left, right: times(left, right, node.span), (self.value(f) for f in node.factors))
        if isinstance(node, Elementwise):
            return combined(np.multiply, *(self.value(factor) for factor in node.factors))
        if isinstance(node, Quotient):
            return combined(np.divide, self.value(node.top), self.value(node.bottom))
        if isinstance(node, Power):
            return self._power(node)
        if isinstance(node, Transposed):
            return transposed(self.value(node.body))
        if isinstance(node, Inverse):
            return inverted(self.value(node.body), node.span)
        if isinstance(node, Identity):
            return Named(np.ones(()), ())
        if isinstance(node, Cases):
            return self._cases(node)
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
        self.bases[node.letter] = node.base
        return self._beside(node) if node.below or node.above else self._reduce(node)

    def _sum(self, node: Sum) -> Named:
        parts = [self.value(term) for term in node.terms]
        for at, (part, term) in enumerate(zip(parts, node.terms, strict=True)):
            if shape_of(term) == "matrix" and ROW not in part.axes:
                parts[at] = combined(np.multiply, part, identity(parts))
        shapes = {tuple(axis for axis in part.axes if axis in (ROW, COLUMN)) for part in parts}
        if len({frozenset(shape) for shape in shapes}) > 1:
            raise FormulaError("a matrix or vector and something else are added", *node.span)
        return combined(lambda *x: sum(s * v for s, v in zip(node.signs, x, strict=True)), *parts)

    def _power(self, node: Power) -> Named:
        base, exponent = self.value(node.base), self.value(node.exponent)
        if ROW in base.axes and COLUMN in base.axes:
            count = exponent.values.item() if exponent.values.size == 1 else 0.0
            if count != int(count) or count < 1:
                raise FormulaError("a matrix has the exponents 1, 2, ..., -1 and \\top", *node.span)
            return reduce(lambda left, right: times(left, right, node.span), [base] * int(count))
        return combined(np.power, base, exponent)

    def _cases(self, node: Cases) -> Named:
        held = [self.value(condition) for condition in node.conditions]
        values = [self.value(value) for value in node.values]
        count = len(held)

        def chosen(*parts: Array) -> Array:
            return np.select([part > 0 for part in parts[:count]], parts[count:-1], parts[-1])

        result = combined(chosen, *held, *values)
        first = combined(lambda *x: np.argmax([*x, np.ones_like(x[0])], axis=0) if x else np.zeros(()), *held)
        self._note(node, {f"line {k + 1}": first.values == k for k in range(count + 1)})
        return result

    def _use(self, use: Use) -> Named:
        array = self._array(use)
        values, letters = array.values, []
        for dimension, name in enumerate(array.axes):
            if name in (ROW, COLUMN):
                letters.append(name)
                continue
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
        numbers = np.arange(self.sizes[node.letter], dtype=np.float64) + self.bases.get(node.letter, 0)
        return Named(numbers, (node.letter,))

    def _call(self, node: Call) -> Named:
        if node.function == "sg" and self.stopped is not None:
            return self.stopped[node]
        parts = [self.value(argument) for argument in node.arguments]
        if node.function in OF_MATRIX:
            return of_matrix(node.function, parts[0], node.span)
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
        if node.upper is not None:
            body = self._cut(node, body)
        if node.member is None:
            return reduced(REDUCE[node.kind], body, node.letter, f"a {node.kind}")
        mask = combined(lambda values: values > 0, self._use(node.member))
        self._note(node, {"inside": mask.values > 0, "outside": mask.values == 0})
        kept = combined(lambda x, m: np.where(m > 0, x, NEUTRAL[node.kind]), body, mask)
        if node.kind == "mean":
            total = reduced(np.sum, kept, node.letter, "a mean")
            return combined(np.divide, total, reduced(np.sum, mask, node.letter, "a mean"))
        return reduced(REDUCE[node.kind], kept, node.letter, f"a {node.kind}")

    def _cut(self, node: Reduce, body: Named) -> Named:
        """Up to the last entry that a sum with limits has."""
        assert node.upper is not None
        upper = self.value(node.upper).values
        size = body.sizes()[node.letter]
        count = upper.item() - node.base + 1 if upper.size == 1 else -1
        if count != round(count) or not 0 < count <= size:
            raise FormulaError(f"{node.letter} has {size} values, and this {node.kind} has {count:g} terms", *node.span)
        keep = tuple(slice(0, round(count)) if axis == node.letter else slice(None) for axis in body.axes)
        return Named(body.values[keep], body.axes)

    def _beside(self, node: Reduce) -> Named:
        """Over the values of an index below or above those of another, which the result has instead."""
        body = self.value(node.body)
        size = self.sizes.get(node.letter, 0)
        order = np.arange(size)
        one, other = (order[:, None], order[None, :]) if node.below else (order[None, :], order[:, None])
        wanted = one <= other if node.or_equal else one < other
        mask = Named(wanted.astype(np.float64), (node.letter, node.below or node.above))
        kept = combined(lambda x, m: np.where(m > 0, x, NEUTRAL[node.kind]), body, mask)
        return reduced(REDUCE[node.kind], kept, node.letter, f"a {node.kind}")


def _repeated(values: Array, like: Array) -> Array:
    return np.broadcast_arrays(values, like)[0]


def _index(use: Use, axis: str) -> Index:
    """How an axis is used; the dimensions behind `...` keep their names."""
    return next((index for index in use.indices if index.axis == axis), Index(axis, axis))
