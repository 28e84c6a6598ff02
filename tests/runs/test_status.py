"""Gauges: what they show of the latest reports, and when that is out of the ordinary."""

import math

import pytest

from minerva.metrics import Metric
from minerva.runs.status import GaugeValue, RunStatus, gauge_values
from minerva.trainers.registry import metrics_of


def test_a_gauge_shows_the_mean_of_its_metric() -> None:
    metrics = [Metric("kl", "", label="KL/bound", healthy=(0.5, 2)), Metric("loss", "")]
    shown = gauge_values(metrics, [{"kl": 1.0, "loss": 1.0}, {"kl": 3.0, "loss": 1.0}])
    assert shown == [GaugeValue("KL/bound", pytest.approx(2.0), True)]


@pytest.mark.parametrize(("value", "healthy"), [(0.4, False), (0.5, True), (2.0, True), (2.1, False)])
def test_it_is_healthy_within_its_bounds(value: float, healthy: bool) -> None:
    (reading,) = gauge_values([Metric("x", "", label="x", healthy=(0.5, 2))], [{"x": value}])
    assert reading.healthy is healthy


def test_what_no_report_tells_is_left_out_and_what_is_not_finite_is_passed_over() -> None:
    metrics = [Metric("x", "", label="x"), Metric("y", "", label="y")]
    assert gauge_values(metrics, []) == []
    assert gauge_values(metrics, [{"x": 1.0}, {"x": math.nan}, {}]) == [GaugeValue("x", 1.0, True)]


def test_a_status_knows_the_last_and_the_best_evaluation() -> None:
    assert (RunStatus("a", None, [], [], []).evaluated, RunStatus("a", None, [], [], []).best) == (None, None)
    status = RunStatus("a", None, [1.0, 5.0, 3.0], [], [])
    assert (status.evaluated, status.best) == (3.0, 5.0)


def test_kls_are_shown_as_multiples_of_their_bounds() -> None:
    row = {"health/kl_mean": 1.0, "health/kl_std": 12.0, "vmpo/temperature_raw": 1.5, "vmpo/ess": 3.0}
    shown = {reading.label: reading for reading in gauge_values(metrics_of("vmpo"), [row])}
    assert shown["mean KL/bound"].value == pytest.approx(1.0)
    assert shown["std KL/bound"].value == pytest.approx(12.0)
    assert [label for label, reading in shown.items() if not reading.healthy] == ["std KL/bound", "effective rows"]
    mpo = {"kl/q_pi": 1.0, "health/kl_mean": 3.0, "health/kl_std": 0.1, "eta": 2.0, "health/effective_samples": 9.0}
    assert unhealthy("mpo", mpo) == ["mean KL/bound"]
    ppo = {"losses/approx_kl": 0.3, "losses/clipfrac": 0.1, "losses/explained_variance": 0.9, "losses/entropy": 1.0}
    assert unhealthy("ppo", ppo) == ["KL"]


def unhealthy(algo: str, row: dict[str, float]) -> list[str]:
    return [reading.label for reading in gauge_values(metrics_of(algo), [row]) if not reading.healthy]
