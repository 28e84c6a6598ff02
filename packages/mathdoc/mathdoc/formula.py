"""A marker with its meaning: which symbols it has, what they stand for, what its left-hand side is."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mathdoc.extract import Marker, Source
from mathdoc.guess import called_name, nearest
from mathdoc.katex import check_syntax
from mathdoc.lexer import separated, tokens
from mathdoc.matching import longest
from mathdoc.notation import Binding, Notation, normal
from mathdoc.parser import parse, split_equation
from mathdoc.problem import FormulaError, Problem
from mathdoc.shapes import TAIL, shape_of
from mathdoc.tree import Apply, Member, Node, Reduce, Use, free_axes, paired, walk

MOST_SLACK = 1e-2
"""What differs by more is another formula."""


@dataclass
class Formula:
    """A parsed marker. `tree` is its right-hand side; prose has none."""

    marker: Marker
    anchor: str
    left: Binding
    left_span: tuple[int, int]
    tree: Node | None = None
    others: tuple[Binding, ...] = ()
    """Symbols of the function that the formula does not use: what a wrong formula may have left out."""

    @property
    def id(self) -> str:
        """Stable under moved lines: module, function and symbol."""
        return f"{self.marker.module}#{self.anchor}"

    @property
    def bindings(self) -> list[Binding]:
        """The symbols on the right, each once."""
        return list(dict.fromkeys(use.binding for use in self.uses))

    @property
    def smooth(self) -> list[Binding]:
        """The symbols on the right that are not only sets: what the value may have a gradient in."""
        nodes = list(walk(self.tree)) if self.tree is not None else []
        masks = {id(n.mask) for n in nodes if isinstance(n, Member)}
        masks |= {id(n.member) for n in nodes if isinstance(n, Reduce)}
        return list(dict.fromkeys(use.binding for use in self.uses if id(use) not in masks))

    @property
    def functions(self) -> list[Binding]:
        """The functions of the code that the right-hand side calls."""
        nodes = walk(self.tree) if self.tree is not None else ()
        return list(dict.fromkeys(node.binding for node in nodes if isinstance(node, Apply)))

    @property
    def uses(self) -> list[Use]:
        """The places where the right-hand side has a symbol."""
        return [node for node in walk(self.tree) if isinstance(node, Use)] if self.tree is not None else []


def understand(source: Source, notation: Notation) -> tuple[list[Formula], list[Problem]]:
    """Levels 1 and 2 of a module's markers, in their order: what a formula assigns, later ones may use."""
    formulas: list[Formula] = []
    problems = [*source.problems, *notation.problems]
    bound: dict[str, dict[str, Binding]] = {}
    unread: dict[tuple[str, str], int] = {}
    """The left-hand sides of formulas that could not be read, with their lines."""
    for marker in source.markers:
        try:
            check_syntax(marker.tex)
        except FormulaError as error:
            problems.append(marker.problem(error.message, error.start, error.end, level=1))
            continue
        try:
            earlier = bound.setdefault(marker.scope, {})
            formula = _understood(marker, notation, earlier, _anchor(marker, formulas))
            formulas.append(formula)
            if not marker.whole:
                earlier[normal(formula.left.tex)] = formula.left
        except FormulaError as error:
            problems.append(_located(marker, notation, error, unread))
            unread[marker.scope, normal(marker.tex.partition("=")[0])] = marker.line
        except Exception as error:  # a fault of the check itself concerns this formula, not the others
            problems.append(marker.problem(f"this formula could not be read: {error!r}", level=2))
    return formulas, problems + _unused(notation, formulas, problems)


def _understood(marker: Marker, notation: Notation, earlier: dict[str, Binding], anchor: str) -> Formula:
    left, right = split_equation(marker.tex)
    span = (left[0].start, left[-1].end)
    tex = marker.tex[slice(*span)]
    visible = notation.visible(marker.scope, whole=marker.whole)
    if not marker.whole:
        _refuse_ambiguous(marker, tex, span, visible, earlier)
    declared = next((b for b in visible.values() if normal(b.tex) == normal(tex)), None)
    if marker.prose:
        return Formula(marker, anchor, _left(marker, tex, None, declared, notation), span)
    if not marker.target:
        raise FormulaError("the statement below assigns nothing, so nothing can be compared", *span)
    loose = [slack for slack in marker.slack.values() if not slack <= MOST_SLACK]
    if loose:
        raise FormulaError(f"a slack of {loose[0]:g} would let errors pass: at most {MOST_SLACK:g}", *span)
    if isinstance(marker.value, (ast.Name, ast.Attribute, ast.Constant)):
        assigned = ast.unparse(marker.value)
        raise FormulaError(f"this line computes nothing: move the marker to where `{assigned}` is assigned", *span)
    table = [binding for binding in visible.values() if binding.var]
    outside = frozenset(token.text for token in separated(left, set(notation.axes), set()) if token.scripted)
    tree = paired(parse(right, [*earlier.values(), *table], notation.axes), outside)
    binding = _left(marker, tex, tree, declared, notation)
    formula = Formula(marker, anchor, binding, span, tree)
    used = {id(known) for known in formula.bindings}
    known = [b for b in [*earlier.values(), *table] if b.var != "return" and b.shape != "function"]
    formula.others = tuple(b for b in known if id(b) not in used)
    _refuse_circular(formula)
    return formula


