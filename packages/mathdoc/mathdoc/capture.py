"""The values that marked lines see, caught by rewriting modules as they are imported, in the check run only.

Before a marked statement each symbol on the right is evaluated and copied at once; after it, what was assigned. The
package's files and its production code are not touched.
"""

import ast
import copy
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from mathdoc.backend import PUT, NotAnArrayError, gradients, has_gradient, on_arrays, put, to_array, with_entries
from mathdoc.extract import PART
from mathdoc.formula import Formula
from mathdoc.named import Array
from mathdoc.notation import Binding

KEPT = 12
"""Executions of a line that are kept: the first half, and of the later ones a random choice."""
WITH_GRADIENTS = 3
HOOK = "__mathdoc__"
Numbers = dict[tuple[int, int], list[int]]
"""The probes of each marked statement, by its place; a function that returns several values has several."""
RETURNED = "__mathdoc_returned__"


@dataclass
class Sample:
    """One execution of a line."""

    values: dict[Binding, Array]
    result: Array
    weights: Array | None = None
    gradients: dict[Binding, Array] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """How many values an index takes that only the left-hand side has as an axis."""
    raw: dict[Binding, Any] = field(default_factory=dict)
    """What the values were copied from, until the line has run."""


@dataclass
class Probe:
    """What is caught at one marker."""

    formula: Formula
    codes: dict[Binding, CodeType] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    runs: int = 0
    differentiated: int = 0
    skipped: str = ""
    """Why an execution could not be looked at."""
    failure: str = ""
    uncompared: dict[Binding, str] = field(default_factory=dict)
    """Symbols that have gradients, and why those were not compared."""
    changed: set[Binding] = field(default_factory=set)
    """Symbols whose arrays the line changed in place."""
    branches: dict[tuple[int, bool], bool] = field(default_factory=dict)
    """Of a function with a formula above it: the line of each condition with each of its outcomes, and whether it
    ever had it."""

    def __post_init__(self) -> None:
        if self.formula.marker.whole:
            lines = [node.lineno for node in conditions(self.formula.marker.statement)]
            self.branches = {(line, outcome): False for line in lines for outcome in (True, False)}
        wanted = [*self.formula.bindings, *self.formula.functions, *self.formula.others]
        self.codes = {binding: compile(binding.var, "<notation>", "eval") for binding in wanted}


