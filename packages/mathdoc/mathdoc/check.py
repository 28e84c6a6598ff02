"""The four levels over a whole package, and what they found."""

import ast
import json
import sys
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from mathdoc.backend import computing
from mathdoc.between import between
from mathdoc.capture import Probe, Recorder, rewriting
from mathdoc.extract import Source, package_sources
from mathdoc.formula import Formula, understand
from mathdoc.names import strange_names
from mathdoc.notation import Notation, read_notation
from mathdoc.problem import MathdocError, Problem
from mathdoc.reading import line_faults
from mathdoc.said import unsaid, wrong_defaults
from mathdoc.settings import Settings
from mathdoc.unmarked import Excuses, unmarked
from mathdoc.verify import Verdict, verify

PRECISIONS = ("float64", "float32")
SEEDS = (0, 1, 2)
"""The exercises run once with each."""
RANK = {"verified": 2, "slack": 1, "prose": 0, "refused": -1}


@dataclass
class Report:
    """Everything that was found."""

    settings: Settings
    sources: list[Source]
    notations: dict[str, Notation]
    verdicts: list[Verdict] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    between: list[Problem] = field(default_factory=list)
    """What functions do between their formulas."""
    excused: list[str] = field(default_factory=list)
    """The same where somebody wrote down why no formula sees it."""
    seconds: float = 0.0

    def count(self, status: str) -> int:
        """How many formulas have this status."""
        return sum(verdict.status == status for verdict in self.verdicts)

    @property
    def blind(self) -> list[Problem]:
        """What the check could not see of the formulas that passed."""
        return [*(spot for verdict in self.verdicts for spot in verdict.blind), *self.between]

    def of(self, module: str) -> list[Verdict]:
        """The verdicts of one module, in the order of its lines."""
        return [verdict for verdict in self.verdicts if verdict.formula.marker.module == module]


def check(
    settings: Settings, *, truth: bool = True, seeds: Sequence[int] = SEEDS, modules: Collection[str] | None = None
) -> Report:
    """All levels; without `truth` the first three, which run nothing of the package. `modules` are all if not said."""
    began = time.perf_counter()
    sources = package_sources(settings.package, modules)
    report = Report(settings, sources, {})
    formulas: list[Formula] = []
    for source in sources:
        notation = read_notation(settings.notation, source.module)
        report.notations[source.module] = notation
        found, problems = understand(source, notation)
        formulas += found
        report.problems += [*problems, *strange_names(source, notation, found), *line_faults(source, found)]
        report.problems += wrong_defaults(source, found)
    report.problems += [*_stray_tables(settings, report), *unmarked(sources, settings.notation.parent)]
    _look_between(report, formulas)
    if truth:
        probes = {precision: run(settings, formulas, precision, report.problems, seeds) for precision in PRECISIONS}
        for number, formula in enumerate(formulas):
            report.verdicts.append(verify(formula, {p: probes[p][number] for p in PRECISIONS}))
    else:
        report.verdicts = [Verdict(formula) for formula in formulas]
    for verdict in report.verdicts:
        report.problems += verdict.problems
    report.seconds = time.perf_counter() - began
    return report


def _look_between(report: Report, formulas: Sequence[Formula]) -> None:
    """What functions do between their formulas, but for what is excused."""
    excuses = Excuses(report.settings.notation.parent, "between")
    for source in report.sources:
        inside = [formula for formula in formulas if formula.marker.path == source.path]
        report.between += unsaid(source, inside)
        for scope, spot in between(source, inside).items():
            reason = excuses.reason(f"{source.module}.{scope}")
            if reason:
                report.excused.append(f"{source.module}.{scope}: {spot.message}: {reason}")
            else:
                report.between.append(spot)
    report.problems += excuses.faults()


def run(
    settings: Settings,
    formulas: Sequence[Formula],
    precision: str,
    problems: list[Problem] | None = None,
    seeds: Sequence[int] = SEEDS,
) -> list[Probe]:
    """The exercises, once for each seed, with the package rewritten to be watched.

    Where they raise an error, that is noted in `problems`. After a call that fails the next one is made; after any
    other statement that fails, what was seen until then counts.
    """
    recorder = Recorder(formulas)

    def failed(error: Exception, what: str = "this call fails") -> None:
        found = _failed_at(settings.exercises, error, what)
        if problems is not None and all(found.line != known.line for known in problems if known.path == found.path):
            problems.append(found)

    if any(formula.tree is not None for formula in formulas):
        with rewriting(recorder, settings.package), computing(precision):
            try:
                exercises = _load(settings.exercises, failed)
                recorder.recording = True
                for seed in seeds:
                    exercises.run(precision, seed)
            except MathdocError:
                raise
            except Exception as error:
                failed(error, "the exercises stop here")
    recorder.recording = False
    return recorder.probes


