"""Which variable a symbol may stand for, judged by names alone. A guess saves typing; the check decides."""

import ast
import builtins
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from mathdoc.constants import with_number
from mathdoc.extract import Marker, Source
from mathdoc.lexer import Token, closing, separated, tokens
from mathdoc.notation import Binding, arithmetic, normal
from mathdoc.parser import parse, split_equation
from mathdoc.problem import FormulaError
from mathdoc.shapes import shape_of
from mathdoc.tree import Use, walk
from mathdoc.words import REDUCTIONS, RELATIONS

WORDS = {
    "mu": ("mean", "average"),
    "sigma": ("std", "scale", "deviation", "sd"),
    "theta": ("weights", "params", "parameters", "angle"),
    "gamma": ("discount", "decay"),
    "alpha": ("rate", "lr", "step"),
    "eta": ("rate", "lr", "temperature"),
    "epsilon": ("eps", "tolerance", "clip", "step"),
    "varepsilon": ("eps", "tolerance"),
    "lambda": ("penalty", "weight", "lam"),
    "kappa": ("stiffness",),
    "rho": ("density", "ratio"),
    "omega": ("frequency",),
    "pi": ("policy",),
    "J": ("coupling",),
    "n": ("count", "len", "shape"),
    "N": ("count", "len", "shape"),
    "D": ("shape",),
}
ACCENTS = {
    "\\hat",
    "\\bar",
    "\\tilde",
    "\\widehat",
    "\\widetilde",
    "\\vec",
    "\\dot",
    "\\mathcal",
    "\\mathbf",
    "\\mathrm",
}
CONSTANTS = {"torch", "np", "numpy", "math", "jnp", "jax", "scipy"}
"""Modules: what is in them is no variable."""
MEASURED = re.compile(r"(.*)\.shape\[-?\d+\]|len\((.*)\)")


@dataclass
class Guessed:
    """What was guessed for one module."""

    symbols: dict[str, list[Binding]] = field(default_factory=dict)
    """By function, in the order of their first use. An empty `var` means that nothing fits."""
    axes: list[str] = field(default_factory=list)
    meanings: dict[str, str] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)
    """Markers that could not be parsed, by line, and why."""


def guessed(source: Source) -> Guessed:
    """A table for a module's markers."""
    found = Guessed()
    lefts: dict[str, list[Binding]] = {}
    for marker in source.markers:
        for letter in _indices(tokens(marker.tex)):
            if letter not in found.axes:
                found.axes.append(letter)
    for marker in source.markers:
        if marker.prose or not marker.target:
            continue
        entries = found.symbols.setdefault(marker.scope, [])
        try:
            _read(marker, entries, lefts.setdefault(marker.scope, []), found)
        except FormulaError as error:
            found.unread[marker.line] = error.message
    for marker in source.markers:
        for binding in found.symbols.get(marker.scope, []):
            if binding.var == marker.target:
                binding.when = "before"
    for scope, entries in found.symbols.items():
        for binding in entries:
            binding.text = with_number(source.tree, scope, binding.var, binding.text)
    return found


