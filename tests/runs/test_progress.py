"""The lines that stay in place in a terminal, plain lines elsewhere, silence where it was asked for."""

import io
import logging

import pyte
import pytest
from rich.console import Console
from rich.logging import RichHandler

from minerva.runs import progress
from minerva.runs.progress import ProgressView
from minerva.runs.status import RunStatus


class Clock:
    """Time that goes on when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
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
        "    6,000 / 100,000 (  6 %)  500 steps/s  return -1,234.6  evaluated -78.9  188 s left",
        "   12,000 / 100,000 ( 12 %)  500 steps/s  return -1,234.6  evaluated -78.9  176 s left",
    ]


def test_of_several_runs_the_line_shows_the_mean(clock: Clock) -> None:
    file = io.StringIO()
    glances = [
        RunStatus("a", 1.0, [10.0], [], []),
        RunStatus("b", None, [], [], []),
        RunStatus("c", 3.0, [30.0], [], []),
    ]
    with ProgressView(Console(file=file, force_terminal=False, width=80), 100, 0) as view:
        clock.now += 10
        view.show(10, lambda: glances)
    assert "1 steps/s  return 2.0  evaluated 20.0  90 s left" in file.getvalue()


def test_a_resumed_run_counts_its_speed_from_where_it_goes_on(clock: Clock) -> None:
    line = shown(clock, terminal=False, done=50_000).splitlines()[0]
    assert line.startswith("   56,000 / 100,000 ( 56 %)  500 steps/s")
    assert line.endswith("88 s left")


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

    monkeypatch.setattr(progress, "drawn", draw)
    began = clock.now
    with ProgressView(Console(file=io.StringIO(), force_terminal=True), 10**9, 0) as view:
        for step in range(100_000):
            clock.now += 0.001
            view.show(step, list)
    assert 10 < len(pictures) < 100
    assert view.spent == pytest.approx(0.02 * len(pictures))
    assert view.spent < 0.01 * (clock.now - began)


@pytest.mark.parametrize("dumb", [True, False])
def test_a_terminal_without_a_cursor_gets_plain_lines(
    dumb: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb" if dumb else "xterm")
    text = shown(clock, terminal=True)
    assert ("s left" in text) is dumb
    assert ("\x1b[" in text) is not dumb


def test_quiet_is_silent_everywhere(clock: Clock) -> None:
    assert shown(clock, terminal=False, quiet=True) == ""
    assert shown(clock, terminal=True, quiet=True) == ""
