"""Names in a table that the code does not have, each with the nearest that it has."""

import ast
import builtins
import difflib
from collections.abc import Iterable, Iterator

from mathdoc.extract import Source
from mathdoc.formula import Formula
from mathdoc.notation import Notation
from mathdoc.problem import Problem


def strange_names(source: Source, notation: Notation, formulas: Iterable[Formula]) -> list[Problem]:
    """Entries whose variable begins with a name that neither their function nor the module has."""
    if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(source.tree)):
        return []
    found = {}
    for formula in formulas:
        scope = formula.marker.scope
        known = set(_names(source.tree, scope))
        for binding in formula.bindings:
            root = next((n.id for n in ast.walk(ast.parse(binding.var)) if isinstance(n, ast.Name)), "")
            if binding.assigned or not root or root in known:
                continue
            near = difflib.get_close_matches(root, known - set(dir(builtins)), 1, 0.4)
            hint = f"the nearest name there is `{near[0]}`" if near else ""
            message = f"`{binding.tex}` stands for `{binding.var}`, and {scope or 'the module'} has no `{root}`"
            width = len(binding.tex) + 2
            found[id(binding)] = Problem(notation.path, binding.line, 0, message, hint, width, level=2)
    return list(found.values())


def _names(tree: ast.Module, scope: str) -> Iterator[str]:
    """Every name that a function can read: its own, those around it, the module's, the built-in ones."""
    yield from dir(builtins)
    around: ast.AST = tree
    for statement in tree.body:
        yield from _bound(statement, inside=not isinstance(statement, (ast.FunctionDef, ast.ClassDef)))
    for part in scope.split(".") if scope else ():
        around = next((n for n in ast.walk(around) if getattr(n, "name", None) == part), around)
        yield from _bound(around, inside=True)


def _bound(tree: ast.AST, *, inside: bool) -> Iterator[str]:
    """The names that a statement binds; `inside` also those in its body."""
    for node in ast.walk(tree) if inside else (tree,):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
