"""A formula's gradient by differences, beside the one that the line's own library computes."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mathdoc.capture import Sample
from mathdoc.evaluate import Evaluation
from mathdoc.named import Array, Named, arranged
from mathdoc.notation import Binding
from mathdoc.rounding import EPSILON
from mathdoc.tree import Node

STEP = 1e-5
UNCERTAIN = 0.3
"""A difference that depends on the step by more than this share says nothing: it is at a kink, or rounding rules."""


@dataclass(frozen=True)
class Slopes:
    """The derivative along one direction, from the formula and from the line."""

    binding: Binding
    expected: float
    found: float
    spread: float
    """How far the formula's own differences lie apart, or rounding moves one: large at a kink, or where that rules."""
    size: float

    @property
    def difference(self) -> float:
        """Relative; what the spread explains does not count."""
        if not np.isfinite(self.found):
            return np.inf
        return max(0.0, abs(self.expected - self.found) - 3 * self.spread) / self.size

    @property
    def telling(self) -> bool:
        """Whether a missing gradient would have been seen."""
        agrees = abs(self.expected - self.found) < 1e-4 * self.size
        return not np.isfinite(self.found) or self.spread < UNCERTAIN * self.size or agrees


def slopes(tree: Node, left: Binding, sample: Sample) -> list[Slopes]:
    """For each symbol with a gradient, both derivatives along a random direction."""
    stops: dict[Node, Named] = {}
    Evaluation(sample.values, sample.sizes, record_stops=stops).run(tree)
    layout = arranged(left.axes or (), sample.result)
    assert layout is not None

    def terms(values: dict[Binding, Array]) -> Array:
        value = Evaluation(values, sample.sizes, stopped=stops).run(tree)
        weighted: Array = value.over(layout.axes).reshape(sample.result.shape) * sample.weights
        return weighted

    largest = max((float(np.max(np.abs(slope), initial=0.0)) for slope in sample.gradients.values()), default=0.0)
    return [_compared(terms, sample, binding, largest) for binding in sample.gradients]


def gradient_difference(tree: Node, left: Binding, sample: Sample) -> tuple[float, str]:
    """The largest relative difference over the symbols, and the symbol."""
    return max(((s.difference, s.binding.tex) for s in slopes(tree, left, sample)), default=(0.0, ""))


def _compared(
    terms: Callable[[dict[Binding, Array]], Array], sample: Sample, binding: Binding, largest: float
) -> Slopes:
    """Along a direction in which each entry moves in proportion to its own size, the derivative of the terms' sum."""
    values, slope = sample.values[binding], sample.gradients[binding]
    finite = np.isfinite(values)
    typical = float(np.median(np.abs(values[finite]))) if finite.any() else 0.0
    scale = np.where(finite, np.maximum(np.abs(values), 0.1 * typical or 1.0), 0.0)
    direction = scale * np.random.default_rng(0).standard_normal(slope.shape)
    unmoved = terms(sample.values)
    here, rounding = float(np.sum(unmoved)), EPSILON * float(np.sum(np.abs(unmoved))) / STEP

    def moved(step: float) -> float:
        return float(np.sum(terms({**sample.values, binding: np.where(finite, values + step * direction, values)})))

    with np.errstate(all="ignore"):
        ahead, behind, far, back = moved(STEP), moved(-STEP), moved(2 * STEP), moved(-2 * STEP)
        expected = (ahead - behind) / (2 * STEP)
        others = ((far - back) / (4 * STEP), (ahead - here) / STEP, (here - behind) / STEP)
        spread = max(rounding, *(abs(other - expected) for other in others))
        found = float(np.sum(slope * direction))
    size = max(abs(expected), abs(found), 1e-3 * largest * float(np.max(scale, initial=0.0)), 1e-12)
    return Slopes(binding, expected, found, spread if np.isfinite(spread) else np.inf, size)
