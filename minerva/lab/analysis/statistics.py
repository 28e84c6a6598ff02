"""Statistics over episodes, seeds and tasks, after Agarwal et al. 2021, arXiv 2108.13264.

Scores of several tasks are a list with one array per task, seeds along the last axis; tasks may have different
numbers of seeds. Every aggregate maps over leading axes, so one call evaluates all resamples of a bootstrap.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

RESAMPLES = 2_000
CONFIDENCE = 0.95

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Scores = Sequence[npt.ArrayLike]
"""One array per task."""
Aggregate = Callable[[Scores], Array]


# --- aggregates ---------------------------------------------------------------------------------------------------


def iqm(scores: Scores) -> Array:
    """Return the mean of the middle half of all runs of all tasks.  K × [..., N_k] -> [...]"""
    ordered = np.sort(_pooled(scores), axis=-1)
    runs = ordered.shape[-1]
    # LaTeX: c = \lfloor \frac{N}{4} \rfloor
    cut = runs // 4
    # LaTeX: \bar{x} = \frac{1}{N - 2 c} \sum_{n=c+1}^{N-c} x_n
    return np.asarray(ordered[..., cut : runs - cut].mean(axis=-1))


def mean(scores: Scores) -> Array:
    """Return the mean over tasks of the mean over seeds.  K × [..., N_k] -> [...]"""
    return _over_tasks([_array(task).mean(axis=-1) for task in scores])


def optimality_gap(scores: Scores, target: float = 1.0) -> Array:
    """Return the mean shortfall of runs below `target`; runs above it count as 0.  K × [..., N_k] -> [...]"""
    # LaTeX: g = \tau - \mathbb{E}_n[\min(x_n, \tau)]
    return np.asarray(target - np.minimum(_pooled(scores), target).mean(axis=-1))


def performance_profile(scores: Scores, thresholds: npt.ArrayLike) -> Array:
    """Return the share of runs that score above each of T thresholds.  K × [..., N_k] -> [..., T]"""
    # LaTeX: y_{t,n} = \mathbf{1}[x_n > \tau_t]
    above = _pooled(scores)[..., None, :] > _array(thresholds)[:, None]
    # LaTeX: p_t = \mathbb{E}_n[y_{t,n}]
    return np.asarray(above.mean(axis=-1))


def probability_of_improvement(scores: Scores, others: Scores) -> Array:
    """Return the probability that a run beats one of `others` on the same task; ties count 1/2.  K × [...] -> [...]"""
    tasks = []
    for task, other in zip(scores, others, strict=True):
        # LaTeX: \Delta_{n,m} = x_n - y_m
        difference = _array(task)[..., :, None] - _array(other)[..., None, :]
        # LaTeX: P = \frac{1}{2} (\mathbb{E}_{n,m}[\operatorname{sign}(\Delta_{n,m})] + 1)
        better = (np.sign(difference).mean(axis=(-2, -1)) + 1) / 2
        tasks.append(better)
    return _over_tasks(tasks)


# --- the stratified bootstrap -------------------------------------------------------------------------------------


def resamples(scores: Scores, times: int = RESAMPLES, seed: int = 0) -> list[Indices]:
    """Return, per task, the indices of the seeds drawn with replacement in each resample.  K × [times, N_k]"""
    generator = np.random.default_rng(seed)
    counts = [_array(task).shape[-1] for task in scores]
    return [generator.integers(count, size=(times, count)) for count in counts]


def resampled(scores: Scores, draws: Sequence[Indices]) -> list[Array]:
    """Return the resampled scores: each task's seeds are drawn from that task only.  K × [times, N_k]"""
    return [_array(task)[draw] for task, draw in zip(scores, draws, strict=True)]


def interval(values: npt.ArrayLike, confidence: float = CONFIDENCE) -> tuple[Array, Array]:
    """Return the percentile interval of a statistic, given on all resamples.  [times, ...] -> [...] and [...]"""
    # LaTeX: \alpha = \frac{1 - c}{2}
    tail = (1 - confidence) / 2
    low, high = np.quantile(_array(values), [tail, 1 - tail], axis=0)
    return low, high


def bootstrap(aggregate: Aggregate, scores: Scores, confidence: float = CONFIDENCE) -> tuple[Array, Array]:
    """Return the stratified-bootstrap interval of an aggregate over tasks and seeds."""
    return interval(aggregate(resampled(scores, resamples(scores))), confidence)


# --- one task -----------------------------------------------------------------------------------------------------


def interquartile_mean(returns: Sequence[float]) -> float:
    """Return the mean of the middle half, which is less sensitive to outlier episodes than the mean."""
    return float(iqm([returns]))


def iqm_interval(returns: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the percentile-bootstrap interval of the interquartile mean."""
    low, high = bootstrap(iqm, [returns], confidence)
    return float(low), float(high)


def iqm_band(curves: npt.ArrayLike) -> tuple[Array, Array, Array]:
    """Return the interquartile mean over seeds at each of T steps, and its interval.  [N, T] -> three times [T]

    Whole curves are resampled, so that neighbouring steps of a band belong to the same resamples.
    """
    values = _array(curves)
    (draw,) = resamples([values[:, 0]])
    low, high = interval(iqm([np.moveaxis(values[draw], 1, -1)]))
    return iqm([values.T]), low, high


def _array(values: Any) -> Array:
    return np.asarray(values, dtype=np.float64)


def _pooled(scores: Scores) -> Array:
    return np.concatenate([_array(task) for task in scores], axis=-1)


def _over_tasks(tasks: Sequence[Array]) -> Array:
    return np.asarray(np.stack(tasks, axis=-1).mean(axis=-1))
