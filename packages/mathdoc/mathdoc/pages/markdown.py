"""Hand-written Markdown: formulas between dollars are rendered, and `[[module#anchor]]` shows a checked one.

A formula that is shown by its id comes from the code with its line and its badge, so a guide cannot drift from it.
"""

import re
from pathlib import Path

from mathdoc.check import Report
from mathdoc.katex import render
from mathdoc.pages.figure import figure
from mathdoc.pages.source import statement_html
from mathdoc.pages.text import write
from mathdoc.problem import MathdocError

CODE = re.compile(r"(^```.*?^```$|^\$\$\n.*?\n\$\$$|`[^`\n]*`|<[^>\n]*>)", flags=re.DOTALL | re.MULTILINE)
SHOWN = re.compile(r"^\[\[(?P<module>[\w.]+)#(?P<anchor>[\w-]+)\]\]$", flags=re.MULTILINE)


def copy_pages(folder: Path, out: Path, report: Report) -> None:
    """Every page below a folder, with its formulas."""
    for page in sorted(folder.rglob("*.md")):
        relative = page.relative_to(folder)
        up = "../" * (len(relative.parts) - 1)
        write(out / relative, embedded(rendered(page.read_text()), report, up).rstrip("\n"))


def rendered(text: str) -> str:
    """The page with `$...$` and `$$` blocks as HTML and MathML; code is left alone."""
    parts = CODE.split(text)
    for at, part in enumerate(parts):
        if part.startswith("$$"):
            parts[at] = f'<div class="display" tabindex="0">{render(part.strip("$").strip())}</div>'
        elif not part.startswith(("`", "<")):
            parts[at] = re.sub(r"\$([^$\n]+)\$", lambda found: render(found[1], display=False), part)
    return "".join(parts)


def embedded(text: str, report: Report, up: str) -> str:
    """The page with the statement and the formula in place of each `[[module#anchor]]`."""
    verdicts = {verdict.formula.id: verdict for verdict in report.verdicts}
    sources = {source.module: source for source in report.sources}

    def shown(found: re.Match[str]) -> str:
        verdict = verdicts.get(f"{found['module']}#{found['anchor']}")
        if verdict is None:
            raise MathdocError(f"a page shows {found[0]}, and there is no such formula: formulas.json lists them all.")
        statement = verdict.formula.marker.statement
        place = f"{up}source/{found['module']}.md#L{statement.lineno}"
        code = statement_html(sources[found["module"]], verdict)
        return f'<div class="shown">{figure(verdict, place)}{code}</div>'

    return SHOWN.sub(shown, text)
