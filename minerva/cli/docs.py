"""`minerva docs`: check the formulas, build the site, look at it, write the results page."""

import functools
import http.server
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro
import yaml

from minerva.errors import ConfigError, TrainingError
from minerva.lab.analysis.comparison import Task, entry_title
from minerva.lab.analysis.hyperparameters import hyperparameter_page
from minerva.lab.analysis.results_page import Row, Section, results_page
from minerva.lab.benchmark.files import Files
from minerva.lab.benchmark.grid import Cell, read_grid
from minerva.trainers.registry import ALGORITHMS, published_as

LISTS = {"math/": "math", "source/": "source", "reference/": "reference"}
"""Navigation entries that stand for a folder of generated pages, one per module."""

PAGE_OF_EACH = ("algorithms/", "hyperparameters/")
"""Navigation entries that stand for a page of each algorithm."""

FIRST_GRIDS = ("dm_control_500k", "gym_3m", "gym_1m", "vmpo_8m")
"""Those that the results page begins with; others follow by name."""


@dataclass(frozen=True)
class Docs:
    """Check every formula, build the documentation, serve it, or write the results page. Needs a checkout."""

    action: tyro.conf.Positional[Literal["check", "build", "serve", "results"]]
    """check: every formula against its line. build: the site, into build/site. serve: show it, built if need be.
    results: write docs/results.md from the results and grids in benchmarks/."""
    port: int = 8000
    """Port to serve on."""

    def run(self) -> int:
        """Do it; the exit code is 1 if a formula does not hold."""
        root = _checkout()
        if self.action == "check":
            return subprocess.run([sys.executable, "-m", "mathdoc", "check", "minerva"], cwd=root).returncode
        if self.action == "results":
            _write(root / "docs" / "results.md", results(root, "../benchmarks/results"))
            print("results: docs/results.md")
            return 0
        if self.action == "build" or not (root / "build" / "site" / "index.html").is_file():
            build(root)
        if self.action == "serve":
            serve(root / "build" / "site", self.port)
        return 0


def build(root: Path) -> None:
    """The whole site: hand-written pages, generated pages, and what Zensical makes of them."""
    pages = root / "build" / "docs"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(root / "docs" / "assets", pages / "assets")
    _run(root, sys.executable, "-m", "mathdoc", "build", "minerva", str(pages), "--rendered", "--pages", "docs")
    from mathdoc.pages.markdown import rendered

    for algo in ALGORITHMS:
        _write(pages / "hyperparameters" / f"{algo}.md", rendered(hyperparameter_page(algo)))
    raw = shutil.ignore_patterns("*.md", "*.log", "speed")
    shutil.copytree(root / "benchmarks" / "results", pages / "raw", ignore=raw)
    _write(pages / "results.md", results(root, "raw"))
    config = yaml.safe_load((root / "mkdocs.yml").read_text())
    config["nav"] = [_listed(entry, pages) for entry in config["nav"]]
    config |= {"docs_dir": "docs", "site_dir": "site"}
    _write(root / "build" / "mkdocs.yml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    shutil.rmtree(root / "build" / "site", ignore_errors=True)
    _run(root, sys.executable, "-m", "zensical", "build", "--clean", "--config-file", "build/mkdocs.yml")


def results(root: Path, links: str) -> str:
    """The results page of a checkout, its raw files linked to from `links`."""
    grids = sorted((root / "benchmarks" / "grids").glob("*.toml"), key=_grid_order)
    return results_page([_grid_section(path, root) for path in grids], root / "benchmarks" / "results", links)


def _grid_order(path: Path) -> tuple[int, str]:
    return (FIRST_GRIDS.index(path.stem) if path.stem in FIRST_GRIDS else len(FIRST_GRIDS), path.stem)


def _grid_section(path: Path, root: Path) -> Section:
    """A grid's rows under its first comment."""
    grid = read_grid(path)
    files = Files(Path(), (grid.results or root / "benchmarks" / "results").resolve())
    title = path.read_text().splitlines()[0].lstrip("# ").rstrip(".")
    return Section(title, tuple(_grid_row(cells, files, path.relative_to(root)) for cells in grid.rows()))


def _grid_row(cells: Sequence[Cell], files: Files, path: Path) -> Row:
    first = cells[0]
    entry = first.entry
    for cell in cells:
        files.done(cell)  # refuses the file of another experiment
    return Row(
        published_as(entry.algo, entry.hyperparameters),
        entry_title(entry.algo, entry.label, first.total_steps),
        Task(first.env, first.total_steps),
        tuple(files.result(cell) for cell in cells),
        f"minerva benchmark {path.as_posix()} --algos {entry.name} --envs {first.env}",
    )


def serve(site: Path, port: int) -> None:
    """Show the site until interrupted."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"http://127.0.0.1:{port}")
        server.serve_forever()


def _checkout() -> Path:
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "mkdocs.yml").is_file() and (folder / "minerva").is_dir():
            return folder
    raise ConfigError("The documentation is built from a checkout of Minerva: run this inside one.")


def _run(root: Path, *command: str) -> None:
    if subprocess.run(command, cwd=root).returncode:
        raise TrainingError(
            f"{' '.join(command[1:])} failed: see above. It needs the extra docs: pip install -e '.[docs]'"
        )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _listed(entry: dict[str, Any], pages: Path) -> dict[str, Any]:
    """A navigation entry, with the pages of a folder in place of its name."""
    ((title, value),) = entry.items()
    if value in PAGE_OF_EACH:
        return {title: [{algorithm.title: f"{value}{name}.md"} for name, algorithm in ALGORITHMS.items()]}
    if not isinstance(value, str) or value not in LISTS:
        return entry
    folder = pages / LISTS[value]
    modules = sorted(path.stem for path in folder.glob("*.md") if path.stem != "index")
    index = [f"{folder.name}/index.md"] if (folder / "index.md").is_file() else []
    return {title: [*index, *({module: f"{folder.name}/{module}.md"} for module in modules)]}
