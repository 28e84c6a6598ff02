"""What is wrong, where, and how to mend it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Problem:
    """A fault at a place in a file. Lines count from 1, columns from 0."""

    path: Path
    line: int
    column: int
    message: str
    hint: str = ""
    width: int = 1
    level: int = 0
    """Which of the four levels it fails: 0 place, 1 syntax, 2 notation, 3 truth."""

    def __str__(self) -> str:
        text = f"{_short(self.path)}:{self.line}:{self.column + 1}: {self.message}"
        source = _line(self.path, self.line)
        if source.strip():
            cut = len(source) - len(source.lstrip())
            caret = " " * max(0, self.column - cut) + "^" * max(1, self.width)
            text += f"\n    {source.lstrip()}\n    {caret}"
        if self.hint:
            text += "\n" + "\n".join(f"    {line}" for line in self.hint.splitlines())
        return text


class MathdocError(Exception):
    """Something outside the formulas is wrong: a package that is not there, a table that cannot be read."""


class FormulaError(Exception):
    """A fault inside a formula, at an offset of its text; who knows the file makes a Problem of it."""

    def __init__(self, message: str, start: int = 0, end: int | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.end = start + 1 if end is None else max(end, start + 1)
        self.hint = hint


class ShapeError(FormulaError):
    """The sides of a formula have entries in different numbers."""


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _line(path: Path, line: int) -> str:
    try:
        return path.read_text().splitlines()[line - 1]
    except (OSError, IndexError):
        return ""
