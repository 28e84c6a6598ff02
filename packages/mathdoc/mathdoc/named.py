"""Arrays whose dimensions have names: two of them meet by name, never by position."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mathdoc.problem import FormulaError

Array = np.ndarray

ROW, COLUMN = "(row)", "(column)"
"""The dimensions of what a formula treats as a matrix or a vector."""


@dataclass(frozen=True)
class Named:
    """float64 values, or complex ones, and the name of each dimension."""

    values: Array
    axes: tuple[str, ...]

    def sizes(self) -> dict[str, int]:
        """Length by name."""
        return dict(zip(self.axes, self.values.shape, strict=True))

    def over(self, axes: tuple[str, ...]) -> Array:
        """The values laid out for these axes, of which it may lack some."""
        order = [self.axes.index(axis) for axis in axes if axis in self.axes]
        shape = [self.values.shape[self.axes.index(axis)] if axis in self.axes else 1 for axis in axes]
        return self.values.transpose(order).reshape(shape)


def wide(values: Any) -> Array:
    """In float64; in the same width where they have an imaginary part."""
    return np.asarray(values, dtype=np.complex128 if np.iscomplexobj(values) else np.float64)


def arranged(declared: tuple[str, ...], values: Array) -> Named | None:
    """An array with its declared axes; None if they do not fit it.

    `...` stands for any number of dimensions, which meet others from the right as NumPy's do (and count as absent
    where they have one entry); an axis written `k?` may be missing.
    """
    if "..." not in declared and values.ndim < len(declared):
        declared = tuple(axis for axis in declared if not axis.endswith("?"))
    names = [axis.rstrip("?") for axis in declared]
    if "..." not in names:
        return Named(values, tuple(names)) if values.ndim == len(names) else None
    at, count = names.index("..."), values.ndim - len(names) + 1
    if count < 0:
        return None
    names[at : at + 1] = [f"...{number}" for number in range(count, 0, -1)]
    kept = [k for k, name in enumerate(names) if not (name.startswith("...") and values.shape[k] == 1)]
    shape = [values.shape[k] for k in kept]
    return Named(values.reshape(shape), tuple(names[k] for k in kept))


def combined(function: Callable[..., Array], *parts: Named) -> Named:
    """A function of several arrays, entry by entry; each is repeated along the axes that it lacks."""
    axes: tuple[str, ...] = ()
    sizes: dict[str, int] = {}
    for part in parts:
        for axis, size in part.sizes().items():
            if sizes.setdefault(axis, size) != size:
                raise FormulaError(
                    f"the index {axis} runs over {sizes[axis]} values in one place and {size} in another"
                )
        axes += tuple(axis for axis in part.axes if axis not in axes)
    return Named(wide(function(*(part.over(axes) for part in parts))), axes)


def reduced(function: Callable[..., Array], part: Named, axis: str, what: str) -> Named:
    """A function over one axis, which must be there."""
    if axis not in part.axes:
        raise FormulaError(f"{what} over {axis}, but nothing in it has the index {axis}")
    values = wide(function(part.values, axis=part.axes.index(axis)))
    return Named(values, tuple(name for name in part.axes if name != axis))
