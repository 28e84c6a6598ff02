"""What is drawn in a terminal, wide and narrow."""

import io
import math

import pytest
from rich.console import Console

from minerva.runs.status import GaugeValue, RunStatus
from minerva.runs.terminal import LEVELS, drawn, duration, sparkline

READINGS = [
    GaugeValue("E-step KL/bound", 0.973, True),
    GaugeValue("mean KL/bound", 2.31, False),
    GaugeValue("temperature", 1.44, True),
    GaugeValue("effective samples", 8.83, True),
]
ONE = [RunStatus("seed 0", -63.7, [-900.0, -300.0, -86.6, -90.0], READINGS, ["mean over its bound"])]
MANY = [RunStatus(f"seed {n}", 1000.0 + n, [0.0, 500.0 + n], READINGS, ["x"] * (n == 1)) for n in range(4)]


def shown(glances: list[RunStatus], width: int, height: int = 24, **options: object) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width, height=height, force_terminal=True, color_system=None, highlight=False)
    console.print(drawn(6_000, 8_000, 500.0, glances, console))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_one_run_is_progress_returns_health_and_warnings() -> None:
    lines = shown(ONE, 120)
    assert lines[0].endswith(" 75 %   6,000 of 8,000   500 steps/s   0:04 left")
    assert lines[1] == f"return    training -63.7   evaluated -90.0   best -86.6   {LEVELS[0]}▆{LEVELS[7] * 2}"
    assert lines[2] == (
        "health    E-step KL/bound 0.973   mean KL/bound 2.31   temperature 1.44   effective samples 8.83"
    )
    assert lines[3:] == ["warnings  mean over its bound"]


def test_several_are_a_row_each() -> None:
    lines = shown(MANY, 100)
    assert lines[1].split() == ["evaluated", "training", "E-step", "KL", "mean", "KL", "temperature", "samples"]
    assert len(lines) == 2 + len(MANY)
    assert lines[3].split() == ["seed", "1", "501.0", "1,001.0", "▁█", "!", "0.973", "2.31", "1.44", "8.83"]


@pytest.mark.parametrize("glances", [ONE, MANY], ids=["one", "many"])
@pytest.mark.parametrize("width", [20, 30, 45, 60, 80, 200])
def test_no_line_is_too_long_and_nothing_is_broken_in_two(width: int, glances: list[RunStatus]) -> None:
    lines = shown(glances, width)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    text = "\n".join(lines)
    assert "6,000 of 8,000" in text
    assert "evaluated" in text


def test_more_runs_than_lines_are_counted() -> None:
    lines = shown(MANY * 5, 100, height=10)
    assert len(lines) <= 10
    assert lines[-1] == "and 14 more"


def test_before_anything_is_known_there_are_dashes() -> None:
    nothing = [RunStatus("seed 0", None, [], [], [])]
    assert shown(nothing, 80)[1:] == ["return  training -   evaluated -   best -"]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([], ""),
        ([3.0], ""),
        ([0.0, 7.0], "▁█"),
        ([float(n) for n in range(8)], LEVELS),
        ([5.0, 5.0, 5.0], "▁▁▁"),
        ([-1e9, math.nan, 1e9], "▁█"),
    ],
)
def test_a_sparkline_goes_from_the_lowest_bar_to_the_highest(values: list[float], line: str) -> None:
    assert sparkline(values) == line


def test_a_sparkline_shows_the_last_values() -> None:
    assert sparkline([100.0, *range(30)], length=8) == LEVELS


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.6, "0:05"), (59.7, "1:00"), (754, "12:34"), (3723, "1:02:03"), (math.inf, "-:--")]
)
def test_time_is_read_as_on_a_clock(seconds: float, text: str) -> None:
    assert duration(seconds) == text
