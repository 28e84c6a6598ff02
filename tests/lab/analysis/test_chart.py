"""Charts: round ticks, points where the axes say, and names that do not overlap."""

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minerva.lab.analysis.chart import NAME_HEIGHT, Axis, Chart, Level, Line, figure

STEPS = np.array([0.0, 500.0, 1000.0])


def drawn(levels: list[Level] = [], **changed: Any) -> str:  # noqa: B006
    line = Line(0, "PPO", STEPS, np.array([1.0, 2.0, 4.0]), np.array([0.5, 1.5, 3.5]), np.array([1.5, 2.5, 4.5]))
    return figure(Chart("Task", [line], levels=levels, **changed))


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path)]


@settings(deadline=None, derandomize=True)
@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(2, 8))
def test_ticks_are_round_evenly_spaced_and_inside(low: float, size: float, wanted: int) -> None:
    axis = Axis(low, low + size, 0, 100)
    ticks = axis.ticks(wanted)
    assert 1 <= len(ticks) <= wanted + 1
    assert all(low - 1e-6 * size <= tick <= low + size * (1 + 1e-6) for tick in ticks)
    if len(ticks) > 1:
        step = (ticks[-1] - ticks[0]) / (len(ticks) - 1)
        digits = step / 10 ** math.floor(math.log10(step) + 1e-9)
        assert min(abs(digits - round_) for round_ in (1, 2, 2.5, 5, 10)) < 1e-3


@pytest.mark.parametrize(
    ("low", "high", "ticks"), [(0.01, 100, [0.01, 0.1, 1, 10, 100]), (2, 40, [3, 10, 30]), (1.1, 1.9, [1.5])]
)
def test_a_logarithmic_axis_has_ticks_at_decades_or_between(low: float, high: float, ticks: list[float]) -> None:
    assert Axis(low, high, 100, 0, log=True).ticks(5) == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (9340.2, 9341.9, ["9.3405k", "9.341k", "9.3415k"]),
        (0.99901, 0.99949, ["0.9991", "0.9992", "0.9993", "0.9994"]),
        (0.0, 1000.0, ["0", "200", "400", "600", "800", "1k"]),
        (990.0, 1001.0, ["990", "992.5", "995", "997.5", "1k"]),
    ],
)
def test_neighbouring_ticks_have_different_labels(low: float, high: float, labels: list[str]) -> None:
    line = Line(0, "PPO", STEPS, np.array([low, low, high]))
    text = figure(Chart("Task", [line], y_range=(low, high)))
    shown = text.partition('<g class="y-ticks">')[2].partition("</g>")[0]
    assert re.findall(r">([^<>]+)</text>", shown) == labels


def test_places_are_in_proportion() -> None:
    assert Axis(10, 20, 0, 100).place([10, 15, 20]).tolist() == [0, 50, 100]
    np.testing.assert_allclose(Axis(1, 100, 100, 0, log=True).place([1, 10, 100]), [100, 50, 0])
    assert Axis(1, 100, 100, 0, log=True).place(0) == 100  # what a logarithm cannot show lies on the edge


def test_a_line_goes_through_its_values_and_the_band_around_it() -> None:
    text = drawn()
    (line,) = re.findall(r'class="line" d="M([^"]+)"', text)
    (x0, y0), (x1, y1), (x2, y2) = points(line)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.11)
    assert (y1 - y2) == pytest.approx(2 * (y0 - y1), abs=0.3)  # 1, 2, 4, upwards
    (band,) = re.findall(r'class="band" d="M([^"]+)Z"', text)
    upper, lower = points(band)[:3], points(band)[3:][::-1]
    for (_, top), (_, middle), (_, bottom) in zip(upper, points(line), lower, strict=True):
        assert top < middle < bottom
        assert middle - top == pytest.approx(bottom - middle, abs=0.11)


def test_names_of_levels_that_lie_close_are_written_once() -> None:
    far = drawn([Level(1.0, "the first one", "first"), Level(4.0, "the second one", "second")])
    assert re.findall(r'level-name"[^>]*>([^<]+)<', far) == ["the second one", "the first one"]
    near = drawn([Level(2.0, "the first one", "first"), Level(2.01, "the second one", "second")])
    assert re.findall(r'level-name"[^>]*>([^<]+)<', near) == ["second, first"]
    assert near.count('class="level"') == 2
    assert NAME_HEIGHT > 10  # the style sheet's letters have 10 units


def test_a_single_point_is_a_dot_and_no_range_is_empty() -> None:
    text = figure(Chart("Task", [Line(0, "PPO", np.array([5.0]), np.array([3.0]))]))
    assert '<circle class="dot"' in text
    assert "nan" not in text
    assert "inf" not in text


def test_whoever_does_not_see_it_is_told_where_it_ends() -> None:
    assert (
        'aria-label="Task. return over environment steps. PPO ends at 4. Arrow keys move along the curve."' in drawn()
    )
