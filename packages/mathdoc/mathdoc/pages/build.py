"""All pages of a package below one folder, and the files they need."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from mathdoc.check import Report, write_records
from mathdoc.katex import FOLDER as KATEX
from mathdoc.pages.api import api_page, re_exported, summary
from mathdoc.pages.figure import formula_name
from mathdoc.pages.glossary import glossary_page
from mathdoc.pages.markdown import copy_pages
from mathdoc.pages.source import annotated_page, math_page
from mathdoc.pages.text import write

ASSETS = Path(__file__).parents[1] / "assets"


def build(
    report: Report, out: Path, *, rendered: bool = False, source_url: str = "", pages: Path | None = None
) -> None:
    """Write the pages as Markdown. `rendered`: for a site, with formulas as HTML instead of `$$` blocks.

    A site's reference leaves private names to the annotated source, and a module without formulas has no list of them.

    `source_url` is where files can be read, with {path} and {line}; without it lines link to the annotated source.
    `pages` is a folder of hand-written pages to add, with the formulas they show.
    """
    for source in report.sources:
        path = source.path.resolve().relative_to(report.settings.root.resolve()).as_posix()
        page = f"{source.module}.md"
        there, here = (source_url, source_url) if source_url else (f"../source/{page}#L{{line}}", "#L{line}")
        public = re_exported(source, report.sources, report.settings.package.name)
        kinds = {
            "reference": api_page(source, path, private=not rendered, public=public),
            "math": math_page(source, path, report, rendered, there),
            "source": annotated_page(source, path, report, here),
        }
        if rendered and not report.of(source.module):
            del kinds["math"]
        for kind, blocks in kinds.items():
            title = f"`{path}`{_siblings(kind, kinds, page)}" if rendered else f"`{path}`"
            write(out / kind / page, *(title if block == f"`{path}`" else block for block in blocks))
    write(out / "reference" / "index.md", *_index(report))
    write(out / "math" / "index.md", *_verification(report))
    write(out / "notation.md", *glossary_page(report, "math/{module}.md#{anchor}"))
    if pages is not None:
        copy_pages(pages, out, report)
    write_records(report, out / "formulas.json")
    _copy_assets(out / "assets" / "mathdoc")


def _siblings(kind: str, kinds: Iterable[str], page: str) -> str:
    """Links to the other pages of a module."""
    names = {"reference": "API", "math": "formulas", "source": "annotated source"}
    return "".join(f" · [{names[other]}](../{other}/{page})" for other in kinds if other != kind)


def _index(report: Report) -> list[str]:
    """What the package offers under its own name, then every module, by folder, with what it is."""
    package = report.settings.package.name
    blocks = ["# API reference", "Every module with its functions, classes and methods."]
    folders = {source.module.partition(".")[0] for source in report.sources if "." in source.module}
    lines: dict[str, list[str]] = {}
    for source in report.sources:
        public = re_exported(source, report.sources, package)
        if source.module == package and public:
            names = ", ".join(f"`{node.name}`" for _, node in public)
            blocks += ["## Public names", f"[`{package}`]({package}.md): {names}"]
        count = len(report.of(source.module))
        math = f" ([{count} formula{'s' * (count > 1)}](../math/{source.module}.md))" if count else ""
        folder = source.module.partition(".")[0]
        line = f"- [`{source.module}`]({source.module}.md): {summary(source.tree)}{math}"
        lines.setdefault(folder if folder in folders else package, []).append(line)
    blocks.append("## Modules")
    for folder, found in lines.items():
        blocks += [f"### {folder}", "\n".join(found)]
    return blocks


def _verification(report: Report) -> list[str]:
    total = len(report.verdicts)
    held, slack, prose = (report.count(status) for status in ("verified", "slack", "prose"))
    mutants = sum(verdict.mutants for verdict in report.verdicts)
    rows = ["| module | formulas | verified | with slack | prose | mutants rejected |", "|---|---|---|---|---|---|"]
    for source in report.sources:
        found = report.of(source.module)
        if found:
            counts = [sum(v.status == status for v in found) for status in ("verified", "slack", "prose")]
            killed = f"{sum(v.rejected for v in found)} of {sum(v.mutants for v in found)}"
            cells = " | ".join(str(count) for count in counts)
            rows.append(f"| [`{source.module}`]({source.module}.md) | {len(found)} | {cells} | {killed} |")
    counted = f"**{total} formulas: {held} verified, {slack} verified with stated slack, {prose} prose.**"
    return ["# Formulas", f"{counted} {_explained(mutants)}", "\n".join(rows), *_told(report)]


def _explained(mutants: int) -> str:
    return (
        "A verified formula was evaluated, in float64, on the values that its line of code saw, and gave what the line"
        " computed: to 1e-9 where the code ran in float64, to 2e-5 in float32. Losses were compared in their gradients"
        " too. A pass means something: the lines ran with sizes that differ pairwise, took both sides of every"
        f" minimum, maximum, clip and set, and each of {mutants} mutants (a sign, a term, an index, a mask dropped) was"
        " rejected. With the keyboard, Tab reaches a formula and the arrow keys its symbols; c copies its LaTeX, l its"
        " link."
    )


def _told(report: Report) -> list[str]:
    """What is not checked, or not to the last digit, and why."""
    special = [verdict for verdict in report.verdicts if verdict.status in ("slack", "prose")]
    if not special:
        return []
    rows = ["## Slack and prose", "| formula | status | reason |", "|---|---|---|"]
    for verdict in special:
        marker = verdict.formula.marker
        link = f"[{formula_name(verdict)}]({marker.module}.md#{verdict.formula.anchor})"
        rows.append(f"| {link} | {verdict.status} | {marker.reason or 'it has no part that could be wrong'} |")
    return [rows[0], "\n".join(rows[1:])]


def _copy_assets(target: Path) -> None:
    shutil.copytree(ASSETS, target, dirs_exist_ok=True)
    shutil.copytree(KATEX, target / "katex", dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.js"))
