"""Integrals: over the points of an array, and from limit to limit, which may be infinite."""

import numpy as np

from mathdoc.named import Array, Named, combined

STEPS = np.linspace(-4, 4, 401)
BEND, SLOPE = np.pi / 2 * np.sinh(STEPS), np.pi / 2 * np.cosh(STEPS) * (STEPS[1] - STEPS[0])


def nodes(lower: Named, upper: Named, axis: str) -> tuple[Named, Named]:
    """The points between two limits, along an axis of their own, and the weight of each."""
    bend, slope = Named(BEND, (axis,)), Named(SLOPE, (axis,))
    return combined(_points, lower, upper, bend), combined(_weights, lower, upper, bend, slope)


def summed(values: Named, weights: Named) -> Named:
    """The integral of what has these values at the points."""
    axis = weights.axes[-1]
    whole = combined(lambda value, weight: np.where(weight == 0, 0.0, value * weight), values, weights)
    return Named(whole.values.sum(whole.axes.index(axis)), tuple(name for name in whole.axes if name != axis))


def trapezoid(values: Named, points: Named) -> Named:
    """The integral over the points of an array with one axis, by straight lines between them."""
    (axis,) = points.axes
    laid = np.moveaxis(values.values, values.axes.index(axis), -1)
    total = ((laid[..., 1:] + laid[..., :-1]) / 2 * np.diff(points.values)).sum(-1)
    return Named(total, tuple(name for name in values.axes if name != axis))


def _points(lower: Array, upper: Array, bend: Array) -> Array:
    finite = lower + (upper - lower) / (1 + np.exp(-2 * bend))
    above, below = lower + np.exp(bend), upper - np.exp(-bend)
    return _chosen(lower, upper, finite, above, below, np.sinh(bend))


def _weights(lower: Array, upper: Array, bend: Array, slope: Array) -> Array:
    finite = (upper - lower) / 2 / np.cosh(bend) ** 2 * slope
    return _chosen(lower, upper, finite, np.exp(bend) * slope, np.exp(-bend) * slope, np.cosh(bend) * slope)


def _chosen(lower: Array, upper: Array, finite: Array, above: Array, below: Array, everywhere: Array) -> Array:
    """By which of the limits are infinite."""
    bounded = np.where(np.isinf(upper), above, finite)
    return np.where(np.isinf(lower), np.where(np.isinf(upper), everywhere, below), bounded)