def _left(marker: Marker, tex: str, tree: Node | None, declared: Binding | None, notation: Notation) -> Binding:
    """The left-hand side as a symbol: it stands for what the statement assigns."""
    uses = [node for node in walk(tree) if isinstance(node, Use)] if tree else []
    free = free_axes(tree) if tree else frozenset[str]()
    axes = declared.axes if declared else None
    shape = shape_of(tree) if tree else ""
    if axes is not None and frozenset(axis.rstrip("?") for axis in axes) - {*TAIL["matrix"]} != free:
        left, right = " ".join(axes) or "none", " ".join(sorted(free)) or "none"
        raise FormulaError(f"the indices differ: the table gives `{tex}` {left}, the right-hand side has {right}", 0)
    written = {index.letter for use in uses for index in use.indices if index.axis in use.binding.slots}
    lost = sorted((free & written) - {token.text for token in separated(tokens(tex), free, set()) if token.scripted})
    if lost:
        raise FormulaError(f"the index {lost[0]} is left free: it is on the right-hand side and not on the left", 0)
    if declared:
        declared.used = True
    if axes is None and len(free) <= 1:
        axes = tuple(f"{axis}?" if _optional(axis, uses) else axis for axis in free) + TAIL[shape]
    text = (declared.text if declared else "") or notation.meaning(tex)
    made = Binding(tex, marker.target, axes, text, "", marker.scope, marker.line, assigned=True)
    made.implied, made.shape = declared.implied if declared else "", shape
    if axes is None:
        made.letters = free
        made.__post_init__()
    return made


def _optional(letter: str, uses: Iterable[Use]) -> bool:
    """An axis that every symbol may lack, the left-hand side may lack too."""
    axes = [(use.binding.axes or (), index.axis) for use in uses for index in use.indices if index.letter == letter]
    return bool(axes) and all(f"{axis}?" in declared for declared, axis in axes)


def _refuse_ambiguous(
    marker: Marker, tex: str, span: tuple[int, int], visible: dict[str, Binding], earlier: dict[str, Binding]
) -> None:
    """A symbol has one meaning in a function."""
    for binding in [*visible.values(), *earlier.values()]:
        same = normal(binding.tex) == normal(tex)
        if same and binding.var and binding.var != marker.target:
            raise FormulaError(
                f"`{tex}` is `{binding.var}` in {binding.scope or 'this module'} (line {binding.line}), "
                f"and here `{marker.target}` is assigned: a symbol has one meaning",
                *span,
            )


def _refuse_circular(formula: Formula) -> None:
    """The right-hand side may not read what the statement assigns, but for an earlier value with its own symbol."""
    for use in formula.uses:
        binding = use.binding
        value = formula.marker.value
        if value is not None and not formula.marker.whole and binding.var == ast.unparse(value):
            raise FormulaError(
                f"`{binding.tex}` is the whole line `{binding.var}`: the formula says nothing", *use.span
            )
        if normal(binding.tex) == normal(formula.left.tex):
            raise FormulaError(f"`{binding.tex}` is on both sides: the formula says nothing", *use.span)
        reads_target = binding.var == formula.marker.target and not binding.assigned
        if reads_target and binding.when != "before":
            hint = 'say in the table that it is the earlier value: when = "before"'
            raise FormulaError(f"`{binding.tex}` stands for what this line assigns", *use.span, hint)