def _read(marker: Marker, entries: list[Binding], lefts: list[Binding], found: Guessed) -> None:
    """Add what a formula needs to the entries of its function."""
    left, right = split_equation(marker.tex)
    new: list[Binding] = []
    while True:
        try:
            tree = parse(right, [*lefts, *entries, *new], found.axes)
            break
        except FormulaError as error:
            if error.message != "UNKNOWN":
                raise
            written = _whole(marker, error.start, error.end)
            tex = _unshifted(written, found.axes)
            if normal(tex) == " ".join(token.text for token in left):
                tex = written  # an earlier value, as in a loop, is a symbol of its own
            if "\\bmod" in written and any(normal(tex) == normal(binding.tex) for binding in [*entries, *new]):
                tex = written.partition("\\bmod")[2].strip("} ").partition(",")[0]
            if any(normal(tex) == normal(binding.tex) for binding in new):
                raise FormulaError(f"`{tex}` is not understood", error.start, error.end) from error
            applied = marker.tex[error.end : error.end + 1] == "(" and _score(tex, called_name(marker))
            matrices = any(binding.shape in ("matrix", "vector") for binding in [*lefts, *entries])
            new.append(_function(tex, marker) if applied else _symbol(tex, marker, found.axes, matrices))
    used = {id(node.binding) for node in walk(tree) if isinstance(node, Use)}
    again = [binding for binding in entries if not binding.var and id(binding) in used]  # no earlier line had it
    _assign([*again, *new], marker, taken={binding.var for binding in [*lefts, *entries]} - {marker.target})
    entries += new
    for binding in [*again, *new]:
        if not binding.var:
            binding.var = _size(binding.tex, marker.tex, [one for one in [*entries, *lefts] if id(one) in used])
            binding.text = words(binding.var)
    tex = marker.tex[left[0].start : left[-1].end]
    made = Binding(tex, marker.target, _axes(tex, found.axes), assigned=True)
    made.shape = shape_of(parse(right, [*lefts, *entries], found.axes))
    lefts.append(made)
    if marker.target != "return" and all(normal(tex) != normal(entry.tex) for entry in entries):
        found.meanings.setdefault(tex, words(marker.target))


def _size(tex: str, formula: str, known: Iterable[Binding]) -> str:
    """The size that the upper end of a sum stands for: that of an array with its index."""
    over = re.search(rf"_\{{?(\w)\s*=\s*[01]\}}?\^\{{?{re.escape(tex)}\b", formula)
    for binding in known:
        if over and binding.var and over[1] in (binding.axes or ()):
            at = (binding.axes or ()).index(over[1])
            return f"{binding.var}.shape[{at}]" if at else f"len({binding.var})"
    return ""


def _symbol(tex: str, marker: Marker, axes: Iterable[str], matrices: bool) -> Binding:
    """A symbol with its indices; without any, beside a transpose, an inverse or `matrices`, it is one or a vector."""
    made = Binding(tex, "", _axes(tex, axes), scope=marker.scope)
    base, _ = _base(tex)
    beside = re.search(r"\^\{?(-1|\\top|T\b|\\mathsf|-\\top)", marker.tex) or (matrices and len(base) == 1)
    norm = re.search(rf"\\\|\s*{re.escape(tex)}\s*\\\|", marker.tex)
    if not made.axes and (norm or beside):
        made.shape = "matrix" if base[:1].isupper() else "vector"
    return made


def _function(tex: str, marker: Marker) -> Binding:
    """A symbol for what the line calls."""
    made = Binding(tex, called_name(marker), None, scope=marker.scope)
    made.shape, made.text = "function", words(made.var)
    return made


def _whole(marker: Marker, start: int, end: int) -> str:
    r"""An unknown symbol; the `\Delta` of `\Delta t` belongs to what follows if the line reads a `dt`."""
    behind = re.match(r"\s*([A-Za-z])\b", marker.tex[end:])
    joined = marker.tex[start:end] in ("\\Delta", "\\delta") and behind and f"d{behind[1]}" in expressions(marker)
    return marker.tex[start : end + behind.end()] if joined and behind else marker.tex[start:end]


def _unshifted(tex: str, axes: Iterable[str]) -> str:
    r"""`x_{n-k}`, `x_{n+1}` and `x_{(n+1) \bmod N}` are `x_n` at another place."""
    letters = "|".join(map(re.escape, axes))
    if not letters:
        return tex
    shifted = rf"(?<=[_{{,\s(])\(?({letters})\s*[+-]\s*(?:{letters}|\d+)\)?(?:\s*\\bmod\s*\w+)?(?=\s*[,}}])"
    return re.sub(rf"_\{{({letters})\}}$", r"_\1", re.sub(shifted, r"\1", tex))


