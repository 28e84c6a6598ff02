"""The live line of a terminal, plain lines elsewhere, silence where it was asked for."""

import io

import pytest
from rich.console import Console

from minerva.runs import progress
from minerva.runs.progress import ProgressLine


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


def shown(clock: Clock, terminal: bool, quiet: bool = False, done: int = 0) -> str:
    """What is written for reports 4 seconds and 2000 steps apart."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=80, highlight=False)
    with ProgressLine(console, 100_000, done, quiet) as line:
        for i in range(1, 9):
            clock.now += 4
            line.show(done + 2000 * i, -1234.56 if i > 1 else None, -78.9)
    return file.getvalue()


def test_elsewhere_a_line_is_printed_when_the_last_is_ten_seconds_old(clock: Clock) -> None:
    assert shown(clock, terminal=False).splitlines() == [
        "    6,000 / 100,000 (  6 %)  500 steps/s  return -1,234.6  evaluated -78.9  188 s left",
        "   12,000 / 100,000 ( 12 %)  500 steps/s  return -1,234.6  evaluated -78.9  176 s left",
    ]


def test_a_resumed_run_counts_its_speed_from_where_it_goes_on(clock: Clock) -> None:
    line = shown(clock, terminal=False, done=50_000).splitlines()[0]
    assert line.startswith("   56,000 / 100,000 ( 56 %)  500 steps/s")
    assert line.endswith("88 s left")


def test_a_terminal_gets_one_live_line_that_disappears(clock: Clock) -> None:
    text = shown(clock, terminal=True)
    assert " 16 %" in text
    assert "500 steps/s  return -1,234.6  evaluated -78.9" in text
    assert "…" not in text
    assert "s left" not in text
    assert text.endswith("\x1b[1A\x1b[2K")  # one line up, and erased


def test_quiet_is_silent_everywhere(clock: Clock) -> None:
    assert shown(clock, terminal=False, quiet=True) == ""
    assert "steps/s" not in shown(clock, terminal=True, quiet=True)