class Recorder:
    """The hooks that rewritten modules call."""

    def __init__(self, formulas: Sequence[Formula]) -> None:
        self.probes = [Probe(formula) for formula in formulas]
        self.pending: dict[int, list[Sample | None]] = {}
        self.random = random.Random(0)
        self.recording = False

    def before(self, numbers: Sequence[int], scope: dict[str, Any], local: dict[str, Any]) -> None:
        """Copy what the right-hand side reads, and differentiate the line on it, which may overwrite what it reads."""
        for number in numbers if self.recording else ():
            self._before(number, scope, local)

    def after(self, numbers: Sequence[int], scope: dict[str, Any], local: dict[str, Any]) -> None:
        """Copy what the statement assigned."""
        for number in numbers if self.recording else ():
            self._after(number, scope, local)

    def _before(self, number: int, scope: dict[str, Any], local: dict[str, Any]) -> None:
        probe = self.probes[number]
        raw: dict[Binding, Any] = {}
        values = self._read(probe, scope, local, raw)
        sample = None if values is None else Sample(values, np.zeros(()), raw=raw)
        if sample is not None and probe.differentiated < WITH_GRADIENTS:
            self.recording = False
            try:
                self._differentiate(probe, sample, scope, local)
            finally:
                self.recording = True
        self.pending.setdefault(number, []).append(sample)

    def _after(self, number: int, scope: dict[str, Any], local: dict[str, Any]) -> None:
        if not self.pending.get(number):
            return
        sample, probe = self.pending[number].pop(), self.probes[number]
        if sample is None:
            return
        marker = probe.formula.marker
        probe.runs += 1
        raw, sample.raw = sample.raw, {}
        probe.changed |= {binding for binding, found in raw.items() if _differs(found, sample.values[binding])}
        position = len(probe.samples) if len(probe.samples) < KEPT else self.random.randrange(probe.runs)
        if position >= KEPT or (len(probe.samples) == KEPT and position < KEPT // 2):
            return
        try:
            found = eval(RETURNED if marker.target == "return" else marker.target, scope, local)
            sample.result = to_array(part_of(found, marker.part) if marker.whole else found)
        except NotAnArrayError as error:
            probe.skipped = str(error)
            return
        probe.samples[position : position + 1] = [sample]

    def reached(self, numbers: Sequence[int], line: int, outcome: bool) -> None:
        """A condition had this outcome."""
        for number in numbers if self.recording else ():
            self.probes[number].branches[line, outcome] = True

    def _read(
        self, probe: Probe, scope: dict[str, Any], local: dict[str, Any], raw: dict[Binding, Any]
    ) -> dict[Binding, Array] | None:
        values: dict[Binding, Any] = {}
        functions = probe.formula.functions
        used: list[Any] = []
        for binding, code in probe.codes.items():
            try:
                found = eval(code, scope, local)
                used.append(found)
                values[binding] = on_arrays(found, used) if binding in functions else to_array(found)
                fixed = isinstance(found, (int, float)) or binding in functions
                if binding.var != probe.formula.marker.target and not fixed:
                    raw[binding] = found
            except Exception as error:
                if binding in probe.formula.others:
                    continue
                if isinstance(error, NotAnArrayError):
                    probe.skipped = str(error)
                else:
                    probe.failure = f"`{binding.tex}` is `{binding.var}`, which is not there: {error}"
                return None
        return values

    @staticmethod
    def _differentiate(probe: Probe, sample: Sample, scope: dict[str, Any], local: dict[str, Any]) -> None:
        formula, value = probe.formula, probe.formula.marker.value
        if value is not None and formula.marker.whole:
            value = with_entries(value, [binding.var for binding in formula.smooth])
        names = {f"__leaf_{number}__": binding for number, binding in enumerate(formula.smooth)}
        leaves = {name: binding.var for name, binding in names.items()}
        raw = {binding: eval(probe.codes[binding], scope, local) for binding in formula.smooth}
        smooth = [binding for binding, found in raw.items() if has_gradient(found)]
        why = "its expression is not in the line"
        found = None
        try:
            known = {**local, PART: part_of, PUT: put}
            found = gradients(value, leaves, scope, known) if value is not None and smooth else None
        except Exception as error:  # whatever the line's own code raises when it is computed again
            why = f"computing the line again failed: {error}"
        if found is not None:
            probe.differentiated += 1
            sample.weights = found[0]
            sample.gradients = {names[name]: slope for name, slope in found[1].items()}
            if formula.marker.stopped or _stopped_around(raw.values()):
                sample.gradients = {binding: np.zeros_like(slope) for binding, slope in sample.gradients.items()}
        probe.uncompared |= {binding: why for binding in smooth if binding not in sample.gradients}


def _differs(found: Any, before: Array) -> bool:
    """Whether an array no longer holds what was copied from it."""
    try:
        now = to_array(found)
    except NotAnArrayError:
        return False
    return now.shape != before.shape or not np.array_equal(now, before, equal_nan=True)


def part_of(result: Any, part: tuple[int, int]) -> Any:
    """One of the values that a function returns, which may be in tuples, lists and dictionaries."""
    number, count = part
    if count == 1:
        return result
    found = list(_flattened(result))
    if len(found) != count:
        raise NotAnArrayError(f"the function returns {len(found)} values and has {count} formulas")
    return found[number]


def _flattened(result: Any) -> Iterator[Any]:
    inner = result.values() if isinstance(result, dict) else result if isinstance(result, (tuple, list)) else None
    if inner is None:
        yield result
    else:
        for value in inner:
            yield from _flattened(value)


def _stopped_around(values: Iterable[Any]) -> bool:
    """Whether gradients are switched off around the line, although something in it has one."""
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and not torch.is_grad_enabled()
        and any(getattr(value, "requires_grad", False) for value in values)
    )


class _Rewriter(ast.NodeTransformer):
    """Calls of the hooks around marked statements."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    def visit(self, node: ast.AST) -> Any:
        """The statement between two calls, if it is marked."""
        numbers = self.numbers.get((node.lineno, node.col_offset), []) if isinstance(node, ast.stmt) else []
        if not numbers:
            return self.generic_visit(node)
        before, after = _call("before", numbers), _call("after", numbers)
        if isinstance(node, ast.FunctionDef):
            return _watched(_Branches(numbers).visit(self.generic_visit(node)), before, after)
        if isinstance(node, ast.Return) and node.value is not None:
            kept = ast.Assign([ast.Name(RETURNED, ast.Store())], node.value)
            statements: list[ast.stmt] = [before, kept, after, ast.Return(ast.Name(RETURNED, ast.Load()))]
        else:
            assert isinstance(node, ast.stmt)
            statements = [before, node, after]
        return [ast.fix_missing_locations(ast.copy_location(statement, node)) for statement in statements]


def rewritten(tree: ast.Module, recorder: Recorder) -> ast.Module:
    """A module's syntax with the hooks around the marked statements that a recorder watches."""
    module: ast.Module = _Rewriter(_numbered(enumerate(recorder.probes))).visit(tree)
    return module