def _failed_at(exercises: Path, error: Exception, what: str) -> Problem:
    """The line of the exercises at which they raised an error."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(exercises)]
    message = f"{what}: {type(error).__name__}: {error}"
    return Problem(exercises, (frames[-1].lineno or 1) if frames else 1, 0, message, level=3)


FAILED = "__mathdoc_failed__"
"""What the exercises call with the error of a call in them."""


def _load(path: Path, failed: Callable[[Exception], None]) -> Any:
    """The exercises as a module; the calls that `run` consists of fail one by one."""
    if not path.is_file():
        raise MathdocError(f"{path} is not there: it runs the marked lines with small data, def run(dtype, seed).")
    tree = ast.parse(path.read_text(), str(path))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "run":
            node.body = [_guarded(part) if isinstance(part, ast.Expr) else part for part in node.body]
    module = ModuleType("mathdoc_exercises")
    module.__file__ = str(path)
    module.__dict__[FAILED] = failed
    sys.modules["mathdoc_exercises"] = module
    exec(compile(tree, str(path), "exec", dont_inherit=True), module.__dict__)
    return module


def _guarded(call: ast.Expr) -> ast.stmt:
    (guard,) = ast.parse(f"try: pass\nexcept Exception as error: {FAILED}(error)").body
    assert isinstance(guard, ast.Try)
    guard.body = [call]
    return ast.fix_missing_locations(ast.copy_location(guard, call))


def _stray_tables(settings: Settings, report: Report) -> list[Problem]:
    """Tables of modules that have no marker."""
    marked = {source.module for source in report.sources if source.markers} | {"shared"}
    tables = sorted(settings.notation.glob("*.toml")) if settings.notation.is_dir() else []
    return [Problem(path, 1, 0, "this table belongs to no module with markers", level=2) for path in tables
            if path.stem not in marked]  # fmt: skip


# --- what is written down ---------------------------------------------------------------------------------------


def records(report: Report) -> list[dict[str, Any]]:
    """Each formula's id, place, level, samples, error and mutants."""
    return [_record(verdict, report.settings.root) for verdict in report.verdicts]


def _record(verdict: Verdict, root: Path) -> dict[str, Any]:
    formula = verdict.formula
    marker = formula.marker
    symbols = [{"tex": b.tex, "var": b.var, "axes": list(b.axes or ()), "meaning": b.text} for b in formula.bindings]
    return {
        "id": formula.id,
        "file": str(marker.path.resolve().relative_to(root.resolve())),
        "line": marker.statement.lineno,
        "tex": marker.tex,
        "left": {"tex": formula.left.tex, "var": formula.left.var, "axes": list(formula.left.axes or ())},
        "symbols": symbols,
        "status": verdict.status,
        "level": 3 if RANK[verdict.status] > 0 else 1 if formula.tree is None else 2,
        "samples": verdict.samples,
        "error": {name: float(f"{value:.2g}") for name, value in verdict.error.items()},
        "mutants": verdict.mutants,
        "rejected": verdict.rejected,
        "gradient": None if verdict.gradient is None else float(f"{verdict.gradient:.2g}"),
        "slack": marker.slack,
        "blind": [spot.message for spot in verdict.blind],
        "reason": marker.reason,
    }


def write_records(report: Report, path: Path) -> None:
    """`formulas.json`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(records(report), indent=1, ensure_ascii=False) + "\n")


def write_baseline(report: Report) -> None:
    """The level that each formula has reached: what a later check may not fall below."""
    levels = {verdict.formula.id: verdict.status for verdict in report.verdicts}
    report.settings.baseline.write_text(json.dumps(levels, indent=1, sort_keys=True) + "\n")


def lost_levels(report: Report) -> list[str]:
    """Formulas that the baseline knows at a higher level, or that are gone or new."""
    path = report.settings.baseline
    if not path.is_file():
        return []
    before: dict[str, str] = json.loads(path.read_text())
    now = {verdict.formula.id: verdict.status for verdict in report.verdicts}
    lost = [f"{name} was {before[name]} and is gone" for name in before if name not in now]
    lost += [
        f"{name} was {before[name]} and is {status}"
        for name, status in now.items()
        if RANK[status] < RANK[before.get(name, status)]
    ]
    lost += [f"{name} is new" for name in now if name not in before]
    return lost
