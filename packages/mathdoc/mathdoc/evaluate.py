"""The value of a formula on captured values, in float64, on named axes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from mathdoc.named import COLUMN, ROW, Array, Named, arranged, combined, reduced
from mathdoc.notation import Binding, how_to_declare
from mathdoc.operations import COMPARE, FUNCTIONS, NEUTRAL, OF_MATRIX, REDUCE
from mathdoc.problem import FormulaError
from mathdoc.quadrature import nodes, summed, trapezoid
from mathdoc.shapes import by_entries, crossed, identity, inverted, of_matrix, shape_of, times, transposed
from mathdoc.tree import (
    Apply,
    Call,
    Cases,
    Continuous,
    Dummy,
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
    walk,
)

Values = Mapping[Binding, Array]
"""What each symbol stands for; behind that of a function stands the function."""


@dataclass
class Evaluation:
    """One evaluation. `branches` notes which sides of each min, max, clip and indicator were taken.

    `stopped` holds the values inside each stop-gradient from an earlier evaluation, to be used instead.
    """

    values: Values
    given: Mapping[str, int] = field(default_factory=dict)
    """How many values the indices take that no symbol has."""
    sizes: dict[str, int] = field(default_factory=dict)
    branches: dict[Node, set[str]] | None = None
    stopped: dict[Node, Named] | None = None
    firsts: dict[str, int] = field(default_factory=dict)
    """The first entry at which all uses of an index are defined: 1 where `i-1` is read."""
    bases: dict[str, int] = field(default_factory=dict)
    """The number of the first entry, for an index that does not count from 0."""
    record_stops: dict[Node, Named] | None = None
    dummies: dict[str, Named] = field(default_factory=dict)
    """The points at which the integrals around are evaluated."""

    def run(self, tree: Node) -> Named:
        """The tree's value."""
        self.sizes = self._sizes(tree)
        with np.errstate(all="ignore"):
            return self.value(tree)

    # --- sizes ----------------------------------------------------------------------------------------------

    def _sizes(self, tree: Node) -> dict[str, int]:
        """How many values each index takes. Where one is shifted, it runs as far as all its uses are defined."""
        lengths: dict[str, list[tuple[int, int]]] = {}
        loose: dict[str, int] = {}
        for node in walk(tree):
            if isinstance(node, Use):
                for name, size in self._array(node).sizes().items():
                    if name in (ROW, COLUMN):
                        continue
                    index = _index(node, name)
                    if index.chosen is not None:
                        continue
                    if index.other:
                        loose.setdefault(index.letter, size)
                        loose.setdefault(index.other, size)
                    else:
                        lengths.setdefault(index.letter, []).append((size, 0 if index.round else index.shift))
        sizes: dict[str, int] = {}
        for letter, found in lengths.items():
            shifted = any(shift for _, shift in found)
            if not shifted and len({size for size, _ in found}) > 1:
                seen = " and ".join(str(size) for size in sorted({size for size, _ in found}))
                raise FormulaError(f"the index {letter} runs over {seen} values: one of its symbols has another axis")
            self.firsts[letter] = max(0, *(-shift for _, shift in found))
            sizes[letter] = min(size - shift - self.firsts[letter] for size, shift in found)
        for node in walk(tree):
            if isinstance(node, Reduce) and node.letter in sizes:
                loose |= dict.fromkeys(node.beside, sizes[node.letter])
        self.sizes = {**self.given, **loose, **sizes}
        for node in (node for node in walk(tree) if isinstance(node, Reduce)):
            counting = node.letter not in self.sizes  # an index that no symbol has counts from limit to limit
            if counting and node.upper is not None and not free_axes(node.upper):
                self.sizes[node.letter] = self._whole(node.upper, node) - node.base + 1
        return self.sizes

    def _array(self, use: Use) -> Named:
        binding = use.binding
        if binding.axes is None:
            raise FormulaError(f"the axes of `{binding.tex}` are not known: add them to the table", *use.span)
        array = arranged(binding.axes, self.values[binding])
        if array is None:
            declared, shape = " ".join(binding.axes) or "none", self.values[binding].shape
            message = f"`{binding.tex}` is `{binding.var}` of shape {shape}, but its axes are: {declared}"
            raise FormulaError(message, *use.span, how_to_declare(binding, len(shape)))
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
        if isinstance(node, Apply):
            return self._apply(node)
        if isinstance(node, Matrix):
            return by_entries([self.value(entry) for entry in node.entries], node.columns, node.span)
        if isinstance(node, Identity):
            return Named(np.ones(()), ())
        if isinstance(node, Cases):
            return self._cases(node)
        if isinstance(node, Call):
            return self._call(node)
        return self._special(node)

    def _special(self, node: Node) -> Named:
        """The value of a condition, of the imaginary unit, or of what runs over an index or a variable."""
        if isinstance(node, Indicator):
            held = combined(COMPARE[node.relation], self.value(node.left), self.value(node.right))
            self._note(node, {"true": held.values > 0, "false": held.values == 0})
            return held
        if isinstance(node, Member):
            held = combined(lambda mask: mask > 0, self._use(node.mask))
            self._note(node, {"inside": held.values > 0, "outside": held.values == 0})
            return held
        if isinstance(node, Integral):
            return self._integral(node)
        if isinstance(node, Imaginary):
            return Named(np.asarray(1j), ())
        if isinstance(node, Dummy):
            return self.dummies[node.name]
        if isinstance(node, Continuous):
            points, weights = nodes(self.value(node.lower), self.value(node.upper), f"\\int {node.name}")
            self.dummies[node.name] = points
            return summed(self.value(node.body), weights)
        assert isinstance(node, Reduce)
        self.bases[node.letter] = node.base
        return self._beside(node) if node.beside or node.apart else self._reduce(node)

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
        places: list[tuple[str, Named]] = []
        for name in array.axes:
            if name in (ROW, COLUMN):
                letters.append(name)
                continue
            index = _index(use, name)
            if index.other:
                values = self._between(values, len(letters), index)
                letters += [index.letter, index.other]
                continue
            if index.chosen is not None:
                places.append((f"({name})", self.value(index.chosen)))
                letters.append(f"({name})")
                continue
            if index.round is not None:
                values = self._gone_round(values, len(letters), index, use)
                index = Index(name, index.letter)
            start = index.shift + self.firsts.get(index.letter, 0)
            values = values[(slice(None),) * len(letters) + (slice(start, start + self.sizes[index.letter]),)]
            letters.append(index.letter)
        if len(set(letters)) < len(letters):
            raise FormulaError(f"`{use.binding.tex}` has the same index on two of its axes", *use.span)
        found = Named(values, tuple(letters))
        for letter, place in places:
            found = _chosen(found, letter, place, use)
        return found

    def _gone_round(self, values: Array, dimension: int, index: Index, use: Use) -> Array:
        """The entries shifted by some places, those at one end coming from the other."""
        assert index.round is not None
        size, said = values.shape[dimension], self.value(index.round).values
        if said.size != 1 or said.item() != size:
            raise FormulaError(f"this goes round after {said.ravel()[0]:g} entries, and there are {size}", *use.span)
        return np.roll(values, -index.shift, axis=dimension)

    def _between(self, values: Array, dimension: int, index: Index) -> Array:
        """The entries n - k of a dimension, for each n and k; outside the array they are zero."""
        one, other = (self._position(Position(letter)).values for letter in (index.letter, index.other))
        place = (one[:, None] + index.sign * other[None, :]).astype(int)
        inside = (place >= 0) & (place < values.shape[dimension])
        found = np.take(values, np.where(inside, place, 0), axis=dimension)
        return np.where(inside.reshape(inside.shape + (1,) * (found.ndim - dimension - 2)), found, 0.0)

    def _position(self, node: Position) -> Named:
        if node.letter not in self.sizes:
            hint = f'if the left-hand side has it, name its axes in the table: axes = "... {node.letter}", and no var'
            message = f"{node.letter} is used as a number, but nothing here has the index {node.letter}"
            raise FormulaError(message, *node.span, hint)
        first = self.bases.get(node.letter, 0) + self.firsts.get(node.letter, 0)
        return Named(np.arange(self.sizes[node.letter], dtype=np.float64) + first, (node.letter,))

    def _call(self, node: Call) -> Named:
        if node.function == "sg" and self.stopped is not None:
            return self.stopped[node]
        parts = [self.value(argument) for argument in node.arguments]
        if node.function == "cross":
            return crossed(parts[0], parts[1], node.span)
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

    def _apply(self, node: Apply) -> Named:
        """A function of the code, called anew: its value has the declared axes, or those of its arguments."""
        parts = [self.value(argument) for argument in node.arguments]
        try:
            found = self.values[node.binding](*(part.values for part in parts))  # type: ignore[operator]
        except Exception as error:  # whatever the code raises
            raise FormulaError(f"`{node.binding.tex}` cannot be computed here: {error}", *node.span) from error
        likely = [part.axes for part in reversed(parts) if part.values.shape == found.shape]
        axes = node.binding.axes if node.binding.axes is not None else (likely or [()])[0]
        named = arranged(axes, found)
        if named is None:
            said = 'say in the table what its dimensions are: axes = "..."'
            raise FormulaError(f"`{node.binding.tex}` gives an array of shape {found.shape}", *node.span, said)
        return named

    def _note(self, node: Node, taken: dict[str, Array]) -> None:
        if self.branches is not None:
            seen = self.branches.setdefault(node, set())
            seen.update(side for side, where in taken.items() if np.any(where))

    def _reduce(self, node: Reduce) -> Named:
        body = self.value(node.body)
        if node.letter not in body.axes:
            raise FormulaError(f"nothing below this {node.kind} has the index {node.letter}", *node.span)
        if node.upper is not None or node.lower is not None:
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
        """From the first entry to the last that a sum with limits has."""
        size = body.sizes()[node.letter]
        ends = [node.base if node.lower is None else self._whole(node.lower, node)]
        ends += [size + node.base - 1 if node.upper is None else self._whole(node.upper, node)]
        first, last = (end - node.base for end in ends)
        if not 0 <= first <= last < size:
            message = f"{node.letter} has {size} values, and this {node.kind} has {last - first + 1} terms"
            raise FormulaError(f"{message} from the entry {first + 1} on", *node.span)
        keep = tuple(slice(first, last + 1) if axis == node.letter else slice(None) for axis in body.axes)
        return Named(body.values[keep], body.axes)

    def _whole(self, limit: Node, node: Reduce) -> int:
        value = self.value(limit).values
        if value.size != 1 or value.item() != round(value.item()):
            raise FormulaError(f"a limit of this {node.kind} is no whole number", *node.span)
        return round(value.item())

    def _beside(self, node: Reduce) -> Named:
        """Over the values of an index that are within limits in which other indices stand, and keep these."""
        body = self.value(node.body)
        if node.kind not in NEUTRAL:
            raise FormulaError(f"a {node.kind} has no limits in which an index stands", *node.span)
        order = self._position(Position(node.letter))
        mask = Named(np.ones(()), ())
        for limit, function in (
            (node.lower, np.greater_equal),
            (node.upper, np.less_equal),
            (node.apart, np.not_equal),
        ):
            if limit is not None and not (limit is node.upper and self._is_end(limit, node)):
                held = combined(function, order, self.value(limit))
                mask = combined(np.multiply, mask, held)
        kept = combined(lambda x, m: np.where(m > 0, x, NEUTRAL[node.kind]), body, mask)
        total = reduced(REDUCE["sum" if node.kind == "mean" else node.kind], kept, node.letter, f"a {node.kind}")
        if node.kind != "mean":
            return total
        return combined(np.divide, total, reduced(np.sum, mask, node.letter, "a mean"))

    def _is_end(self, limit: Node, node: Reduce) -> bool:
        """Whether an upper limit without an index is the array's last entry, whose first has the number 0 or 1."""
        if free_axes(limit):
            return False
        size = self.sizes[node.letter]
        if self._whole(limit, node) not in (size, size - 1):
            raise FormulaError(f"{node.letter} has {size} values, and this is not the last", *limit.span)
        return True

    def _integral(self, node: Integral) -> Named:
        points = self._use(node.over)
        if len(points.axes) != 1 or len(points.values) < 2:
            raise FormulaError("an integral is over a symbol with one index", *node.span)
        for end, place in ((node.lower, 0), (node.upper, -1)):
            if end is not None and not np.allclose(self.value(end).values, points.values[place], rtol=1e-6, atol=0):
                raise FormulaError(f"the points of this integral end at {points.values[place]:g}", *end.span)
        return trapezoid(combined(_repeated, self.value(node.body), points), points)


def _chosen(array: Named, letter: str, place: Named, use: Use) -> Named:
    """The entries of an axis at the places that another symbol says."""
    size = array.sizes()[letter]
    if not np.all((place.values == np.round(place.values)) & (place.values >= 0) & (place.values < size)):
        raise FormulaError(
            f"`{use.binding.tex}` has {size} entries there, and an index that is none of them", *use.span
        )
    here = combined(np.equal, Named(np.arange(size), (letter,)), place)
    kept = combined(lambda values, chosen: np.where(chosen > 0, values, 0.0), array, here)
    return reduced(np.sum, kept, letter, "an index")


def _repeated(values: Array, like: Array) -> Array:
    return np.broadcast_arrays(values, like)[0]


def _index(use: Use, axis: str) -> Index:
    """How an axis is used; the dimensions behind `...` keep their names."""
    return next((index for index in use.indices if index.axis == axis), Index(axis, axis))
