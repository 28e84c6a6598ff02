"""`minerva report`: what runs have learned, as one page or as tables for a paper."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from minerva.errors import ConfigError
from minerva.lab.analysis.comparison import compare
from minerva.lab.analysis.records import read_records
from minerva.lab.analysis.report import page
from minerva.lab.analysis.tables import latex, markdown
from minerva.runs.folder import write_whole


@dataclass(frozen=True)
class Report:
    """Show runs side by side: one self-contained HTML page, or tables for a paper."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, folders that hold some (as a benchmark leaves them), result files (*_seed*.json)."""
    out: Path | None = None
    """The page to write; None: report.html, unless a table is asked for."""
    markdown: bool = False
    """Print the final table as Markdown."""
    latex: bool = False
    """Print the final table as LaTeX (it needs the package booktabs)."""
    title: str = "Training report"
    """The page's heading."""

    def run(self) -> int:
        """Read, compare, write."""
        if not self.runs:
            raise ConfigError("report needs something to show: give run folders, folders that hold some, or results.")
        comparison = compare(read_records(self.runs))
        for wanted, table in ((self.markdown, markdown), (self.latex, latex)):
            if wanted:
                print(table(comparison))
        if self.out is None and (self.markdown or self.latex):
            return 0
        out = self.out or Path("report.html")
        if out.is_dir():
            raise ConfigError(f"{out} is a folder: give the name of a file, such as {out / 'report.html'}.")
        if not out.absolute().parent.is_dir():
            raise ConfigError(f"{out.parent} does not exist: make it, or give another --out.")
        write_whole(out, page(comparison, self.title, out.stem))
        Console(highlight=False).print(f"report: {out}", markup=False, soft_wrap=True)
        return 0
