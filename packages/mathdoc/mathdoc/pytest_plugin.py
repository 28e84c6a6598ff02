"""`pytest --mathdoc`: each formula is a test, which fails with what `mathdoc check` would say of it.

Where a baseline is written down, each module has one more test: that no level of its formulas is lost.

Files of packages are looked into where pytest collects them; without a path on the command line, the package that
`[tool.mathdoc]` names is added to the tests. Everything else of mathdoc is imported only with the option.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mathdoc.check import Report
    from mathdoc.problem import Problem

READ, CHECKED = pytest.StashKey["dict[Path, Report]"](), pytest.StashKey["dict[Path, Report]"]()
"""Reports by package: of the first three levels, which need nothing to run, and of all four."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option `--mathdoc`."""
    parser.getgroup("mathdoc").addoption("--mathdoc", action="store_true", help="check each formula as a test")


def pytest_configure(config: pytest.Config) -> None:
    """Without a path on the command line, add the package of the settings to what is collected."""
    config.stash[READ], config.stash[CHECKED] = {}, {}
    if config.getoption("mathdoc") and config.args_source is not pytest.Config.ArgsSource.ARGS:
        from mathdoc.problem import MathdocError
        from mathdoc.settings import find_settings

        try:
            package = str(find_settings().package)
        except MathdocError as error:
            raise pytest.UsageError(f"--mathdoc: {error}") from error
        if package not in config.args:
            config.args.append(package)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """The formulas of a file, if it is in a package."""
    if not parent.config.getoption("mathdoc") or file_path.suffix != ".py":
        return None
    from mathdoc.settings import packages_of

    packages = packages_of([file_path])
    if not packages or "# LaTeX" not in file_path.read_text():
        return None
    return FormulaFile.from_parent(parent, path=file_path, package=packages[0])


def _report(config: pytest.Config, package: Path, *, truth: bool) -> Report:
    """What is known of a package; its exercises run once in each process of the session, and only if a test asks."""
    from mathdoc.check import check
    from mathdoc.settings import find_settings

    reports = config.stash[CHECKED if truth else READ]
    if package not in reports:
        reports[package] = check(find_settings(str(package)), truth=truth)
    return reports[package]


class FormulaFile(pytest.File):
    """A module with markers."""

    def __init__(self, *, package: Path, **rest: Any) -> None:
        super().__init__(**rest)
        self.package = package

    def collect(self) -> Iterator[pytest.Item]:
        """One test for the markers and the table, one for each formula, one for their levels."""
        report = _report(self.config, self.package, truth=False)
        yield NotationItem.from_parent(self, name="notation")
        for verdict in report.verdicts:
            formula = verdict.formula
            if formula.marker.path == self.path:
                name = formula.anchor.removeprefix("f-")
                yield FormulaItem.from_parent(self, name=name, formula_id=formula.id, line=formula.marker.line)
        if report.settings.baseline.is_file():
            yield BaselineItem.from_parent(self, name="baseline")


class _Item(pytest.Item):
    parent: FormulaFile

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The problem in the words of the check; an error of the check itself with its traceback."""
        return str(excinfo.value) if excinfo.errisinstance(RefusedError) else super().repr_failure(excinfo)


class FormulaItem(_Item):
    """One formula."""

    def __init__(self, *, formula_id: str, line: int, **rest: Any) -> None:
        super().__init__(**rest)
        self.formula_id = formula_id
        self.line = line

    def runtest(self) -> None:
        """Fail if level 3 refuses the formula."""
        report = _report(self.config, self.parent.package, truth=True)
        verdict = next(verdict for verdict in report.verdicts if verdict.formula.id == self.formula_id)
        self.user_properties += [("status", verdict.status), ("mutants", f"{verdict.rejected} of {verdict.mutants}")]
        self.user_properties += [(f"error in {name}", f"{error:.1e}") for name, error in verdict.error.items()]
        _refuse(verdict.problems)

    def reportinfo(self) -> tuple[Path, int, str]:
        """The place of the marker."""
        return self.path, self.line - 1, self.formula_id


class NotationItem(_Item):
    """The markers of a module and its table: whether each marker has its statement and each symbol its meaning."""

    def runtest(self) -> None:
        """Fail if one of the first three levels refuses something of this module."""
        report = _report(self.config, self.parent.package, truth=False)
        module = next(source.module for source in report.sources if source.path == self.path)
        _refuse([p for p in report.problems if p.path in (self.path, report.notations[module].path)])

    def reportinfo(self) -> tuple[Path, int, str]:
        """The module."""
        return self.path, 0, "notation"


class BaselineItem(_Item):
    """The levels of a module's formulas, beside those that are written down."""

    def runtest(self) -> None:
        """Fail if a formula fell back, is gone or is new. What is gone with its module, the first module tells."""
        from mathdoc.check import lost_levels

        report = _report(self.config, self.parent.package, truth=True)
        modules = {source.module: source.path for source in report.sources if source.markers}
        first = next(iter(modules.values()))
        lost = [line for line in lost_levels(report) if modules.get(line.partition("#")[0], first) == self.path]
        if lost:
            raise RefusedError("\n".join([*lost, "If that is meant: mathdoc check --update-baseline"]))

    def reportinfo(self) -> tuple[Path, int, str]:
        """The module."""
        return self.path, 0, "baseline"


class RefusedError(Exception):
    """A formula does not hold."""


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise RefusedError("\n\n".join(str(problem) for problem in problems))
