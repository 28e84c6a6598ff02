"""Formulas and code inside somebody else's page: what the extensions for Sphinx and Python-Markdown show."""

import shutil
from functools import cache
from pathlib import Path

from mathdoc.check import Report, check
from mathdoc.extract import Source
from mathdoc.katex import FOLDER as KATEX
from mathdoc.pages.figure import figure
from mathdoc.pages.source import function_html, statement_html
from mathdoc.problem import MathdocError
from mathdoc.settings import find_settings

STYLES = ("mathdoc/katex/katex.min.css", "mathdoc/mathdoc.css")
SCRIPT = "mathdoc/mathdoc.js"


@cache
def package_report(package: str, verified: bool = True) -> Report:
    """What is known of a package, found out once for all pages of a build; `verified`: with level 3."""
    return check(find_settings(package or None), truth=verified)


def shown(report: Report, target: str, source_url: str = "") -> str:
    """HTML for `module#formula`, `module.function`, `module.Class.method` or a whole `module`.

    `source_url` is where files can be read, with {path} and {line}; without it a line links to its formula.
    """
    name, _, anchor = target.partition("#")
    source, scope = _module(report, name)
    verdicts = report.of(source.module)
    path = source.path.resolve().relative_to(report.settings.root.resolve()).as_posix()
    if anchor:
        verdict = next((verdict for verdict in verdicts if verdict.formula.anchor == anchor), None)
        if verdict is None:
            raise MathdocError(f"{source.module} has no formula {anchor}: `mathdoc check --json FILE` lists them all.")
        line = verdict.formula.marker.statement.lineno
        place = source_url.format(path=path, line=line) if source_url else f"#{anchor}"
        return f'<div class="shown">{figure(verdict, place)}{statement_html(source, verdict)}</div>'
    places = source_url.replace("{path}", path) if source_url else "#L{line}"
    scopes = [scope] if scope else list(dict.fromkeys(v.formula.marker.scope for v in verdicts))
    return "".join(function_html(source, verdicts, places, found) for found in scopes if found)


def _module(report: Report, name: str) -> tuple[Source, str]:
    """The module that a dotted name begins with, and the rest. The package's own name may stand before it."""
    sources = {source.module: source for source in report.sources}
    for candidate in (name, name.removeprefix(f"{report.settings.package.name}.")):
        parts = candidate.split(".")
        for end in range(len(parts), 0, -1):
            module = ".".join(parts[:end])
            if module in sources:
                return sources[module], ".".join(parts[end:])
    raise MathdocError(f"{report.settings.package.name} has no module {name}.")


def copy_assets(folder: Path) -> None:
    """The styles, fonts and script that shown formulas need, below `folder`/mathdoc."""
    assets = Path(__file__).parents[1] / "assets"
    shutil.copytree(assets, folder / "mathdoc", dirs_exist_ok=True)
    script = shutil.ignore_patterns("*.js")
    shutil.copytree(KATEX, folder / "mathdoc" / "katex", dirs_exist_ok=True, ignore=script)