def _assign(symbols: list[Binding], marker: Marker, taken: set[str]) -> None:
    """Expressions for symbols: those whose names fit best first; as many as are then left, in their order."""
    symbols = [symbol for symbol in symbols if symbol.shape != "function"]
    called = {called_name(marker)} & {symbol.var for symbol in symbols}
    places = [place for place in expressions(marker) if place not in taken | called]
    open_ = list(symbols)
    pairs = [
        (min(_score(symbol.tex, place), 1 if symbol.shape and MEASURED.fullmatch(place) else 99), symbol, place)
        for symbol in symbols
        for place in places
        if not (symbol.axes and MEASURED.fullmatch(place))
    ]
    for score, symbol, place in sorted(pairs, key=lambda pair: -pair[0]):
        if score and symbol in open_ and place in places:
            symbol.var = place
            open_.remove(symbol)
            places.remove(place)
    for symbol in list(open_):
        if _base(symbol.tex)[0] in taken & set(expressions(marker)):  # one name, two symbols: x beside x_i
            symbol.var = _base(symbol.tex)[0]
            open_.remove(symbol)
    arrays = [place for place in places if place in _array_arguments(marker)]
    indexed = [symbol for symbol in open_ if symbol.axes or symbol.shape]
    for some, left in ((indexed, arrays), (open_, places)):
        counted = any(symbol.axes and MEASURED.fullmatch(place) for symbol, place in zip(some, left, strict=False))
        if len(some) == len(left) and not counted:
            for symbol, place in list(zip(some, left, strict=True)):
                symbol.var = place
                open_.remove(symbol)
                places.remove(place)
    _count(open_, [symbol for symbol in symbols if symbol.axes and symbol.var])
    numbers = _numbers(marker)
    for symbol in symbols:
        symbol.shape = "" if symbol.var in numbers else symbol.shape
        symbol.text = words(symbol.var)


def _count(open_: list[Binding], arrays: list[Binding]) -> None:
    """A capital letter that nothing fits, beside arrays with the small one for an index, is their number of entries."""
    for symbol in open_:
        for array in arrays:
            if symbol.tex.lower() in (array.axes or ()) and symbol.tex.isupper():
                place = (array.axes or ()).index(symbol.tex.lower())
                symbol.var = symbol.var or (f"{array.var}.shape[{place}]" if place else f"len({array.var})")


def _numbers(marker: Marker) -> set[str]:
    """The variables that are numbers: by their annotation, or because they count entries."""
    around = _around(marker)
    given = [argument for node in around for argument in (*node.args.args, *node.args.kwonlyargs)]
    made = [node for function in around for node in ast.walk(function) if isinstance(node, ast.Assign)]
    counts = {ast.unparse(node.targets[0]) for node in made if MEASURED.fullmatch(ast.unparse(node.value))}
    return counts | {a.arg for a in given if a.annotation and ast.unparse(a.annotation) in ("float", "int")}


def _around(marker: Marker) -> list[ast.FunctionDef]:
    """The function that a marker stands in."""
    functions = [node for node in ast.walk(ast.parse(marker.path.read_text())) if isinstance(node, ast.FunctionDef)]
    return [node for node in functions if node.lineno <= marker.statement.lineno <= (node.end_lineno or 0)][-1:]


def _array_arguments(marker: Marker) -> set[str]:
    """The arguments that the function around a marker declares as arrays."""
    given = [argument for node in _around(marker) for argument in (*node.args.args, *node.args.kwonlyargs)]
    return {argument.arg for argument in given if argument.annotation and is_array(ast.unparse(argument.annotation))}


def is_array(annotation: str) -> bool:
    """Whether an annotation is that of an array."""
    return any(word in annotation for word in ("Tensor", "ndarray", "Array"))


def nearest(tex: str, marker: Marker) -> str:
    """The expression of a statement whose name fits a symbol best, or nothing."""
    scored = [(_score(tex, place), place) for place in expressions(marker)]
    score, place = max(scored, default=(0, ""))
    return place if score else ""


def called_name(marker: Marker) -> str:
    """The first function that a statement calls by a name which is an argument or a variable, or nothing."""
    calls = [node.func for node in ast.walk(marker.value) if isinstance(node, ast.Call)] if marker.value else []
    return next((node.id for node in calls if isinstance(node, ast.Name) and node.id not in dir(builtins)), "")


