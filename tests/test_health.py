"""The watch over constraints: patient, clear, and heard once."""

import json
import logging

import pytest

from minerva.metrics import Health, Metric, Rule, range_rules
from minerva.trainers.mpo.config import MPOConfig
from minerva.trainers.mpo.metrics import rules
from minerva.trainers.ppo.config import PPOConfig
from minerva.trainers.ppo.metrics import rules as ppo_rules

HIGH = Rule("high", lambda mean: mean["kl/mean"] > 2, "kl is {kl/mean:.1f}: lower policy_lr")


def test_it_judges_averages_after_the_window_and_speaks_once(caplog: pytest.LogCaptureFixture) -> None:
    health = Health([HIGH], window=4)
    with caplog.at_level(logging.WARNING, "minerva"):
        told = [health({"kl/mean": value}) for value in (9.0, 1.0, 1.0, 1.0, 4.0, 4.0, 4.0, 9.0)]
    assert told == [[], [], [], ["high"], [], [], [], []]
    assert [record.message for record in caplog.records] == ["kl is 3.0: lower policy_lr"]


def test_a_passing_excess_is_no_illness(caplog: pytest.LogCaptureFixture) -> None:
    health = Health([HIGH], window=4)
    for value in (1.0, 1.0, 5.0, 0.0, 1.0):
        assert health({"kl/mean": value, "other": 1.0}) == []
    assert not caplog.records


def test_a_metric_that_not_every_report_has_is_left_out() -> None:
    health = Health([Rule("odd", lambda mean: "sometimes" in mean, "")], window=2)
    assert health({"always": 1.0}) == health({"always": 1.0, "sometimes": 1.0}) == []


def test_it_goes_on_where_its_state_was_made() -> None:
    values = [9.0, 1.0, 1.0, 1.0, 4.0, 4.0, 4.0, 9.0]
    for stopped in range(len(values)):
        before, after = Health([HIGH], window=4), Health([HIGH], window=4)
        told = [before({"kl/mean": value}) for value in values[:stopped]]
        after.load_state_dict(json.loads(json.dumps(before.state_dict())))  # as it comes out of a checkpoint
        told += [after({"kl/mean": value}) for value in values[stopped:]]
        assert told == [[], [], [], ["high"], [], [], [], []]


HEALTHY = {
    "kl/q_pi": 1.0,
    "alpha_std": 3.0,
    "health/kl_mean": 1.0,
    "health/kl_std": 1.0,
    "health/effective_samples": 12.0,
    "health/out_of_bounds": 0.2,
    "health/std_at_floor": 0.0,
    "pi/std_max": 0.4,
}


@pytest.mark.parametrize(
    ("sick", "name", "option"),
    [
        ({"kl/q_pi": 2.5}, "temperature", "temperature_lr"),
        ({"kl/q_pi": 0.1}, "temperature", "temperature_lr"),
        ({"alpha_std": 990.0, "health/kl_std": 0.01}, "frozen std", "init_log_alpha_stddev"),
        ({"health/kl_mean": 3.0}, "mean over its bound", "lambda_lr"),
        ({"health/kl_std": 3.0}, "std over its bound", "mstep_kl_epsilon_std"),
        ({"health/effective_samples": 1.2}, "few samples", "kl_epsilon"),
        ({"health/out_of_bounds": 0.9}, "out of bounds", "epsilon_penalty"),
        ({"pi/std_max": 1e-5}, "collapsed std", "mstep_kl_epsilon_std"),
        ({"health/targets_at_limit": 0.5}, "critic range", "scale_rewards"),
    ],
)
def test_each_illness_of_mpo_names_the_setting_that_mends_it(
    sick: dict[str, float], name: str, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    health = Health(rules(MPOConfig(), initial_alpha_std=1000.0), window=1)
    assert health(HEALTHY) == []
    with caplog.at_level(logging.WARNING, "minerva"):
        assert health(HEALTHY | sick) == [name]
    assert option in caplog.text
    assert hasattr(MPOConfig(), option)


def test_steps_of_ppo_that_are_too_long_name_the_settings_that_shorten_them(caplog: pytest.LogCaptureFixture) -> None:
    health = Health(ppo_rules(), window=1)
    assert health({"losses/approx_kl": 0.06}) == []
    with caplog.at_level(logging.WARNING, "minerva"):
        assert health({"losses/approx_kl": 0.15}) == ["large steps"]
    for option in ("policy_lr", "update_epochs", "target_kl"):
        assert option in caplog.text
        assert hasattr(PPOConfig(), option)


def test_a_metric_with_a_warning_is_a_rule_of_its_range() -> None:
    watched = Metric("kl", "", healthy=(0.5, 2.0), warning="far", advice="kl is {kl:.1f}: lower policy_lr")
    (rule,) = range_rules([watched, Metric("loss", "", healthy=(0.0, 1.0))])
    assert (rule.name, rule.message) == ("far", watched.advice)
    assert [rule.broken({"kl": value}) for value in (0.4, 0.5, 2.0, 2.1)] == [True, False, False, True]


def test_a_rule_waits_until_all_reports_tell_its_metric() -> None:
    health = Health([HIGH], window=2)
    assert health({"loss": 1.0}) == []
    assert health({"kl/mean": 5.0}) == []
    assert health({"kl/mean": 5.0}) == ["high"]
