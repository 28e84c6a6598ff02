"""What rounding may do to a formula's value: each step of its evaluation is moved by a last digit."""

import numpy as np

from mathdoc.capture import Sample
from mathdoc.evaluate import Evaluation
from mathdoc.named import Named
from mathdoc.tree import Node

EPSILON = float(np.finfo(np.float64).eps)
ROOM = 1e3
"""A line may compute in other steps than its formula, and in more of them."""


class _Shaken(Evaluation):
    """An evaluation in which every number but the whole ones, which may count something, is off by a last digit."""

    random: np.random.Generator

    def value(self, node: Node) -> Named:
        """The value of one node, moved."""
        found = super().value(node)
        signs = np.where(found.values == np.round(found.values), 0, self.random.choice([-1, 1], found.values.shape))
        return Named(found.values * (1 + EPSILON * signs), found.axes)


def rounding(tree: Node, sample: Sample) -> float:
    """How far a result may be off that is small because large terms cancel; next to nothing where none do."""
    results = []
    for seed in range(3):
        shaken = _Shaken(sample.values, sample.sizes)
        shaken.random = np.random.default_rng(seed)
        results.append(shaken.run(tree).values)
    spread = np.abs(np.asarray(results) - results[0])
    return float(ROOM * np.max(spread, initial=0.0)) or float(np.finfo(np.float64).tiny)
