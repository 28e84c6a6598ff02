"""Plant errors in copies of a package and count those that the check refuses, or names as what it does not see.

    python packages/mathdoc/tools/plant.py packages/mathdoc/tools/planted/fields.toml [--show KIND] [--write PAGE]

A file of errors names the package's folder and has a table for each kind of error; in it, for each file, pairs of a
text and what is written in its place:

    root = "../../examples/fields"
    package = "fields"

    ["wrong formula"]
    "fields/kalman.py" = [['K_n = \\frac{P_n}{S_n}', 'K_n = \\frac{S_n}{P_n}']]

Texts of the kind "equal form" are right, and must be accepted. Each case has a check of its own, so that nothing that
is said of one can come from another.
"""

import argparse
import ast
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mathdoc.check import SEEDS, Report, check
from mathdoc.problem import Problem
from mathdoc.settings import Settings, find_settings

RIGHT = "equal form"
DECISIVE = ("the formula gives", "value and line agree, but their gradients")
SKIPPED = shutil.ignore_patterns("__pycache__", "*.npz", "guides", "assets", "algorithms", ".git")

PAGE = """# What planted errors show

`tools/plant.py` plants errors of the kinds that people make in copies of a package, one in each copy, and runs the
check on it: an error is *refused* if the check fails at its function, *named* if the check lists that function among
what it does not see. Equal forms, of formulas and of code, must not be refused. All of it is one run, at the commit of
{date}:

```bash
{command}
```
"""
NAMED = """
What is named and not refused lies in functions whose lines between formulas are excused, with a test that sees them, in
`docs/unmarked.toml`, or is said by `mathdoc check --strict`, which then fails. An equal form is refused if its line no
longer reads a symbol of its formula: the formula then describes another line.

The rules that see the slips were written after these were planted, when 13 of the 23 in `fields` passed unseen: how
many slips of other kinds are seen, these counts do not tell.
"""


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

    def __str__(self) -> str:
        title = f"{'' if self.passed else 'MISSED '}{self.kind}: {self.file}: {self.new.strip()}"
        return "\n    ".join([title, *self.said, *self.named])


@dataclass(frozen=True)
class Place:
    """A function of a module; `*` is a whole module."""

    module: str
    function: str


def main() -> int:
    """Print the tables; 0 if every error was refused or named and every equal form accepted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("errors", type=Path, nargs="+")
    parser.add_argument("--show", default="", help="print what is said of this kind of error")
    parser.add_argument("--kind", nargs="*", help="plant only these kinds")
    parser.add_argument("--text", default="", help="plant only what has this text in it")
    parser.add_argument("--write", type=Path, help="write the tables into this page")
    options = parser.parse_args()
    page = PAGE.format(date=_date(), command=f"python {' '.join(sys.argv)}")
    held = True
    for path in options.errors:
        found = []
        for planted in planted_in(path, options.kind, options.text):
            found.append(planted)
            print("." if planted.passed else "!", end="", file=sys.stderr, flush=True)
            if not planted.passed or planted.kind == options.show:
                print(planted, flush=True)
        page += f"\nIn `{tomllib.loads(path.read_text())['package']}`, with `{path.name}`:\n\n"
        page += "\n".join(table(found)) + "\n"
        print("\n".join(table(found)))
        held = held and all(planted.passed for planted in found)
    if options.write:
        options.write.write_text(page + NAMED)
    return 0 if held else 1


def _date() -> str:
    """When the last commit was made; the files must be those of it."""
    said = subprocess.run(["git", "log", "-1", "--format=%ci"], capture_output=True, text=True, check=True).stdout
    return said.strip()


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


def planted_in(path: Path, kinds: Sequence[str] | None = None, text: str = "") -> Iterator[Planted]:
    """Every error of a file, or those of some kinds, each checked in a copy of the package."""
    settings = tomllib.loads(path.read_text())
    root, package = (path.parent / settings.pop("root")).resolve(), settings.pop("package")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        copy.mkdir()
        for name in (package, "docs"):
            shutil.copytree(root / name, copy / name, ignore=SKIPPED)
        shutil.copy(root / "pyproject.toml", copy)
        for kind, files in sorted(settings.items(), key=lambda item: item[0] != RIGHT):
            for file, pairs in files.items():
                for old, new in pairs:
                    if (not kinds or kind in kinds) and text in new:
                        planted = Planted(kind, file, old, new)
                        _check(copy, package, planted)
                        yield planted


def _check(copy: Path, package: str, planted: Planted) -> None:
    """Plant one error, check the module that has it, and take it away again.

    What the code alone tells needs no exercises, and where values or gradients differ in one, no others can mend it.
    """
    path = copy / planted.file
    right = path.read_text()
    if right.count(planted.old) != 1:
        sys.exit(f"{planted.file} has {right.count(planted.old)} times: {planted.old}")
    place = _place(right, package, planted)
    settings: Settings = find_settings(str(copy / package))
    path.write_text(right.replace(planted.old, planted.new))
    try:
        for seeds in ((), SEEDS[:1], SEEDS) if planted.kind != RIGHT else (SEEDS,):
            report = check(settings, truth=bool(seeds), seeds=seeds, modules=[place.module])
            planted.said = [problem.message for problem in report.problems if _about(problem, place, report)]
            if seeds == SEEDS[:1]:
                planted.said = [message for message in planted.said if message.startswith(DECISIVE)]
            if planted.said:
                return
        planted.named = [problem.message for problem in report.blind if _about(problem, place, report)]
        name = f"{place.module}.{place.function}: "
        planted.named += [line for line in report.excused if line.startswith(name)]
    finally:
        path.write_text(right)


def _about(problem: Problem, place: Place, report: Report) -> bool:
    """Whether a problem concerns a function, in its code or in its table, or stops the exercises."""
    (source,) = report.sources
    if problem.path == report.settings.exercises:
        return True
    if problem.path == report.notations[place.module].path:
        return place.function in ("*", _section(problem.path.read_text(), problem.line))
    if problem.path != source.path:
        return False
    scopes = {marker.line: marker.scope for marker in source.markers}
    if problem.line in scopes and place.function != "*":
        return scopes[problem.line] == place.function
    around = (_function(source.tree, problem.line), _function(source.tree, problem.line + 1))
    return place.function == "*" or place.function in around


def _place(text: str, package: str, planted: Planted) -> Place:
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
