"""Configs: intervals, types, unknown names, and the way to a file and back."""

import dataclasses
import math
from typing import Annotated, Any, Literal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from minerva.config import AT_LEAST_ONE, FINITE, FRACTION, NOT_NEGATIVE, POSITIVE, Config, LayerSizes, Within, nearest
from minerva.errors import ConfigError
from minerva.trainers.registry import ALGORITHMS, config_class

ALL = [config_class(name) for name in ALGORITHMS]


@dataclasses.dataclass(frozen=True)
class Sample(Config):
    """A field of every kind."""

    count: Annotated[int, AT_LEAST_ONE] = 3
    rate: Annotated[float, POSITIVE] = 0.5
    shift: float = 0.0
    bound: Annotated[float, Within("(0, inf]")] = math.inf
    optional: Annotated[float | None, NOT_NEGATIVE] = None
    switch: bool = True
    choice: Literal["a", "b"] = "a"
    name: str = "x"
    layers: LayerSizes = (4, 4)


# --- intervals ------------------------------------------------------------------------------------------------

JUST = math.nextafter


@pytest.mark.parametrize(
    ("interval", "inside", "outside"),
    [
        ("[0, 1]", [0, -0.0, 0.5, 1], [JUST(0, -1), JUST(1, 2), -1, 2, math.inf]),
        ("(0, 1)", [JUST(0, 1), 0.5, JUST(1, 0)], [0, -0.0, 1, -1, 2]),
        ("[0, 1)", [0, JUST(1, 0)], [JUST(0, -1), 1]),
        ("(0, 1]", [JUST(0, 1), 1], [0, JUST(1, 2)]),
        ("(0, inf)", [JUST(0, 1), 1e308], [0, -1, math.inf]),
        ("(0, inf]", [1, math.inf], [0, -math.inf]),
        ("(-inf, inf)", [-1e308, 0, 10**30], [math.inf, -math.inf]),
        ("[-2.5, 1e3]", [-2.5, 1000], [JUST(-2.5, -3), JUST(1000, 1001)]),
    ],
)
def test_an_interval_holds_what_its_brackets_say(interval: str, inside: list[float], outside: list[float]) -> None:
    assert [value for value in [*inside, *outside] if value in Within(interval)] == inside
    assert math.nan not in Within(interval)


@settings(derandomize=True, database=None)
@given(st.floats())
def test_the_named_intervals_mean_their_names(value: float) -> None:
    finite = math.isfinite(value)
    assert (value in POSITIVE) == (finite and value > 0)
    assert (value in NOT_NEGATIVE) == (finite and not value < 0)
    assert (value in FRACTION) == (finite and min(max(value, 0.0), 1.0) == value)
    assert (value in AT_LEAST_ONE) == (finite and value >= 1)
    assert (value in FINITE) == finite


