"""The extension for Python-Markdown, and so for MkDocs, Zensical and all that use it.

    # mkdocs.yml
    markdown_extensions:
      - mathdoc.markdown:
          package: springs                  # folder or import name; without it, what [tool.mathdoc] names
          assets: docs/assets               # where styles, fonts and script are put
    extra_css: [assets/mathdoc/katex/katex.min.css, assets/mathdoc/mathdoc.css]
    extra_javascript: [assets/mathdoc/mathdoc.js]

A line `[[mathdoc model.energy]]` then shows that function with its formulas, checked. A formula that does not hold
ends the build.
"""

import re
from pathlib import Path
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

from mathdoc.pages.embed import copy_assets, package_report, shown
from mathdoc.problem import MathdocError

SHOWN = re.compile(r"^\[\[mathdoc\s+(?P<target>[\w.#-]+)\]\]\s*$")
AFTER_FENCES = 24
"""Code blocks are taken out of the text at 25: what looks like a call in one of them stays as it is."""


class MathdocExtension(Extension):  # type: ignore[misc]
    """`[[mathdoc module]]`, `[[mathdoc module.function]]` and `[[mathdoc module#formula]]`."""

    def __init__(self, **settings: Any) -> None:
        self.config = {
            "package": ["", "folder or import name of the package"],
            "assets": ["", "folder to put styles, fonts and script into"],
            "source_url": ["", "where files can be read, with {path} and {line}"],
            "check": [True, "evaluate the formulas; without it they come without badges"],
        }
        super().__init__(**settings)

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """What Python-Markdown calls."""
        if self.getConfig("assets"):
            copy_assets(Path(self.getConfig("assets")))
        md.preprocessors.register(_Shown(md, self), "mathdoc", AFTER_FENCES)


class _Shown(Preprocessor):  # type: ignore[misc]
    def __init__(self, md: Markdown, extension: MathdocExtension) -> None:
        super().__init__(md)
        self.extension = extension

    def run(self, lines: list[str]) -> list[str]:
        return [self._line(found["target"]) if (found := SHOWN.match(line)) else line for line in lines]

    def _line(self, target: str) -> str:
        settings = self.extension.getConfigs()
        report = package_report(settings["package"], settings["check"])
        if report.problems:
            raise MathdocError("\n\n".join(str(problem) for problem in report.problems))
        return str(self.md.htmlStash.store(shown(report, target, settings["source_url"])))


def makeExtension(**settings: Any) -> MathdocExtension:  # noqa: N802
    """What Python-Markdown asks a module for."""
    return MathdocExtension(**settings)