def expressions(marker: Marker) -> list[str]:
    """The names, attributes and indexed values that a statement reads, the longest of nested ones, in order."""
    value = marker.value
    if value is None:
        return []
    found: list[str] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "len":
                found.append(ast.unparse(node))
                return
            if isinstance(node.func, ast.Attribute) and ast.unparse(node.func).split(".")[0] not in CONSTANTS:
                visit(node.func.value)
            for part in [*node.args, *(keyword.value for keyword in node.keywords)]:
                visit(part)
        elif isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and not arithmetic(ast.unparse(node)):
            text = (
                ast.unparse(node.value) if isinstance(node, ast.Attribute) and node.attr == "T" else ast.unparse(node)
            )
            if text.split(".")[0] not in CONSTANTS:
                found.append(text)
        else:
            for child in ast.iter_child_nodes(node):
                visit(child)

    visit(value)
    if isinstance(marker.statement, ast.AugAssign):
        found.insert(0, marker.target)
    return list(dict.fromkeys(found))


def _score(tex: str, place: str) -> int:
    """How well a symbol and an expression fit: 0 is not at all."""
    base, labels = _base(tex)
    parts = re.findall(r"[A-Za-z]+", re.sub(r"\bself\b", "", place))
    difference = re.fullmatch(r"\\[Dd]elta\s*([A-Za-z])", tex)
    if difference:
        return 10 * (f"d{difference[1]}" in parts)
    name = [part.lower() for part in parts]
    if not name or not base:
        return 0
    score = 0
    if base in parts or (len(base) > 1 and base.lower() in name):
        score = 10
    elif any(synonym in name for synonym in WORDS.get(base, ())):
        score = 8
    elif len(base) > 2 and any(part.startswith(base.lower()[:4]) for part in name):
        score = 6
    elif len(base) == 1 and any(part[0] == base.lower() for part in name):
        score = 4
    score += 2 * sum(label.lower() in name or label in place for label in labels)
    return score


def _base(tex: str) -> tuple[str, list[str]]:
    """The letter or Greek name of a symbol without its accents, and the words in its scripts."""
    found = [token for token in tokens(tex) if token.text not in ACCENTS and token.text not in "{}"]
    labels = [token.text for token in found if token.scripted and token.kind in ("word", "number")]
    plain = [token.text.lstrip("\\") for token in found if not token.scripted and token.kind in ("command", "letter")]
    return (plain[0] if plain else ""), labels


def _letters(found: list[Token]) -> Iterable[str]:
    """The small letters in subscripts: indices."""
    for at, token in enumerate(found[:-1]):
        if token.text == "_" and found[at + 1].text == "{":
            inside = found[at + 2 : closing(found, at + 1)]
            yield from (inner.text for inner in inside if inner.kind == "letter" and inner.text.islower())


def _indices(found: list[Token]) -> Iterable[str]:
    """The letters that are indices: those of the left-hand side, and those below a sum, a maximum or a mean."""
    relation = next((at for at, token in enumerate(found) if token.text in RELATIONS), 0)
    yield from _letters(found[:relation])
    for at in range(relation, len(found) - 1):
        over = found[at].text in REDUCTIONS or found[at].text in ("\\mathbb", "\\operatorname")
        start = closing(found, at + 1) + 1 if over and found[at + 1].text == "{" else at + 1
        if over and start + 1 < len(found) and found[start].text == "_":
            yield from _letters(found[start : closing(found, start + 1) + 1])


def _axes(tex: str, axes: Iterable[str]) -> tuple[str, ...]:
    known = set(axes)
    found = separated(tokens(tex), known, set())
    return tuple(dict.fromkeys(letter for letter in _letters(found) if letter in known))


def words(expression: str) -> str:
    """A name as words: `self.noise_std` is "noise std"."""
    shape = MEASURED.fullmatch(expression)
    if shape:
        return f"number of {words(shape[1] or shape[2])}"
    plain = re.sub(r"^(self|np|numpy|math|torch|jnp)\.", "", expression)
    return " ".join(re.findall(r"[A-Za-z0-9]+", plain)).lower()
