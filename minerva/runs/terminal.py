"""Show runs in a terminal: a display that is redrawn in place, or plain lines if the output is not a terminal.

A single run, the seeds of a population and the tasks of a benchmark share the rows, the line and the view below.
"""

import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple, Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.logging import RichHandler
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from minerva.errors import printable
from minerva.runs.status import RunStatus

LEVELS, ASCII_LEVELS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
SPARKLINE_LENGTH = 24
"""Largest number of evaluations in a sparkline."""
LABEL_WIDTH = 10
"""Width in columns of the labels to the left of a single run's numbers."""
NARROW = 50
"""Terminal width in columns below which those labels are left out."""
SECONDS_BETWEEN_DRAWINGS = 0.25
ALL = sys.maxsize

Row = Mapping[str, Text]
"""Cells of a table's row, by column heading."""


class Progress(NamedTuple):
    """Steps, speed and status of the runs that one process trains in lockstep; `step` and `speed` are per run."""

    step: int
    total: int
    speed: float
    runs: Sequence[RunStatus]

    def items(self) -> dict[str, str]:
        """Return the parts of a line or row by name, the most important first."""
        items = {
            "done": f"{100 * self.step // self.total:3d} %",
            "left": duration((self.total - self.step) / self.speed if self.speed > 0 else math.inf),
            "steps/s": f"{self.speed:,.0f}",
            "evaluated": _mean(run.evaluated for run in self.runs),
            "training": _mean(run.train for run in self.runs),
            "steps": f"{self.step:{len(f'{self.total:,}')},} of {self.total:,}",
        }
        return {name: text for name, text in items.items() if text}

    def line(self) -> str:
        """Return everything in one plain line; returns are means over the runs."""
        items = self.items()
        parts = [items["done"], items["steps"], f"{items['steps/s']} steps/s"]
        parts += [f"{name} {items[name]}" for name in ("training", "evaluated") if name in items]
        own = dict.fromkeys(name for run in self.runs for name in run.own)
        values = {name: [run.own[name] for run in self.runs if name in run.own] for name in own}
        parts += [f"{name} {three_digits(math.fsum(each) / len(each))}" for name, each in values.items()]
        return "   ".join([*parts, f"{items['left']} left"])

    def row(self, label: str) -> Row:
        """Return everything as a row of a table."""
        return {"": Text(label)} | {name: _right(text) for name, text in self.items().items()}


