"""The extension for Sphinx: `.. mathdoc:: module.function` shows a function with its formulas, checked.

    # conf.py
    extensions = ["mathdoc.sphinx"]
    mathdoc_package = "../springs"          # folder or import name; without it, what [tool.mathdoc] names
    mathdoc_source_url = "https://example.org/blob/main/{path}#L{line}"

A formula that does not hold is a warning of the build, and with `sphinx-build -W` an error.
"""

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from mathdoc import __version__
from mathdoc.check import Report
from mathdoc.pages.embed import SCRIPT, STYLES, copy_assets, package_report, shown
from mathdoc.problem import MathdocError

logger = logging.getLogger(__name__)


class MathdocDirective(SphinxDirective):
    """`.. mathdoc:: module`, `module.function` or `module#formula`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The formulas and code as HTML, which other builders leave out."""
        try:
            report = _report(self.config, Path(self.env.srcdir))
            html = shown(report, self.arguments[0], self.config.mathdoc_source_url)
        except MathdocError as error:
            raise self.error(str(error)) from error
        module, _, _ = self.arguments[0].partition("#")
        for source in report.sources:
            if source.module in module:
                self.env.note_dependency(str(source.path))
                self.env.note_dependency(str(report.notations[source.module].path))
        return [nodes.raw("", html, format="html")]


def _report(config: Any, folder: Path) -> Report:
    """The package's report; what is wrong in it becomes warnings, once."""
    named = config.mathdoc_package
    package = str(folder / named) if named and (folder / named).is_dir() else named
    known = package_report.cache_info().misses
    report = package_report(package, config.mathdoc_check)
    if package_report.cache_info().misses > known:
        for problem in report.problems:
            logger.warning("%s", problem, location=(str(problem.path), problem.line), type="mathdoc")
    return report


def _add_files(app: Sphinx) -> None:
    static = Path(app.outdir) / "_static"
    copy_assets(static)


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.add_config_value("mathdoc_package", "", "env", [str])
    app.add_config_value("mathdoc_source_url", "", "env", [str])
    app.add_config_value("mathdoc_check", True, "env", [bool])
    app.add_directive("mathdoc", MathdocDirective)
    app.connect("builder-inited", _add_files)
    for style in STYLES:
        app.add_css_file(style)
    app.add_js_file(SCRIPT, loading_method="defer")
    return {"version": __version__, "parallel_read_safe": True, "parallel_write_safe": True}
