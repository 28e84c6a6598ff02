"""Which variable a symbol may stand for, judged by names alone. A guess saves typing; the check decides."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from mathdoc.constants import with_number
from mathdoc.extract import Marker, Source
from mathdoc.lexer import Token, closing, tokens
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
    "epsilon": ("eps", "tolerance", "clip"),
    "varepsilon": ("eps", "tolerance"),
    "lambda": ("penalty", "weight", "lam"),
    "kappa": ("stiffness",),
    "rho": ("density", "ratio"),
    "omega": ("frequency",),
    "pi": ("policy",),
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
CONSTANTS = {"torch", "np", "numpy", "math", "jnp", "jax"}


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
            tex = _unshifted(marker.tex[error.start : error.end], found.axes)
            if any(normal(tex) == normal(binding.tex) for binding in new):
                raise
            new.append(_symbol(tex, marker, found.axes))
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


def _symbol(tex: str, marker: Marker, axes: Iterable[str]) -> Binding:
    """A symbol with its indices; without any, beside a transpose or an inverse it is a matrix or a vector."""
    made = Binding(tex, "", _axes(tex, axes), scope=marker.scope)
    base, _ = _base(tex)
    norm = re.search(rf"\\\|\s*{re.escape(tex)}\s*\\\|", marker.tex)
    if not made.axes and (norm or re.search(r"\^\{?(-1|\\top|T\b|\\mathsf|-\\top)", marker.tex)):
        made.shape = "matrix" if base[:1].isupper() else "vector"
    return made


def _unshifted(tex: str, axes: Iterable[str]) -> str:
    """`x_{n-k}` is `x_n` at another place."""
    letters = "|".join(map(re.escape, axes))
    return re.sub(rf"_\{{({letters})[+-]({letters})\}}", r"_\1", tex) if letters else tex


def _assign(symbols: list[Binding], marker: Marker, taken: set[str]) -> None:
    """Expressions for symbols: those whose names fit best first; as many as are then left, in their order."""
    places = [place for place in expressions(marker) if place not in taken]
    open_ = list(symbols)
    pairs = [(_score(symbol.tex, place), symbol, place) for symbol in symbols for place in places]
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
        if len(some) == len(left):
            for symbol, place in list(zip(some, left, strict=True)):
                symbol.var = place
                open_.remove(symbol)
                places.remove(place)
    for symbol in symbols:
        symbol.text = words(symbol.var)


def _array_arguments(marker: Marker) -> set[str]:
    """The arguments that the function around a marker declares as arrays."""
    functions = [node for node in ast.walk(ast.parse(marker.path.read_text())) if isinstance(node, ast.FunctionDef)]
    around = [node for node in functions if node.lineno <= marker.statement.lineno <= (node.end_lineno or 0)]
    given = [argument for node in around[-1:] for argument in (*node.args.args, *node.args.kwonlyargs)]
    return {argument.arg for argument in given if argument.annotation and is_array(ast.unparse(argument.annotation))}


def is_array(annotation: str) -> bool:
    """Whether an annotation is that of an array."""
    return any(word in annotation for word in ("Tensor", "ndarray", "Array"))


def nearest(tex: str, marker: Marker) -> str:
    """The expression of a statement whose name fits a symbol best, or nothing."""
    scored = [(_score(tex, place), place) for place in expressions(marker)]
    score, place = max(scored, default=(0, ""))
    return place if score else ""


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
            if text not in CONSTANTS:
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
    return tuple(dict.fromkeys(letter for letter in _letters(tokens(tex)) if letter in known))


def words(expression: str) -> str:
    """A name as words: `self.noise_std` is "noise std"."""
    shape = re.fullmatch(r"(.*)\.shape\[-?\d+\]|len\((.*)\)", expression)
    if shape:
        return f"number of {words(shape[1] or shape[2])}"
    plain = re.sub(r"^(self|np|numpy|math|torch|jnp)\.", "", expression)
    return " ".join(re.findall(r"[A-Za-z0-9]+", plain)).lower()
