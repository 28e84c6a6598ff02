"""Level 2: what each symbol stands for. One table per module, which is also the glossary and the hover text.

    [axes]
    t = "time step"

    [symbols]                                    # for every function of the module
    '\\gamma' = { var = "gamma", text = "discount" }

    [functions.gae]                              # for one function
    'r_t' = { var = "rewards", axes = "t e", text = "reward" }
    'A_{t+1}' = { var = "advantage", axes = "e", when = "before", text = "advantage of the next step" }

`var` is a name, an attribute, an index or a call: never arithmetic. `axes` names the array's dimensions from left to
right; those whose letter is written in the symbol may be written with another letter or a shift in a formula. `...`
stands for any number of dimensions, and an axis written `k?` may be missing. `shape = "matrix"` (or "vector") makes
the last dimensions those of a matrix, which is multiplied as one. `shape = "function"` is for what the line calls, as
in `f(t, y)`: its value has the dimensions of its arguments, or the `axes` that the entry names. `implied = "why"` is
for a symbol whose line holds it under another name. A formula's left-hand side binds itself for the formulas after it;
a table may give it axes and a meaning, and no `var`. A marker above a function has the
symbols of `[functions."gae()"]` before those of `[functions.gae]`, which are for the lines in it.
"""

import ast
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mathdoc.lexer import Token, separated, tokens
from mathdoc.named import COLUMN, ROW
from mathdoc.problem import FormulaError, MathdocError, Problem

FIELDS = {"var", "axes", "text", "when", "implied", "shape"}
SHAPES = {"": (), "vector": (ROW,), "matrix": (ROW, COLUMN), "function": ()}
SHARED = "shared.toml"
COMPUTING = {"torch", "np", "numpy", "jnp", "jax", "math", "F", "operator", "scipy", "functools"}
BUILTINS = {"sum", "abs", "min", "max", "pow", "round", "divmod", "map", "int", "float", "eval"}
HARMLESS = {"item", "reshape", "squeeze", "transpose", "ravel", "flatten", "tolist", "astype", "view", "copy", "size"}
METHODS = """
abs acos add addcmul asin atan bmm ceil clamp clamp_max clamp_min clip cos cosh cross cumsum detach det diff
div divide dot eq erf exp exp2 expm1 floor fmod ge gt inverse le log log10 log1p log2 log_softmax logsumexp lt
masked_fill matmul maximum median minimum mm mul multiply mv nan_to_num ne neg norm outer pow reciprocal relu
remainder round rsqrt sigmoid sign sin sinh softmax softplus sqrt square sub subtract tan tanh trace
true_divide where xlogy
"""
"""Methods of arrays that compute, besides those of NumPy's arrays."""


@dataclass(frozen=True)
class Slot:
    """A place in a pattern where an index is written."""

    axis: str


@dataclass(eq=False)
class Binding:
    """A symbol and the Python expression it stands for."""

    tex: str
    var: str
    axes: tuple[str, ...] | None
    """The dimensions in order; None: one per free index, in the order that the sizes tell."""
    text: str = ""
    when: str = ""
    scope: str = ""
    line: int = 0
    assigned: bool = False
    """Bound by a formula's left-hand side."""
    letters: frozenset[str] = frozenset()
    pattern: tuple[Token | Slot, ...] = ()
    used: bool = False
    shape: str = ""
    """`vector` or `matrix`, of its last dimensions, which are not among the letters; `function` of what is called."""
    implied: str = ""
    """Why its line need not read the variable: it holds the value under another name."""

    def __post_init__(self) -> None:
        if self.axes is not None:
            self.letters = frozenset(axis.rstrip("?") for axis in self.axes) - {ROW, COLUMN}
        self.pattern = make_pattern(self.tex, self.letters)

    @property
    def slots(self) -> frozenset[str]:
        """The axes whose letter is written in the symbol."""
        return frozenset(item.axis for item in self.pattern if isinstance(item, Slot))


@dataclass
class Notation:
    """A module's table."""

    path: Path
    axes: dict[str, str] = field(default_factory=dict)
    symbols: dict[str, dict[str, Binding]] = field(default_factory=dict)
    """By scope ("" for the whole module), then by symbol."""
    meanings: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    refused: dict[tuple[str, str], int] = field(default_factory=dict)
    """Entries that something is wrong with, by scope and symbol, with their lines."""

    def visible(self, scope: str, *, whole: bool = False) -> dict[str, Binding]:
        """What a function sees: its own entries first, then those of the module; as a whole those of `f()` before."""
        found = dict(self.symbols.get("", {}))
        parts = scope.split(".") if scope else []
        for depth in range(1, len(parts) + 1):
            found |= self.symbols.get(".".join(parts[:depth]), {})
        return found | self.symbols.get(f"{scope}()", {}) if whole else found

    def meaning(self, tex: str) -> str:
        """What the tables say of a symbol that a formula binds."""
        return self.meanings.get(normal(tex), "")


def normal(tex: str) -> str:
    """A symbol's text in one spelling, to compare by."""
    return " ".join(token.text for token in tokens(tex))


def make_pattern(tex: str, letters: frozenset[str]) -> tuple[Token | Slot, ...]:
    """The symbol's tokens, with slots where a letter of its axes is written in a script."""
    return tuple(
        Slot(token.text) if token.scripted and token.kind == "letter" and token.text in letters else token
        for token in separated(tokens(tex), letters, set())
    )