def _located(marker: Marker, notation: Notation, error: FormulaError, unread: Mapping[tuple[str, str], int]) -> Problem:
    """The fault as a problem; an unknown symbol comes with the entry to paste, or with what keeps it unknown."""
    if error.message != "UNKNOWN":
        return marker.problem(error.message, error.start, error.end, hint=error.hint, level=2)
    tex = marker.tex[error.start : error.end]
    left, _ = split_equation(marker.tex)
    if normal(tex) == " ".join(token.text for token in left):
        message = f"`{tex}` is on both sides: an earlier value needs a symbol of its own"
        return marker.problem(message, error.start, error.end, level=2)
    why = _kept_unknown(tex, marker, notation, unread)
    if why:
        return marker.problem(f"`{tex}` {why}", error.start, error.end, level=2)
    letters = [t.text for t in tokens(tex) if t.scripted and t.kind == "letter" and t.text in notation.axes]
    axes = f', axes = "{" ".join(dict.fromkeys(letters))}"' if letters else ""
    quoted = f"'{tex}'" if "'" not in tex else '"' + tex.replace("\\", "\\\\") + '"'
    table = f'[functions."{marker.scope}"]' if "." in marker.scope else f"[functions.{marker.scope}]"
    hint = f'if it stands for a variable, paste into {notation.path.name}:\n  {table}\n  {quoted} = {{ var = "'
    called = "(" in marker.tex[error.end : error.end + 1] and called_name(marker)
    axes = ', shape = "function"' if called else axes
    hint += f'{called or nearest(tex, marker) or "..."}"{axes}, text = "..." }}'
    hint = _other_way(tex, notation.visible(marker.scope, whole=marker.whole).values()) or hint
    return marker.problem(f"`{tex}` is not defined", error.start, error.end, hint=hint, level=2)


def _kept_unknown(tex: str, marker: Marker, notation: Notation, unread: Mapping[tuple[str, str], int]) -> str:
    """Why a symbol is unknown although somebody defined it."""
    line = unread.get((marker.scope, normal(tex)))
    if line is not None:
        return f"is what line {line} computes, whose formula could not be read"
    for (scope, refused), place in notation.refused.items():
        if scope in ("", marker.scope, f"{marker.scope}()") and f"{normal(refused)} ".startswith(f"{normal(tex)} "):
            return f"is refused in {notation.path.name}, line {place}"
    return ""


def _other_way(tex: str, known: Iterable[Binding]) -> str:
    """How to write what looks like a symbol and is not one."""
    found = tokens(tex)
    if found[0].text in ("\\partial", "\\nabla"):
        return "a derivative is written out: what it is, not what it is of"
    if tex in ("i", "j"):
        return "the imaginary unit is \\mathrm{i}; an index is explained under [axes]"
    entry = re.fullmatch(r"(.+?)_\{?(\d)\}?", tex)
    arrays = [binding for binding in known if len(binding.axes or ()) == 1 and binding.slots]
    array = next((b for b in arrays if entry and normal(b.tex.partition("_")[0]) == normal(entry[1])), None)
    if entry and array:
        places = sorted({int(entry[2]), max(int(entry[2]) - 1, 0)})
        said = " or ".join(f'var = "{array.var}[{place}]"' for place in places)
        return f"an entry of `{array.tex}` is a symbol of its own: '{tex}' = {{ {said}, text = \"...\" }}"
    return ""


def _unused(notation: Notation, formulas: Sequence[Formula], problems: Sequence[Problem]) -> list[Problem]:
    """Entries that no formula needs. Unknown where a formula could not be read."""
    if any(problem.level in (1, 2) for problem in problems):
        return []
    return [
        Problem(notation.path, b.line, 0, f"`{b.tex}` is used by no formula: remove it", width=len(b.tex) + 2, level=2)
        for entries in notation.symbols.values()
        for b in entries.values()
        if not b.used
    ]


def _anchor(marker: Marker, formulas: Iterable[Formula]) -> str:
    """`f-gae-a-t`: from the function and the left-hand side, numbered where two are alike."""
    left, _, _ = marker.tex.partition("=")
    left = re.sub(r"\\(mathcal|mathrm|mathbf|operatorname|text)\b", "", left)
    scope = f"{marker.scope} result" if marker.whole else marker.scope
    words = re.sub(r"[^A-Za-z0-9]+", "-", f"{scope} {left}".replace("'", " prime ")).strip("-").lower()
    taken = {formula.anchor for formula in formulas}
    anchor, number = f"f-{words}", 1
    while anchor in taken:
        number += 1
        anchor = f"f-{words}-{number}"
    return anchor


def symbol_at(tex: str, bindings: Iterable[Binding], axes: Iterable[str]) -> Use | None:
    """The symbol that a text is, if it is one."""
    found = tokens(tex)
    match = longest(found, 0, bindings, set(axes))
    return match[0] if match and match[1] == len(found) else None
