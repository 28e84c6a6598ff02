"""What is redrawn in place in a terminal, wide and narrow; plain lines elsewhere; silence where it was asked for."""

import io
import logging
import math

import pyte
import pytest
from rich.console import Console
from rich.logging import RichHandler
from rich.text import Text

from minerva.runs import terminal
from minerva.runs.status import GaugeValue, RunStatus
from minerva.runs.terminal import LEVELS, Progress, ProgressView, draw_progress, draw_rows, duration, sparkline

READINGS = [
    GaugeValue("E-step KL/bound", 0.973, True),
    GaugeValue("mean KL/bound", 2.31, False),
    GaugeValue("temperature", 1.44, True),
    GaugeValue("effective samples", 8.83, True),
]
ONE = [RunStatus("seed 0", -63.7, [-900.0, -300.0, -86.6, -90.0], READINGS, ["mean over its bound"])]
MANY = [RunStatus(f"seed {n}", 1000.0 + n, [0.0, 500.0 + n], READINGS, ["x"] * (n == 1)) for n in range(4)]


def console_of(width: int, height: int = 24) -> Console:
    file = io.StringIO()
    return Console(file=file, width=width, height=height, force_terminal=True, color_system=None, highlight=False)


def lines_of(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def drawn(runs: list[RunStatus], width: int, height: int = 24) -> list[str]:
    console = console_of(width, height)
    console.print(draw_progress(Progress(6_000, 8_000, 500.0, runs), console.options))
    return lines_of(console)


def test_one_run_is_progress_returns_health_and_warnings() -> None:
    lines = drawn(ONE, 120)
    assert lines[0].endswith(" 75 %   6,000 of 8,000   500 steps/s   0:04 left")
    assert lines[1] == f"return    training -63.7   evaluated -90.0   best -86.6   {LEVELS[0]}▆{LEVELS[7] * 2}"
    assert lines[2] == (
        "health    E-step KL/bound 0.973   mean KL/bound 2.31   temperature 1.44   effective samples 8.83"
    )
    assert lines[3:] == ["warnings  mean over its bound"]


def test_several_are_a_row_each() -> None:
    lines = drawn(MANY, 100)
    assert lines[1].split() == [
        "evaluated",
        "training",
        "evaluations",
        "E-step",
        "KL",
        "mean",
        "KL",
        "temperature",
        "samples",
    ]
    assert len(lines) == 2 + len(MANY)
    assert lines[3].split() == ["seed", "1", "!", "501.0", "1,001.0", "▁█", "0.973", "2.31", "1.44", "8.83"]


@pytest.mark.parametrize("runs", [ONE, MANY], ids=["one", "many"])
@pytest.mark.parametrize("width", [20, 30, 45, 60, 80, 200])
def test_no_line_is_too_long_and_nothing_is_broken_in_two(width: int, runs: list[RunStatus]) -> None:
    lines = drawn(runs, width)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    text = "\n".join(lines)
    assert "6,000 of 8,000" in text
    assert "evaluated" in text


def test_more_runs_than_lines_are_counted() -> None:
    lines = drawn(MANY * 5, 100, height=10)
    assert len(lines) <= 10
    assert lines[-1] == "and 14 more"


def test_rows_keep_the_first_column_and_the_one_that_wraps_and_leave_out_what_does_not_fit() -> None:
    row = {"task": Text("ppo"), "return": Text("1,234", justify="right"), "seeds": Text("900, 1,100, not run (2)")}
    seen = {}
    for width in (60, 24, 12):
        console = console_of(width)
        console.print(draw_rows([row, {"task": Text("mpo")}], console.options, wrap="seeds"))
        seen[width] = [line.split() for line in lines_of(console)]
    assert seen[60] == [
        ["task", "return", "seeds"],
        ["ppo", "1,234", "900,", "1,100,", "not", "run", "(2)"],
        ["mpo", "-", "-"],
    ]
    assert seen[24] == [
        ["task", "return", "seeds"],
        ["ppo", "1,234", "900,"],
        ["1,100,", "not"],
        ["run", "(2)"],
        ["mpo", "-", "-"],
    ]
    assert seen[12] == [["task", "seeds"], ["ppo", "900,"], ["1,100,"], ["not"], ["run"], ["(2)"], ["mpo", "-"]]


def test_before_anything_is_known_there_are_dashes() -> None:
    nothing = [RunStatus("seed 0", None, [], [], [])]
    assert drawn(nothing, 80)[1:] == ["return  training -   evaluated -   best -"]


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


# --- over time ------------------------------------------------------------------------------------------------


class Clock:
    """Time that goes on when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(terminal, "time", clock)
    return clock


def look(train: float | None) -> list[RunStatus]:
    return [RunStatus("seed 0", train, [-78.9], [], [])]


def shown(clock: Clock, terminal: bool, quiet: bool = False, done: int = 0) -> str:
    """What is written for reports 4 seconds and 2000 steps apart."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=80, highlight=False)
    with ProgressView(console, 100_000, done, quiet) as view:
        for i in range(1, 9):
            clock.now += 4
            view.show(done + 2000 * i, lambda i=i: look(-1234.56 if i > 1 else None))  # type: ignore[misc]
    return file.getvalue()


def test_elsewhere_a_line_is_printed_when_the_last_is_ten_seconds_old(clock: Clock) -> None:
    assert shown(clock, terminal=False).splitlines() == [
        "  6 %     6,000 of 100,000   500 steps/s   training -1,234.6   evaluated -78.9   3:08 left",
        " 12 %    12,000 of 100,000   500 steps/s   training -1,234.6   evaluated -78.9   2:56 left",
    ]


def test_of_several_runs_the_line_shows_the_mean(clock: Clock) -> None:
    file = io.StringIO()
    runs = [
        RunStatus("a", 1.0, [10.0], [], []),
        RunStatus("b", None, [], [], []),
        RunStatus("c", 3.0, [30.0], [], []),
    ]
    with ProgressView(Console(file=file, force_terminal=False, width=80), 100, 0) as view:
        clock.now += 10
        view.show(10, lambda: runs)
    assert "1 steps/s   training 2.0   evaluated 20.0   1:30 left" in file.getvalue()


def test_a_resumed_run_counts_its_speed_from_where_it_goes_on(clock: Clock) -> None:
    line = shown(clock, terminal=False, done=50_000).splitlines()[0]
    assert line.startswith(" 56 %    56,000 of 100,000   500 steps/s")
    assert line.endswith("   1:28 left")


def screen(text: str, width: int = 80) -> list[str]:
    """What a terminal shows after this was written to it."""
    display = pyte.Screen(width, 24)
    pyte.Stream(display).feed(text.replace("\n", "\r\n"))
    return [line.rstrip() for line in display.display if line.strip()]


def test_a_terminal_shows_the_latest_in_place_and_nothing_of_it_afterwards(clock: Clock) -> None:
    text = shown(clock, terminal=True)
    assert screen(text) == []
    last = text.rindex("16,000 of 100,000")
    before_the_end = screen(text[: text.index("\n", last)])
    assert before_the_end[0].endswith(" 16 %   16,000 of 100,000   500 steps/s   2:48 left")
    assert len(before_the_end) == 1  # the pictures before it are gone


def test_messages_of_the_log_appear_above_what_stays_in_place(clock: Clock) -> None:
    file, errors = io.StringIO(), io.StringIO()
    terminal = {"force_terminal": True, "width": 80, "color_system": None, "highlight": False}
    handler = RichHandler(console=Console(file=errors, **terminal), show_time=False, show_path=False)  # type: ignore[arg-type]
    logger = logging.getLogger()
    logger.addHandler(handler)
    try:
        with ProgressView(Console(file=file, **terminal), 100, 0) as view:  # type: ignore[arg-type]
            view.show(10, lambda: look(1.0))
            logging.getLogger("minerva").warning("the spread is frozen")
            view.show(100, lambda: look(2.0))
            shown = screen(file.getvalue())
    finally:
        logger.removeHandler(handler)
    assert shown[0].split() == ["WARNING", "the", "spread", "is", "frozen"]
    assert "100 of 100" in shown[1]
    assert len(shown) == 3
    assert errors.getvalue() == ""
    assert handler.console is not view.console  # as it was


def test_drawing_takes_less_than_a_hundredth_of_the_time(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = []

    def draw(*_: object) -> str:
        clock.now += 0.02  # a slow terminal
        pictures.append(clock.now)
        return ""

    monkeypatch.setattr(terminal, "draw_progress", draw)
    began = clock.now
    with ProgressView(Console(file=io.StringIO(), force_terminal=True), 10**9, 0) as view:
        for step in range(100_000):
            clock.now += 0.001
            view.show(step, list)
    assert 10 < len(pictures) < 100
    assert 0.02 * len(pictures) < 0.01 * (clock.now - began)


@pytest.mark.parametrize("dumb", [True, False])
def test_a_terminal_without_a_cursor_gets_plain_lines(
    dumb: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb" if dumb else "xterm")
    text = shown(clock, terminal=True)
    assert ("500 steps/s   training" in text) is dumb
    assert ("\x1b[" in text) is not dumb


def test_quiet_is_silent_everywhere(clock: Clock) -> None:
    assert shown(clock, terminal=False, quiet=True) == ""
    assert shown(clock, terminal=True, quiet=True) == ""