def _numbered(probes: Iterable[tuple[int, Probe]]) -> Numbers:
    """The probes of each marked statement, by its place."""
    numbers: Numbers = {}
    for number, probe in probes:
        statement = probe.formula.marker.statement
        numbers.setdefault((statement.lineno, statement.col_offset), []).append(number)
    return numbers


def _watched(function: Any, before: ast.stmt, after: ast.stmt) -> ast.FunctionDef:
    """A function with a call of the hooks when it is entered and at each of its returns."""
    start = 1 if ast.get_docstring(function, clean=False) is not None else 0
    body = [_Returns(after).visit(statement) for statement in function.body[start:]]
    flat = [part for found in body for part in (found if isinstance(found, list) else [found])]
    function.body = [*function.body[:start], ast.copy_location(before, function.body[0]), *flat]
    watched: ast.FunctionDef = ast.fix_missing_locations(function)
    return watched


def conditions(function: ast.AST) -> list[ast.If]:
    """The conditions of a function, but for guards, which only raise an error."""
    found = [node for node in ast.walk(function) if isinstance(node, ast.If)]
    return [node for node in found if node.orelse or not all(isinstance(part, ast.Raise) for part in node.body)]


class _Branches(ast.NodeTransformer):
    """Tells a hook which way each condition goes."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers

    def visit_If(self, node: ast.If) -> ast.If:
        """Both ways."""
        self.generic_visit(node)
        for outcome, body in ((True, node.body), (False, node.orelse)):
            call = ast.parse(f"{HOOK}.reached({self.numbers}, {node.lineno}, {outcome})").body[0]
            body.insert(0, ast.copy_location(call, node))
        return node


class _Returns(ast.NodeTransformer):
    """Keeps what a function returns, and calls a hook; functions inside it are left alone."""

    def __init__(self, after: ast.stmt) -> None:
        self.after = after

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Not this one."""
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        """Nor this."""
        return node

    def visit_Return(self, node: ast.Return) -> Any:
        """The value under a name, the hook, the value."""
        if node.value is None:
            return node
        kept = ast.Assign([ast.Name(RETURNED, ast.Store())], node.value)
        statements = [kept, copy.deepcopy(self.after), ast.Return(ast.Name(RETURNED, ast.Load()))]
        return [ast.fix_missing_locations(ast.copy_location(statement, node)) for statement in statements]


def _call(name: str, numbers: list[int]) -> ast.stmt:
    return ast.parse(f"{HOOK}.{name}({numbers}, globals(), locals())").body[0]


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module with its marked statements rewritten; nothing is cached."""

    def __init__(self, name: str, path: str, recorder: Recorder, numbers: Numbers) -> None:
        super().__init__(name, path)
        self.recorder = recorder
        self.numbers = numbers

    def get_code(self, fullname: str) -> CodeType:
        """The rewritten module."""
        tree = ast.parse(Path(self.path).read_text(), self.path)
        return compile(_Rewriter(self.numbers).visit(tree), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        """With the hooks at hand."""
        module.__dict__[HOOK] = self.recorder
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        files: dict[str, list[tuple[int, Probe]]] = {}
        for number, probe in enumerate(recorder.probes):
            files.setdefault(str(probe.formula.marker.path.resolve()), []).append((number, probe))
        self.numbers = {path: _numbered(probes) for path, probes in files.items()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A module with markers gets the rewriting loader."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        numbers = self.numbers.get(str(Path(spec.origin).resolve())) if spec and spec.origin else None
        if spec is None or numbers is None or spec.origin is None:
            return None
        loader = _Loader(fullname, spec.origin, self.recorder, numbers)
        return importlib.util.spec_from_file_location(
            fullname, spec.origin, loader=loader, submodule_search_locations=spec.submodule_search_locations
        )


@contextmanager
def rewriting(recorder: Recorder, package: Path) -> Iterator[None]:
    """While it lasts, the package's modules are imported rewritten; afterwards they are forgotten."""
    finder = _Finder(recorder)
    root = str(package.resolve().parent)
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == package.name}
    sys.meta_path.insert(0, finder)
    sys.path.insert(0, root)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.path.remove(root)
        for name in [name for name in sys.modules if name.split(".")[0] == package.name]:
            del sys.modules[name]
        sys.modules.update(before)
