"""All pages of a package."""

from pathlib import Path

from mathdoc.check import Report


def build(report: Report, out: Path, source_url: str) -> None:
    """Write them below a folder."""
    raise NotImplementedError
