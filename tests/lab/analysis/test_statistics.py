"""The statistics of the reports: closed forms, and the same numbers as `rliable`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rliable import library, metrics

from minerva.lab.analysis import statistics

RUNS, TASKS, TIMES = 7, 4, 300
THRESHOLDS = np.linspace(-1.0, 3.0, 9)


@pytest.fixture
def scores() -> np.ndarray:
    """[runs, tasks], as rliable takes them, with ties between runs."""
    return np.random.default_rng(3).normal(size=(RUNS, TASKS)).round(1) + np.arange(TASKS) / 2


@pytest.fixture
def others() -> np.ndarray:
    return np.random.default_rng(4).normal(size=(5, TASKS)).round(1) + np.arange(TASKS) / 2


AGGREGATES = {
    "iqm": (statistics.iqm, metrics.aggregate_iqm),
    "mean": (statistics.mean, metrics.aggregate_mean),
    "optimality gap": (statistics.optimality_gap, metrics.aggregate_optimality_gap),
    "profile": (
        lambda scores: statistics.performance_profile(scores, THRESHOLDS),
        lambda scores: library.score_distributions(scores, THRESHOLDS),
    ),
}


# --- rliable ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", AGGREGATES)
def test_point_estimates_are_those_of_rliable(name: str, scores: np.ndarray) -> None:
    ours, theirs = AGGREGATES[name]
    np.testing.assert_allclose(ours(list(scores.T)), theirs(scores), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", AGGREGATES)
def test_intervals_are_those_of_rliable_on_the_same_resamples(
    name: str, scores: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = AGGREGATES[name]
    draws = statistics.resamples(list(scores.T), TIMES)
    given = iter(np.stack(draws, axis=-1))  # rliable draws [runs, tasks] at a time
    monkeypatch.setattr(
        library.StratifiedBootstrap, "update_indices", lambda self: (next(given), *self._strata_indices)
    )
    _, intervals = library.get_interval_estimates({"a": scores}, lambda x: np.atleast_1d(theirs(x)), reps=TIMES)
    low, high = statistics.interval(ours(statistics.resampled(list(scores.T), draws)))
    np.testing.assert_allclose(np.stack([np.atleast_1d(low), np.atleast_1d(high)]), intervals["a"], rtol=0, atol=1e-9)


def test_the_probability_of_improvement_is_that_of_rliable(
    scores: np.ndarray, others: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = list(scores.T), list(others.T)
    wanted = metrics.probability_of_improvement(scores, others)
    assert statistics.probability_of_improvement(mine, theirs) == pytest.approx(wanted, abs=1e-6)

    first, second = statistics.resamples(mine, TIMES, seed=0), statistics.resamples(theirs, TIMES, seed=1)
    given = zip(np.stack(first, axis=-1), np.stack(second, axis=-1), strict=True)

    def update_indices(self: library.StratifiedIndependentBootstrap) -> object:
        drawn = next(given)
        return [(one, *strata) for one, strata in zip(drawn, self._args_strata_indices, strict=True)], {}

    monkeypatch.setattr(library.StratifiedIndependentBootstrap, "update_indices", update_indices)
    _, intervals = library.get_interval_estimates(
        {"a,b": [scores, others]}, lambda x, y: np.array([metrics.probability_of_improvement(x, y)]), reps=TIMES
    )
    drawn = [statistics.resampled(mine, first), statistics.resampled(theirs, second)]
    low, high = statistics.interval(statistics.probability_of_improvement(*drawn))
    np.testing.assert_allclose([low, high], intervals["a,b"][:, 0], rtol=0, atol=1e-9)


# --- closed forms -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", range(1, 13))
def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end(runs: int) -> None:
    values = np.arange(runs, dtype=float)
    assert statistics.interquartile_mean(values.tolist()) == pytest.approx((runs - 1) / 2)
    values[-1] += 1e6  # one lucky run moves it only where no quarter is as large as a run
    moved = statistics.interquartile_mean(values.tolist()) - (runs - 1) / 2
    assert (moved > 1) == (runs < 4)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12), st.floats(-1e3, 1e3), st.floats(0, 1e2))
def test_the_interval_moves_and_grows_with_the_scores(values: list[float], shift: float, scale: float) -> None:
    low, high = statistics.iqm_interval(values)
    there_low, there_high = statistics.iqm_interval([shift + scale * value for value in values])
    assert low <= high
    np.testing.assert_allclose([there_low, there_high], [shift + scale * low, shift + scale * high], atol=1e-6)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        low, high = statistics.iqm_interval(generator.normal(size=30).tolist())
        hits += low <= 0 <= high
    assert 0.88 <= hits / 300 <= 0.98  # a percentile bootstrap of 30 runs is a little too narrow


def test_strata_are_not_mixed() -> None:
    apart = [np.zeros(3), np.full(8, 100.0)]
    for drawn, task in zip(statistics.resampled(apart, statistics.resamples(apart)), apart, strict=True):
        assert drawn.shape == (statistics.RESAMPLES, len(task))
        assert set(drawn.ravel()) == set(task)
    low, high = statistics.bootstrap(statistics.mean, apart)
    assert (low, high) == (50, 50)  # within a task all runs are equal: nothing is left to be uncertain of


def test_a_profile_falls_from_one_to_zero_and_its_area_is_the_mean() -> None:
    values = np.random.default_rng(1).uniform(size=40)
    thresholds = np.linspace(-0.5, 1.5, 200_001)
    profile = statistics.performance_profile([values[:15], values[15:]], thresholds)
    assert profile[0] == 1
    assert profile[-1] == 0
    assert np.all(np.diff(profile) <= 0)
    assert np.trapezoid(profile, thresholds) - 0.5 == pytest.approx(values.mean(), abs=1e-4)


def test_improvement_over_oneself_is_a_half_and_the_other_way_round_is_the_rest() -> None:
    generator = np.random.default_rng(2)
    one, other = [generator.normal(size=(2, 9))[0], generator.normal(size=4)], [generator.normal(size=6), np.ones(3)]
    assert statistics.probability_of_improvement(one, one) == pytest.approx(0.5)
    there, back = (
        statistics.probability_of_improvement(one, other),
        statistics.probability_of_improvement(other, one),
    )
    assert there + back == pytest.approx(1)
    assert statistics.probability_of_improvement([[3.0, 4.0]], [[1.0, 2.0]]) == 1
    assert statistics.probability_of_improvement([[1.0, 3.0]], [[2.0]]) == 0.5
    assert statistics.probability_of_improvement([[2.0]], [[2.0]]) == 0.5


def test_what_is_above_the_target_does_not_fill_the_gap() -> None:
    assert statistics.optimality_gap([[0.5, 1.0]]) == pytest.approx(0.25)
    assert statistics.optimality_gap([[0.5, 9.0]]) == pytest.approx(0.25)
    assert statistics.optimality_gap([[2.0, 9.0]]) == 0


def test_a_band_is_at_every_step_the_interval_of_that_step() -> None:
    curves = np.random.default_rng(5).normal(size=(6, 4)).cumsum(axis=1)
    middle, low, high = statistics.iqm_band(curves)
    for step in range(4):
        values = curves[:, step].tolist()
        assert middle[step] == pytest.approx(statistics.interquartile_mean(values))
        assert (low[step], high[step]) == pytest.approx(statistics.iqm_interval(values))


def test_one_seed_has_a_band_without_width() -> None:
    curve = np.array([[1.0, 5.0, 2.0]])
    for line in statistics.iqm_band(curve):
        np.testing.assert_array_equal(line, curve[0])
