"""A formula's gradient by central differences, beside the one that the line's own library computes."""

from collections.abc import Callable

import numpy as np

from mathdoc.capture import Sample
from mathdoc.evaluate import Evaluation
from mathdoc.named import Array, Named, arranged
from mathdoc.notation import Binding
from mathdoc.tree import Node

STEP = 1e-5


def gradient_difference(tree: Node, left: Binding, sample: Sample) -> tuple[float, str]:
    """The largest relative difference over the symbols, each along a random direction, and the symbol."""
    stops: dict[Node, Named] = {}
    Evaluation(sample.values, record_stops=stops).run(tree)

    def objective(values: dict[Binding, Array]) -> float:
        value = Evaluation(values, stopped=stops).run(tree)
        layout = arranged(left.axes or (), sample.result)
        assert layout is not None
        return float(np.sum(value.over(layout.axes).reshape(sample.result.shape) * sample.weights))

    worst = (0.0, "")
    scale = max((float(np.max(np.abs(slope), initial=0.0)) for slope in sample.gradients.values()), default=0.0)
    for binding, slope in sample.gradients.items():
        direction = np.random.default_rng(0).standard_normal(slope.shape)
        expected = _directional(objective, sample.values, binding, direction)
        found = float(np.sum(slope * direction))
        size = max(abs(expected), abs(found), 1e-3 * scale, 1e-12)
        worst = max(worst, (abs(expected - found) / size, binding.tex))
    return worst


def _directional(
    objective: Callable[[dict[Binding, Array]], float], values: dict[Binding, Array], binding: Binding, direction: Array
) -> float:
    step = STEP * max(1e-3, float(np.max(np.abs(values[binding]), initial=0.0)))
    ahead = objective({**values, binding: values[binding] + step * direction})
    behind = objective({**values, binding: values[binding] - step * direction})
    return (ahead - behind) / (2 * step)
