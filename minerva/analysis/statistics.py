"""Statistics over episodes and seeds."""

from collections.abc import Sequence

import numpy as np

RESAMPLES = 2_000


def interquartile_mean(returns: Sequence[float]) -> float:
    """Mean of the middle half: less moved by a lucky or lost episode than the mean."""
    ordered = np.sort(np.asarray(returns, dtype=np.float64))
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def iqm_interval(returns: Sequence[float], confidence: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Percentile-bootstrap interval of the interquartile mean."""
    values = np.asarray(returns, dtype=np.float64)
    draws = np.random.default_rng(seed).integers(len(values), size=(RESAMPLES, len(values)))
    means = [interquartile_mean(values[draw]) for draw in draws]
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