def read_notation(folder: Path, module: str) -> Notation:
    """The table of a module, with what is shared by all: axes and meanings."""
    path = folder / f"{module}.toml"
    notation = Notation(path)
    shared, _ = _load(folder / SHARED)
    table, text = _load(path)
    notation.axes = {**shared.get("axes", {}), **table.get("axes", {})}
    meanings = {**shared.get("meanings", {}), **table.get("meanings", {})}
    notation.meanings = {normal(tex): meaning for tex, meaning in meanings.items()}
    scopes: dict[str, dict[str, Any]] = {"": table.get("symbols", {}), **table.get("functions", {})}
    for scope, entries in scopes.items():
        for tex, entry in entries.items():
            line = _line_of(text, scope, tex)
            try:
                _add(notation, scope, tex, entry, line)
            except FormulaError as error:
                notation.problems.append(Problem(path, line, 0, f"`{tex}`: {error.message}", level=2))
    unknown = sorted(table.keys() - {"axes", "symbols", "functions", "meanings"})
    if unknown:
        raise MathdocError(f"{path} has a table [{unknown[0]}]: known are axes, symbols, functions and meanings.")
    return notation


def _load(path: Path) -> tuple[dict[str, Any], str]:
    if not path.is_file():
        return {}, ""
    text = path.read_text()
    try:
        return tomllib.loads(text), text
    except tomllib.TOMLDecodeError as error:
        raise MathdocError(f"{path} cannot be read: {error}") from error


def _add(notation: Notation, scope: str, tex: str, entry: dict[str, Any], line: int) -> None:
    fault = _fault(notation, entry)
    if fault:
        notation.problems.append(Problem(notation.path, line, 0, f"`{tex}`: {fault}", width=len(tex) + 2, level=2))
        notation.refused[scope, tex] = line
        return
    text = entry.get("text") or notation.meaning(tex)
    unknown = "var" not in entry or entry.get("shape") == "function"
    axes = tuple(entry["axes"].split()) if "axes" in entry else None if unknown else ()
    symbols = notation.symbols.setdefault(scope, {})
    if any(normal(tex) == normal(other) for other in symbols):
        message = f"`{tex}` is defined twice in {scope or 'the module'}"
        notation.problems.append(Problem(notation.path, line, 0, message, width=len(tex) + 2, level=2))
    if not text:
        message = f'`{tex}` has no meaning: add text = "..."'
        notation.problems.append(Problem(notation.path, line, 0, message, width=len(tex) + 2, level=2))
    shape = entry.get("shape", "")
    axes = None if axes is None else axes + SHAPES[shape]
    made = Binding(tex, entry.get("var", ""), axes, text, entry.get("when", ""), scope, line)
    made.implied, made.shape = entry.get("implied", ""), shape
    symbols[tex] = made


def _fault(notation: Notation, entry: Any) -> str:
    """What is wrong with an entry, or nothing."""
    if not isinstance(entry, dict) or entry.keys() - FIELDS:
        return f"an entry has the fields {', '.join(sorted(FIELDS))}"
    if not all(isinstance(value, str) for value in entry.values()):
        return "every field of an entry is a text in quotes"
    undefined = sorted({axis.rstrip("?") for axis in entry.get("axes", "").split()} - notation.axes.keys() - {"..."})
    if undefined:
        return f"the axis {undefined[0]} is not explained under [axes]"
    if entry.get("shape", "") not in SHAPES:
        return 'shape is "vector", "matrix" or "function"'
    if entry.get("when", "before") != "before":
        return 'when can only be "before": the value before the statement'
    return arithmetic(entry["var"]) if "var" in entry else ""


def how_to_declare(binding: Binding, count: int) -> str:
    """What a table says of an array with this many dimensions."""
    if binding.assigned:
        return f"line {binding.line} computes it: give what that line reads axes or a shape"
    letters = " ".join("ijklmn"[:count])
    shape = {1: ', or shape = "vector"', 2: ', or shape = "matrix"'}.get(count, "")
    return f'name {count} axes, left to right: axes = "{letters}"{shape}; where all is entry by entry, axes = "..."'


def arithmetic(expression: str) -> str:
    """Why a `var` is not allowed; empty if it is: a name, an attribute, an index, or a call of those."""
    allowed = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Slice, ast.Tuple, ast.Call, ast.Load)
    try:
        body = ast.parse(expression, mode="eval").body
    except SyntaxError:
        return f"{expression} is no Python expression"
    if isinstance(body, ast.Constant) and body.value is ...:
        return "it is not said yet which variable it stands for"
    if isinstance(body, ast.Constant):
        return "a number stands in the formula itself, not behind a symbol"
    for node in ast.walk(body):
        negative = isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
        if not isinstance(node, (*allowed, ast.USub)) and not negative:
            return f"{expression} is arithmetic, which would hide in the table what the formula should say"
        if isinstance(node, ast.Call) and _computes(node):
            return (
                f"{expression} computes, which would hide in the table what the formula should say: "
                "give it a line and a formula of its own"
            )
    return ""


def _computes(call: ast.Call) -> bool:
    """Whether a call is that of a mathematical function or of an array's method, not of a network."""
    owner, _, name = ast.unparse(call.func).rpartition(".")
    if owner.split(".")[0] in COMPUTING or (not owner and name in BUILTINS):
        return True
    return (
        bool(owner)
        and name.rstrip("_") not in HARMLESS
        and (hasattr(np.ndarray, name) or name.rstrip("_") in METHODS.split())
    )


def _line_of(text: str, scope: str, tex: str) -> int:
    """Where an entry stands, for messages."""
    escaped = tex.replace("\\", "\\\\")
    inside = not scope
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip().startswith("["):
            inside = line.strip().strip("[]").replace('"', "").replace("'", "") in (f"functions.{scope}", "symbols")
        if inside and line.lstrip().startswith((f"'{tex}'", f'"{escaped}"', f"{tex} ")):
            return number
    return 1