class TerminalView(ExitStack):
    """A display that is redrawn in place in a terminal; elsewhere it prints plain lines at intervals.

    In its `with` block, log messages appear above the display, which disappears at the end of the block.
    """

    seconds_between_lines = 10.0
    drawing_time_share = 0.005
    """Largest share of the run time spent on drawing."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        super().__init__()
        self.console, self.quiet = console, quiet
        self._printed = self._draw_next = time.monotonic()
        self._live: Live | None = None

    @property
    def in_place(self) -> bool:
        """Return whether the output is a terminal in which the display can be redrawn."""
        return self.console.is_terminal and not self.console.is_dumb_terminal and not self.quiet

    def refresh(
        self, draw: Callable[[], RenderableType], lines: Callable[[], Iterable[str]], final: bool = False
    ) -> None:
        """Redraw the display or print the lines, if an update is due. `final`: redraw in any case."""
        now = time.monotonic()
        if self._live is not None:
            if now >= self._draw_next or final:
                self._live.update(draw(), refresh=True)
                took = time.monotonic() - now
                self._draw_next = now + max(SECONDS_BETWEEN_DRAWINGS, took / self.drawing_time_share)
        elif not self.quiet and not self.in_place and now - self._printed >= self.seconds_between_lines:
            self._printed = now
            for line in lines():
                self.say(line)

    def say(self, line: str) -> None:
        """Print a line verbatim."""
        self.console.print(printable(line), markup=False, soft_wrap=True)

    def __enter__(self) -> Self:
        if self.in_place:
            live = Live(console=self.console, auto_refresh=False, transient=True, vertical_overflow="crop")
            self._live = self.enter_context(live)
            self.callback(setattr, self, "_live", None)
            for handler in logging.getLogger().handlers:
                if isinstance(handler, RichHandler) and handler.console.is_terminal:
                    self.callback(setattr, handler, "console", handler.console)
                    handler.console = self.console  # so that messages appear above the display
        return self


class ProgressView(TerminalView):
    """A display of steps, steps per second, time left and status of one run, or of several runs in lockstep."""

    def __init__(self, console: Console, total: int, done: int, quiet: bool = False) -> None:
        super().__init__(console, quiet)
        self.total = total
        self._first = done
        self._started = time.monotonic()

    def steps_per_second(self, step: int) -> float:
        """Return the mean speed since this process began to train, evaluations included."""
        return (step - self._first) / max(time.monotonic() - self._started, 1e-9)

    def show(self, step: int, statuses: Callable[[], Sequence[RunStatus]]) -> None:
        """Show the runs at `step`, if an update is due; only then is `statuses` called."""

        def progress() -> Progress:
            return Progress(step, self.total, self.steps_per_second(step), statuses())

        self.refresh(
            lambda: draw_progress(progress(), self.console.options), lambda: [progress().line()], step >= self.total
        )


def draw_progress(progress: Progress, options: ConsoleOptions) -> RenderableType:
    """Draw steps and speed, then a single run in a few lines, or several runs in a row each."""
    bar, runs = _progress_bar(progress, options), progress.runs
    if len(runs) == 1:
        return Group(bar, _run_details(runs[0], options))
    rows = [_status_row(run, options) for run in runs]
    return Group(bar, draw_rows(rows, options, height=options.max_height - 4))


def draw_rows(rows: Sequence[Row], options: ConsoleOptions, height: int = ALL, wrap: str = "") -> RenderableType:
    """Draw a table of the first `height` rows, with as many columns as fit the width.

    The column `wrap`, and a first column wider than half the terminal, are wrapped between words; other columns that do
    not fit are left out.
    """
    shown = rows[: max(height, 1)]
    names = dict.fromkeys(name for row in shown for name in row)
    columns = {name: [row.get(name, Text("-", style="dim", justify="right")) for row in shown] for name in names}
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    wraps = _fitting(columns, options.max_width, wrap)
    table = Table.grid(padding=(0, 2, 0, 0))
    for name in wraps:
        table.add_column(no_wrap=not wraps[name])
    table.add_row(*(Text(name, style="dim", justify=columns[name][0].justify) for name in wraps))
    for n in range(len(shown)):
        table.add_row(*(columns[name][n] for name in wraps))
    more = len(rows) - len(shown)
    return Group(table, Text(f"and {more} more", style="dim")) if more else table


def _fitting(columns: Mapping[str, Sequence[Text]], room: int, wrap: str) -> dict[str, bool]:
    """Return whether to wrap each column that fits; the first column and `wrap` get their room before the others."""
    wraps: dict[str, bool] = {}
    first, left = next(iter(columns), ""), room + 2
    for name in sorted(columns, key=lambda name: name not in (first, wrap)):
        texts = [name, *(cell.plain for cell in columns[name])]
        width, longest = max(map(cell_len, texts)), max(cell_len(word) for text in texts for word in text.split())
        least = min(width, max(longest, room // 2)) if name == first else longest if name == wrap else width
        if name == first or least + 2 <= left:
            left -= least + 2
            wraps[name] = least < width
    return {name: wraps[name] for name in columns if name in wraps}


def duration(seconds: float) -> str:
    """Format seconds as a duration: 0:05, 12:34, 1:02:03."""
    if not math.isfinite(seconds):
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def sparkline(values: Sequence[float], length: int = SPARKLINE_LENGTH, levels: str = LEVELS) -> str:
    """Return the last finite values as a line of bars, scaled from the lowest value to the highest."""
    shown = [value for value in values if math.isfinite(value)][-length:]
    if len(shown) < 2:
        return ""
    low, high = min(shown), max(shown)
    top = len(levels) - 1
    return "".join(levels[round(top * (value - low) / (high - low)) if high > low else 0] for value in shown)


def one_decimal(value: float | None) -> str:
    """Format a mean return with one decimal, or as a dash for None."""
    return "-" if value is None else f"{value:,.1f}"


def three_digits(value: float) -> str:
    """Format a number with three significant digits, or with all digits of its integer part."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _progress_bar(progress: Progress, options: ConsoleOptions) -> RenderableType:
    items = progress.items()
    parts = [Text(items["done"], style="bold"), Text(items["steps"].strip())]
    parts += [Text(f"{items['steps/s']} steps/s"), Text(f"{items['left']} left")]
    lines = _packed(parts, options.max_width)
    spare = options.max_width - lines[0].cell_len - 3
    if len(lines) > 1 or spare < 8:
        return Group(*lines)
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_row(ProgressBar(total=progress.total, completed=progress.step, width=min(spare, 30)), lines[0])
    return table


