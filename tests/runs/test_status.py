"""Gauges: what they show of the latest reports, and when that is out of the ordinary."""

import math

import pytest

from minerva.runs.status import GaugeValue, RunStatus, gauge, read
from minerva.trainers.mpo.health import gauges as mpo_gauges
from minerva.trainers.ppo.trainer import GAUGES as PPO_GAUGES
from minerva.trainers.vmpo.health import gauges as vmpo_gauges


def test_a_gauge_shows_the_mean_of_its_metric() -> None:
    shown = read([gauge("KL/bound", "kl", 0.5, 2)], [{"kl": 1.0}, {"kl": 3.0}])
    assert shown == [GaugeValue("KL/bound", pytest.approx(2.0), True)]


@pytest.mark.parametrize(("value", "healthy"), [(0.4, False), (0.5, True), (2.0, True), (2.1, False)])
def test_it_is_healthy_within_its_bounds(value: float, healthy: bool) -> None:
    (reading,) = read([gauge("x", "x", 0.5, 2)], [{"x": value}])
    assert reading.healthy is healthy


def test_what_no_report_tells_is_left_out_and_what_is_not_finite_is_passed_over() -> None:
    gauges = [gauge("x", "x"), gauge("y", "y")]
    assert read(gauges, []) == []
    assert read(gauges, [{"x": 1.0}, {"x": math.nan}, {}]) == [GaugeValue("x", 1.0, True)]


def test_a_glance_knows_the_last_and_the_best_evaluation() -> None:
    assert (RunStatus("a", None, [], [], []).evaluated, RunStatus("a", None, [], [], []).best) == (None, None)
    glance = RunStatus("a", None, [1.0, 5.0, 3.0], [], [])
    assert (glance.evaluated, glance.best) == (3.0, 5.0)


def test_kls_are_shown_as_multiples_of_their_bounds() -> None:
    row = {"health/kl_mean": 1.0, "health/kl_std": 12.0, "vmpo/temperature_raw": 1.5, "vmpo/ess": 3.0}
    shown = {reading.label: reading for reading in read(vmpo_gauges(), [row])}
    assert shown["mean KL/bound"].value == pytest.approx(1.0)
    assert shown["spread KL/bound"].value == pytest.approx(12.0)
    assert [label for label, reading in shown.items() if not reading.healthy] == ["spread KL/bound", "effective rows"]
    mpo = {"kl/q_pi": 1.0, "health/kl_mean": 3.0, "health/kl_std": 0.1, "eta": 2.0, "health/effective_samples": 9.0}
    assert [reading.label for reading in read(mpo_gauges(), [mpo]) if not reading.healthy] == ["mean KL/bound"]
    ppo = {"losses/approx_kl": 0.3, "losses/clipfrac": 0.1, "losses/explained_variance": 0.9, "losses/entropy": 1.0}
    assert [reading.label for reading in read(PPO_GAUGES, [ppo]) if not reading.healthy] == ["KL"]
