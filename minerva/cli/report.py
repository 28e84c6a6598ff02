"""`minerva report`: compare runs in one HTML page or in tables for a paper."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from minerva.errors import ConfigError, RunError, printable
from minerva.runs.folder import write_atomically
from minerva.runs.output import make_console

logger = logging.getLogger("minerva")


@dataclass(frozen=True)
class Report:
    """Compare runs: write one self-contained HTML page, or print tables for a paper."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, folders that contain runs (such as a benchmark's), or result files (*_seed*.json)."""
    out: Path | None = None
    """HTML file to write; None: report.html, unless --markdown or --latex is given."""
    markdown: bool = False
    """Print the final table as Markdown."""
    latex: bool = False
    """Print the final table as LaTeX (needs the LaTeX package booktabs)."""
    over: Literal["steps", "seconds"] = "steps"
    """What learning curves are drawn over: environment steps, or seconds since the run was started."""
    title: str = "Training report"
    """Heading of the page."""

    def run(self) -> int:
        """Read the runs, compare them, and write the page or print the tables."""
        if not self.runs:
            raise ConfigError(
                "report needs runs to compare: give run folders, folders that contain runs, or result files."
            )
        from minerva.lab.analysis.comparison import (
            compare,
        )  # NumPy and PyTorch, which reading the options does not need
        from minerva.lab.analysis.records import read_records
        from minerva.lab.analysis.report import page
        from minerva.lab.analysis.tables import latex, markdown

        unread: list[RunError] = []
        comparison = compare(read_records(self.runs, unread))
        for error in unread:
            logger.warning("Not in the report: %s", error)
        for wanted, table in ((self.markdown, markdown), (self.latex, latex)):
            if wanted:
                make_console().out(printable(table(comparison)), highlight=False)
        if self.out is None and (self.markdown or self.latex):
            return 0
        out = self.out or Path("report.html")
        if out.is_dir():
            raise ConfigError(f"{out} is a folder: give a file name, such as {out / 'report.html'}.")
        if not out.absolute().parent.is_dir():
            raise ConfigError(f"{out.parent} does not exist: create it, or give another --out.")
        write_atomically(out, page(comparison, self.title, out.stem, unread, self.over))
        make_console().print(printable(f"report: {out}"), markup=False, soft_wrap=True)
        return 0
