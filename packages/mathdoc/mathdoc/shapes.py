"""Matrices and vectors in a formula: which parts of it are one, and their products, transposes and inverses."""

import numpy as np

from mathdoc.named import COLUMN, ROW, Array, Named, combined
from mathdoc.problem import FormulaError
from mathdoc.tree import Apply, Call, Cases, Identity, Inverse, Matrix, Node, Product, Reduce, Transposed, Use, children

SCALARS = {"norm", "norm1", "norminf", "tr", "det"}
TURNED = {"matrix": "matrix", "vector": "row", "row": "vector", "": ""}
TAIL = {"": (), "vector": (ROW,), "row": (COLUMN,), "matrix": (ROW, COLUMN)}
"""The axes of each shape."""


def shape_of(node: Node) -> str:
    """`matrix`, `vector` (a column), `row`, or nothing."""
    if isinstance(node, Use):
        return node.binding.shape
    if isinstance(node, (Identity, Inverse)):
        return "matrix"
    if isinstance(node, Matrix):
        return "vector" if node.columns == 1 else "row" if node.columns == len(node.entries) else "matrix"
    if isinstance(node, Transposed):
        return TURNED[shape_of(node.body)]
    if isinstance(node, Product):
        shape = ""
        for factor in node.factors:
            shape = _product(shape, shape_of(factor))
        return shape
    if isinstance(node, Call) and node.function in SCALARS:
        return ""
    if isinstance(node, Apply) and node.binding.axes is not None:
        return ""
    if isinstance(node, Call) and node.function == "diag":
        return "vector" if shape_of(node.arguments[0]) == "matrix" else "matrix"
    parts = node.values if isinstance(node, Cases) else [node.body] if isinstance(node, Reduce) else children(node)
    shapes = [shape_of(part) for part in parts]
    return next((shape for shape in ("matrix", "vector", "row") if shape in shapes), "")


def _product(left: str, right: str) -> str:
    if not left or not right:
        return left or right
    return {("row", "vector"): "", ("matrix", "vector"): "vector", ("row", "matrix"): "row"}.get(
        (left, right), "matrix"
    )


def times(left: Named, right: Named, span: tuple[int, int]) -> Named:
    """A product: of matrices where both sides are one, else entry by entry."""
    if COLUMN in left.axes and ROW in right.axes:
        one, other = _renamed(left, {COLUMN: "|"}), _renamed(right, {ROW: "|"})
        whole = combined(np.multiply, one, other)
        return Named(whole.values.sum(whole.axes.index("|")), tuple(axis for axis in whole.axes if axis != "|"))
    if (ROW in left.axes and ROW in right.axes) or (COLUMN in left.axes and COLUMN in right.axes):
        raise FormulaError("these cannot be multiplied: transpose one, or write \\odot for each entry", *span)
    return combined(np.multiply, left, right)


def _renamed(value: Named, names: dict[str, str]) -> Named:
    return Named(value.values, tuple(names.get(axis, axis) for axis in value.axes))


def transposed(value: Named) -> Named:
    """Rows and columns exchanged."""
    return _renamed(value, {ROW: COLUMN, COLUMN: ROW})


def inverted(value: Named, span: tuple[int, int]) -> Named:
    """The inverse of each matrix."""
    order = (*(axis for axis in value.axes if axis not in (ROW, COLUMN)), ROW, COLUMN)
    try:
        return Named(np.linalg.inv(value.over(order)), order)
    except np.linalg.LinAlgError as error:
        raise FormulaError(f"this has no inverse: {error}", *span) from error


def by_entries(entries: list[Named], columns: int, span: tuple[int, int]) -> Named:
    """A matrix from its entries, row after row; with one column a vector, with one row a row."""
    if any({ROW, COLUMN} & set(entry.axes) for entry in entries):
        raise FormulaError("the entries of a matrix are numbers", *span)
    whole = combined(lambda *values: np.stack(np.broadcast_arrays(*values), -1), *entries)
    shape = whole.values.shape[:-1]
    if columns in (1, len(entries)):
        return Named(whole.values, (*whole.axes, ROW if columns == 1 else COLUMN))
    return Named(whole.values.reshape(*shape, -1, columns), (*whole.axes, ROW, COLUMN))


def crossed(left: Named, right: Named, span: tuple[int, int]) -> Named:
    """The vector product, of vectors with three entries."""
    if left.sizes().get(ROW) != 3 or right.sizes().get(ROW) != 3:
        raise FormulaError("a vector product is of two vectors with three entries", *span)
    one, other = (Named(np.roll(left.values, -k, left.axes.index(ROW)), left.axes) for k in (1, 2))
    two, third = (Named(np.roll(right.values, -k, right.axes.index(ROW)), right.axes) for k in (2, 1))
    return combined(lambda a, b, c, d: a * b - c * d, one, two, other, third)


def identity(like: list[Named]) -> Named:
    """The identity matrix of the size that the other terms have."""
    size = next((part.sizes()[ROW] for part in like if ROW in part.axes and COLUMN in part.axes), 0)
    if not size:
        raise FormulaError("the size of `I` is not known here: it is added to no matrix")
    return Named(np.eye(size), (ROW, COLUMN))


def of_matrix(function: str, value: Named, span: tuple[int, int]) -> Named:
    """Norms, trace, determinant and softmax of what is a vector or matrix."""
    own = tuple(axis for axis in (ROW, COLUMN) if axis in value.axes)
    rest = tuple(axis for axis in value.axes if axis not in own)
    array = value.over((*rest, *own))
    if not own or (function in ("tr", "det") and len(own) < 2):
        raise FormulaError(f'{function} is of a {"matrix" if function in ("tr", "det") else "vector"}: say so in the '
                           'table with shape = "vector" or shape = "matrix"', *span)  # fmt: skip
    last = tuple(range(-len(own), 0))
    if function == "softmax":
        shifted = np.exp(array - array.max(axis=-1, keepdims=True))
        return Named(shifted / shifted.sum(axis=-1, keepdims=True), (*rest, *own))
    if function == "diag" and own == (ROW,):
        return Named(array[..., None] * np.eye(array.shape[-1]), (*rest, ROW, COLUMN))
    if function == "diag":
        return Named(np.diagonal(array, axis1=-2, axis2=-1), (*rest, ROW))
    results: dict[str, Array] = {
        "norm": np.sqrt((np.abs(array) ** 2).sum(axis=last)),
        "norm1": np.abs(array).sum(axis=last),
        "norminf": np.abs(array).max(axis=last),
    }
    if function in results:
        return Named(results[function], rest)
    return Named(np.trace(array, axis1=-2, axis2=-1) if function == "tr" else np.linalg.det(array), rest)
