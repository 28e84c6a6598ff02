"""Plant errors in copies of a package and count those that the check refuses, or names as what it does not see.

    python packages/mathdoc/tools/plant.py packages/mathdoc/tools/planted/fields.toml [--show KIND]

A file of errors names the package's folder and has a table for each kind of error; in it, for each file, pairs of a
text and what is written in its place:

    root = "../../examples/fields"
    package = "fields"

    ["wrong formula"]
    "fields/kalman.py" = [['K_n = \\frac{P_n}{S_n}', 'K_n = \\frac{S_n}{P_n}']]

Texts of the kind "equal form" are right, and must be accepted. Errors in different functions are planted together,
and right forms apart from them: an error may make the values of other functions infinite.
"""

import argparse
import ast
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mathdoc.check import Report, check
from mathdoc.problem import Problem
from mathdoc.settings import find_settings

RIGHT = "equal form"
SKIPPED = shutil.ignore_patterns("__pycache__", "*.npz", "guides", "assets", "algorithms", ".git")


@dataclass
class Planted:
    """An error, or another form of what is right."""

    kind: str
    file: str
    old: str
    new: str
    said: list[str] = field(default_factory=list)
    """Why the check refuses its function."""
    named: list[str] = field(default_factory=list)
    """What the check says that it does not see there."""

    @property
    def passed(self) -> bool:
        """Whether the check did what it should: not refused what is right, refused or named what is wrong."""
        return not self.said if self.kind == RIGHT else bool(self.said or self.named)


@dataclass(frozen=True)
class Place:
    """A function of a module, in which only one error is planted at a time; `*` is a whole module."""

    module: str
    function: str

    def meets(self, other: "Place") -> bool:
        """Whether what is said of one could be said of the other."""
        return self.module == other.module and (
            "*" in (self.function, other.function) or self.function == other.function
        )


def main() -> int:
    """Print the table; 0 if every error was refused or named and every equal form accepted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("errors", type=Path, nargs="+")
    parser.add_argument("--show", default="", help="print what is said of this kind of error")
    parser.add_argument("--kind", nargs="*", help="plant only these kinds")
    options = parser.parse_args()
    found = [planted for path in options.errors for planted in planted_in(path, options.kind)]
    for planted in found:
        if not planted.passed or planted.kind == options.show:
            print(f"{'' if planted.passed else 'MISSED '}{planted.kind}: {planted.file}: {planted.new.strip()}")
            print("".join(f"    {line}\n" for line in planted.said + planted.named), end="")
    print("\n".join(table(found)))
    return 0 if all(planted.passed for planted in found) else 1


def table(found: Iterable[Planted]) -> Iterator[str]:
    """How many of each kind were caught."""
    kinds: dict[str, list[Planted]] = {}
    for planted in found:
        kinds.setdefault(planted.kind, []).append(planted)
    yield "| kind | planted | refused | named as not seen | neither |\n|---|--:|--:|--:|--:|"
    for kind, of_it in kinds.items():
        refused = sum(bool(planted.said) for planted in of_it)
        neither = sum(not planted.said and (kind == RIGHT or not planted.named) for planted in of_it)
        yield f"| {kind} | {len(of_it)} | {refused} | {len(of_it) - refused - neither} | {neither} |"


def planted_in(path: Path, kinds: Sequence[str] | None = None) -> list[Planted]:
    """Every error of a file, or those of some kinds, checked."""
    settings = tomllib.loads(path.read_text())
    root, package = (path.parent / settings.pop("root")).resolve(), settings.pop("package")
    everything = [
        Planted(kind, file, old, new)
        for kind, files in settings.items()
        for file, pairs in files.items()
        for old, new in pairs
        if not kinds or kind in kinds
    ]
    waiting = list(everything)
    while waiting:
        together: list[tuple[Planted, Place]] = []
        for planted in waiting:
            place = _place(root, package, planted)
            alike = all((planted.kind == RIGHT) == (other.kind == RIGHT) for other, _ in together)
            if alike and not any(place.meets(taken) for _, taken in together):
                together.append((planted, place))
        waiting = [planted for planted in waiting if all(planted is not one for one, _ in together)]
        _check_together(root, package, together)
    return everything


def _check_together(root: Path, package: str, together: list[tuple[Planted, Place]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        copy.mkdir()
        for name in (package, "docs"):
            shutil.copytree(root / name, copy / name, ignore=SKIPPED)
        shutil.copy(root / "pyproject.toml", copy)
        for planted, _ in together:
            path = copy / planted.file
            text = path.read_text()
            if text.count(planted.old) != 1:
                sys.exit(f"{planted.file} has {text.count(planted.old)} times: {planted.old}")
            path.write_text(text.replace(planted.old, planted.new))
        report = check(find_settings(str(copy / package)))
        for planted, place in together:
            planted.said = [problem.message for problem in report.problems if _about(problem, place, report)]
            planted.named = [problem.message for problem in report.blind if _about(problem, place, report)]
            name = f"{place.module}.{place.function}: "
            planted.named += [line for line in report.excused if line.startswith(name)]


def _about(problem: Problem, place: Place, report: Report) -> bool:
    """Whether a problem concerns a function, in its code or in its table."""
    source = next(source for source in report.sources if source.module == place.module)
    if problem.path == report.notations[place.module].path:
        return place.function in ("*", _section(problem.path.read_text(), problem.line))
    if problem.path != source.path:
        return False
    scopes = {marker.line: marker.scope for marker in source.markers}
    if problem.line in scopes and place.function != "*":
        return scopes[problem.line] == place.function
    return place.function == "*" or _function(source.tree, problem.line + 1) == place.function or (
        _function(source.tree, problem.line) == place.function
    )  # fmt: skip


def _place(root: Path, package: str, planted: Planted) -> Place:
    text = (root / planted.file).read_text()
    line = text[: text.find(planted.old)].count("\n") + 1 + planted.old.lstrip(" ").count("\n", 0, 1)
    if planted.file.endswith(".toml"):
        return Place(Path(planted.file).stem, _section(text, line))
    module = planted.file.removeprefix(f"{package}/").removesuffix(".py").replace("/", ".")
    line += planted.old.strip("\n").count("\n") // 2
    tree = ast.parse(text)
    return Place(module, _function(tree, line) or _function(tree, line + 1) or "*")


def _function(tree: ast.Module, line: int) -> str:
    """The outermost function at a line, with its class."""
    for node in tree.body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        for function in inside:
            if isinstance(function, ast.FunctionDef) and function.lineno <= line <= (function.end_lineno or 0):
                return f"{node.name}.{function.name}" if isinstance(node, ast.ClassDef) else function.name
    return ""


def _section(text: str, line: int) -> str:
    """The function whose part of a notation table a line is in."""
    above = [row for row in text.splitlines()[:line] if row.startswith("[")]
    name = above[-1].strip("[]") if above else ""
    return name.removeprefix("functions.").strip('"').removesuffix("()") if name.startswith("functions.") else "*"


if __name__ == "__main__":
    sys.exit(main())
