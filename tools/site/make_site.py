"""Check the site's formulas, build it, serve it, or write its results page. `minerva docs` runs this file.

python tools/site/make_site.py build
"""

import argparse
import functools
import http.server
import importlib.util
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hyperparameters import hyperparameter_page, preset_page
from results_page import PICTURES, results_page, write_pictures
from search_index import thin_search_index

from minerva.errors import ConfigError, MinervaError, TrainingError
from minerva.trainers.registry import ALGORITHMS

REPOSITORY = Path(__file__).parents[2]

LISTS = {"math/": "math", "source/": "source", "reference/": "reference"}
"""Navigation entries that stand for a folder of generated pages, one per module."""

PACKAGE = "minerva"
"""The page of the public names."""

PAGE_OF_EACH = ("algorithms/", "hyperparameters/", "presets/")
"""Navigation entries that stand for a page of each algorithm."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the action of the command line. Return 1 if a formula does not hold or a command fails, 2 for wrong input."""
    parser = argparse.ArgumentParser(description="Make the site of a checkout.")
    parser.add_argument("action", choices=["check", "build", "serve", "results"])
    parser.add_argument("--port", type=int, default=8000, help="port to serve on")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C stops it without a traceback
    try:
        return _act(options.action, options.port)
    except MinervaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1 if isinstance(error, TrainingError) else 2


def _act(action: str, port: int) -> int:
    if action == "check":
        _require("mathdoc")
        return subprocess.run(
            [sys.executable, "-m", "mathdoc", "check", "minerva", "--strict"], cwd=REPOSITORY
        ).returncode
    if action == "results":
        _write(REPOSITORY / "docs" / "results.md", results_page(REPOSITORY, "../benchmarks/results"))
        write_pictures(REPOSITORY, REPOSITORY / "docs" / PICTURES)
        print(f"results: docs/results.md, docs/{PICTURES}")
        return 0
    site = REPOSITORY / "build" / "site"
    if action == "build" or not (site / "index.html").is_file():
        build(REPOSITORY)
    if action == "serve":
        serve(site, port)
    return 0


def build(root: Path) -> None:
    """Build the site of a checkout with Zensical, from hand-written and generated pages."""
    _require("mathdoc", "quickjs", "pygments", "zensical")
    pages = root / "build" / "docs"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(root / "docs" / "assets", pages / "assets")
    _run(root, "mathdoc", "build", "minerva", str(pages), "--rendered", "--pages", "docs")
    from mathdoc.pages.markdown import rendered  # needs the extra docs, which the results page does not

    for algo in ALGORITHMS:
        _write(pages / "hyperparameters" / f"{algo}.md", rendered(hyperparameter_page(algo)))
        _write(pages / "presets" / f"{algo}.md", preset_page(algo))
    raw = shutil.ignore_patterns("*.md", "*.log", "speed")
    shutil.copytree(root / "benchmarks" / "results", pages / "raw", ignore=raw)
    _write(pages / "results.md", results_page(root, "raw"))
    config = yaml.safe_load((root / "mkdocs.yml").read_text())
    config["nav"] = [*(_listed(entry, pages) for entry in config["nav"]), *_repository(root)]
    config |= {"docs_dir": "docs", "site_dir": "site"}
    _write(root / "build" / "mkdocs.yml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    shutil.rmtree(root / "build" / "site", ignore_errors=True)
    _run(root, "zensical", "build", "--clean", "--config-file", "build/mkdocs.yml")
    thin_search_index(root / "build" / "site" / "search.json")


def _repository(root: Path) -> list[dict[str, str]]:
    """Return the navigation's link to the repository: where the checkout was cloned from, if that is on the web.

    A link, and not Zensical's own setting for it, which asks the host for counts of stars and forks.
    """
    done = subprocess.run(["git", "remote", "get-url", "origin"], cwd=root, capture_output=True, text=True)
    found = re.fullmatch(
        r"(?:https://(?:[^@/]*@)?|ssh://git@|git@)([\w.-]+)[:/]([\w./-]+?)(?:\.git)?/?", done.stdout.strip()
    )
    return [{"Repository": f"https://{found[1]}/{found[2]}"}] if found else []


def serve(site: Path, port: int) -> None:
    """Serve the site until interrupted."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"http://127.0.0.1:{port}", flush=True)
        server.serve_forever()


def _run(root: Path, module: str, *arguments: str) -> None:
    if subprocess.run([sys.executable, "-m", module, *arguments], cwd=root).returncode:
        raise TrainingError(f"{module} failed: see above.")


def _require(*modules: str) -> None:
    """Refuse to begin without what the extra docs installs."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            command = "pip install -c constraints.txt -e 'packages/mathdoc[site]' -e '.[docs]'"
            raise ConfigError(f"The documentation needs {name}, which is not installed: {command}")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _listed(entry: dict[str, Any], pages: Path) -> dict[str, Any]:
    """Return a navigation entry, with the pages of a folder in place of its name."""
    ((title, value),) = entry.items()
    if value in PAGE_OF_EACH:
        return {title: [{algorithm.title: f"{value}{name}.md"} for name, algorithm in ALGORITHMS.items()]}
    if not isinstance(value, str) or value not in LISTS:
        return entry
    folder = pages / LISTS[value]
    modules = sorted(path.stem for path in folder.glob("*.md") if path.stem != "index")
    listed: list[Any] = [{module: f"{folder.name}/{module}.md"} for module in modules]
    if value == "reference/":
        listed = [{PACKAGE: f"reference/{PACKAGE}.md"}, {"Internals": [page for page in listed if PACKAGE not in page]}]
    index = [f"{folder.name}/index.md"] if (folder / "index.md").is_file() else []
    return {title: [*index, *listed]}


if __name__ == "__main__":
    sys.exit(main())