# --- types ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("count", 0, r"count is 0: it must be in \[1, inf\)"),
        ("count", 2.5, "count is 2.5: it must be a whole number"),
        ("count", 2.0, "count is 2.0: it must be a whole number"),
        ("count", True, "count is True: it must be a whole number"),
        ("count", "3", "count is '3': it must be a whole number"),
        ("count", None, "count is None: it must be a whole number"),
        ("rate", 0, r"rate is 0.0: it must be in \(0, inf\)"),
        ("rate", math.nan, r"rate is nan: it must be in \(0, inf\)"),
        ("rate", math.inf, r"rate is inf: it must be in \(0, inf\)"),
        ("rate", "high", "rate is 'high': it must be a number"),
        ("rate", False, "rate is False: it must be a number"),
        ("shift", math.inf, r"shift is inf: it must be in \(-inf, inf\)"),
        ("shift", math.nan, r"shift is nan: it must be in \(-inf, inf\)"),
        ("bound", math.nan, r"bound is nan: it must be in \(0, inf\]"),
        ("optional", -1.0, r"optional is -1.0: it must be in \[0, inf\)"),
        ("switch", 1, "switch is 1: it must be True or False"),
        ("switch", "yes", "switch is 'yes': it must be True or False"),
        ("choice", "c", "choice is 'c': it must be one of a, b"),
        ("choice", ["a"], r"choice is \['a'\]: it must be one of a, b"),
        ("name", 3, "name is 3: it must be text"),
        ("layers", (), r"layers is \(\): it must list at least one positive layer width, for example 64 64"),
        ("layers", (64, 0), "positive layer width"),
        ("layers", (64, 1.5), "positive layer width"),
        ("layers", (True,), "positive layer width"),
        ("layers", 64, "positive layer width"),
        ("layers", "64", "positive layer width"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_and_what_it_must_be(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sample.from_dict({name: value})


def test_right_values_are_kept_in_the_type_of_the_field() -> None:
    config = Sample.from_dict({"rate": 2, "bound": math.inf, "optional": 0, "layers": [8, 16]})
    assert config == Sample(rate=2.0, bound=math.inf, optional=0.0, layers=(8, 16))
    assert type(config.rate) is float
    assert type(config.layers) is tuple


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sample().count = 4  # type: ignore[misc]


# --- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "known", "sentence"),
    [
        ("gama", ["gamma", "rate"], "Did you mean gamma?"),
        ("rat", ["rate", "rates", "gamma"], "Did you mean rate or rates?"),
        ("xyz", ["gamma", "alpha"], "Known: alpha, gamma."),
    ],
)
def test_the_nearest_names_are_offered_or_all_of_them(name: str, known: list[str], sentence: str) -> None:
    assert nearest(name, known) == sentence


@pytest.mark.parametrize("config", ALL)
def test_an_unknown_setting_is_refused_with_the_nearest(config: type[Config]) -> None:
    with pytest.raises(ConfigError, match=rf"gama is not a setting of {config.__name__}\. Did you mean gamma"):
        config.from_dict({"gama": 0.9})


# --- the three algorithms' configs ----------------------------------------------------------------------------


@pytest.mark.parametrize("config", [*ALL, Sample])
def test_the_way_to_yaml_and_back_changes_nothing(config: type[Config]) -> None:
    original = config()
    values = yaml.safe_load(yaml.safe_dump(original.to_dict()))
    assert config.from_dict(values) == original
    assert list(values) == sorted(field.name for field in dataclasses.fields(config))


@settings(derandomize=True, database=None)
@given(
    st.builds(
        Sample,
        count=st.integers(1, 10**12),
        rate=st.floats(0, exclude_min=True, allow_infinity=False),
        shift=st.floats(allow_nan=False, allow_infinity=False),
        optional=st.none() | st.floats(0, allow_infinity=False),
        layers=st.lists(st.integers(1, 4096), min_size=1).map(tuple),
        name=st.text(st.characters(codec="ascii", categories=["L", "N"])),
    )
)
def test_any_config_survives_yaml(config: Sample) -> None:
    assert Sample.from_dict(yaml.safe_load(yaml.safe_dump(config.to_dict()))) == config


def _numbers(config: type[Config]) -> list[tuple[str, Within]]:
    ranges = {name: getattr(annotation, "__metadata__", ()) for name, annotation in config.annotations().items()}
    return [(name, limit) for name, limits in ranges.items() for limit in limits if isinstance(limit, Within)]


@pytest.mark.parametrize(
    ("config", "name", "limit"), [(config, name, limit) for config in ALL for name, limit in _numbers(config)]
)
def test_every_number_with_a_range_is_refused_below_it(config: type[Config], name: str, limit: Within) -> None:
    low = float(limit.interval[1:-1].split(",")[0])
    below = math.floor(low) - 1 if "int" in str(config.annotations()[name]) else JUST(low, -math.inf)
    with pytest.raises(ConfigError, match=f"^{name} is "):
        config.from_dict({name: below})


@pytest.mark.parametrize("config", ALL)
def test_no_number_is_without_a_range_or_a_reason(config: type[Config]) -> None:
    free = {name for name, hint in config.annotations().items() if hint in (int, float, float | None, int | None)}
    # logarithms and unconstrained parameters: any finite number means something
    assert free <= {"initial_log_std", "temperature_init", "init_log_alpha_mean", "init_log_alpha_stddev"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"policy_lr": 10**400}, "policy_lr is larger than any floating-point number"),
        ({"policy_layer_sizes": [1] * 101}, "policy_layer_sizes lists 101 layers: at most 100"),
    ],
    ids=["400 digits", "layers"],
)
def test_a_value_beyond_all_measure_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config_class("ppo")(**change)
