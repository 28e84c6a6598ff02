"""Actions live in [-1, 1] everywhere inside Minerva; here they are turned into an environment's own units."""

from typing import Any

import numpy as np

from minerva.errors import TrainingError

Array = np.ndarray[Any, np.dtype[Any]]


def to_bounds(actions: Array, low: Array, high: Array) -> Array:
    """From [-1, 1] to [low, high]; what lies outside is clipped."""
    if not np.isfinite(actions).all():
        raise TrainingError(f"The policy gave an action that is not finite ({actions}): lower its learning rate.")
    scaled = low + (actions + 1.0) * 0.5 * (high - low)
    return np.clip(scaled, low, high)  # last, for rounding can carry even the sum at ±1 past its bound