def _run_details(run: RunStatus, options: ConsoleOptions) -> Table:
    """Draw the returns, gauges and warnings of a single run, packed into lines."""
    returns = [
        _item("training", one_decimal(run.train)),
        _item("evaluated", one_decimal(run.evaluated)),
        _item("best", one_decimal(run.best)),
    ]
    spark = _spark(run, SPARKLINE_LENGTH, options)
    returns += [spark] if spark else []
    health = [
        _item(gauge.label, three_digits(gauge.value), "bold" if gauge.healthy else "yellow") for gauge in run.readings
    ]
    own = [_item(name, three_digits(value)) for name, value in run.own.items()]
    warnings = [Text(warning, style="yellow") for warning in run.warnings]
    table = Table.grid(padding=(0, 2, 0, 0))
    named = options.max_width >= NARROW
    for name, items in (("return", returns), ("own", own), ("health", health), ("warnings", warnings)):
        for n, line in enumerate(_packed(items, options.max_width - (LABEL_WIDTH if named else 0))):
            table.add_row(*([Text(name if n == 0 else "", style="dim")] if named else []), line)
    return table


def _status_row(run: RunStatus, options: ConsoleOptions) -> Row:
    """Return the row of one of several runs; an exclamation mark stands for its warnings."""
    row = {
        "": Text.assemble(run.label, (" !" if run.warnings else "", "bold yellow")),
        "evaluated": _right(one_decimal(run.evaluated)),
        "training": _right(one_decimal(run.train)),
        "evaluations": _spark(run, SPARKLINE_LENGTH // 2, options),
    }
    row |= {name: _right(three_digits(value)) for name, value in run.own.items()}
    for gauge in run.readings:
        heading = gauge.label.removesuffix("/bound").removeprefix("effective ")
        row[heading] = _right(three_digits(gauge.value), "" if gauge.healthy else "yellow")
    return row


def _packed(items: Sequence[Text], width: int) -> list[Text]:
    """Return the items side by side in as many lines as needed, without breaking an item."""
    lines: list[Text] = []
    for item in items:
        if lines and lines[-1].cell_len + 3 + item.cell_len <= width:
            lines[-1].append("   ").append_text(item)
        else:
            lines.append(Text().append_text(item))
    return lines


def _item(name: str, value: str, style: str = "bold") -> Text:
    return Text.assemble((f"{name} ", "dim"), (value, style))


def _right(text: str, style: str = "") -> Text:
    return Text(text, style=style, justify="right")


def _spark(run: RunStatus, length: int, options: ConsoleOptions) -> Text:
    return Text(sparkline(run.evaluations, length, ASCII_LEVELS if options.ascii_only else LEVELS), style="cyan")


def _mean(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return one_decimal(math.fsum(known) / len(known)) if known else ""
