"""`mathdoc explain FILE:LINE`: how a formula was read, what its symbols stand for, where the sides part."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from mathdoc.capture import Sample
from mathdoc.check import PRECISIONS, run
from mathdoc.evaluate import Evaluation
from mathdoc.extract import Marker, Source, package_sources
from mathdoc.formula import Formula, understand
from mathdoc.named import COLUMN, ROW, Array, Named, arranged
from mathdoc.notation import Binding, read_notation
from mathdoc.problem import FormulaError, MathdocError, Problem
from mathdoc.settings import Settings
from mathdoc.spelled import spelled
from mathdoc.tree import Number, Use, walk
from mathdoc.verify import Verdict, verify


def explained(settings: Settings, path: Path, line: int) -> tuple[str, bool]:
    """The explanation as text, and whether the formula holds."""
    source, marker = _found(settings, path, line)
    formulas, problems = understand(source, read_notation(settings.notation, source.module))
    formula = next((formula for formula in formulas if formula.marker is marker), None)
    if formula is None or formula.tree is None:
        return "\n\n".join([_title(settings, marker), *_about(marker, problems)]), formula is not None
    probes = {precision: run(settings, [formula], precision)[0] for precision in PRECISIONS}
    verdict = verify(formula, probes)
    blocks = [_title(settings, marker), f"read as\n    {formula.left.tex} = {spelled(formula.tree, marker.tex)}"]
    sample = _worst(formula, probes["float64"].samples)
    blocks.append("symbols\n" + "\n".join(_symbols(formula, sample)))
    if sample is not None:
        blocks.append("\n".join(_values(formula, sample)))
    blocks.append(f"{verdict.status}: {_evidence(verdict)}" if not verdict.problems else verdict.status)
    return "\n\n".join([*blocks, *map(str, verdict.problems)]), not verdict.problems


def _found(settings: Settings, path: Path, line: int) -> tuple[Source, Marker]:
    """The marker on a line, or whose statement the line belongs to."""
    sources = [source for source in package_sources(settings.package) if source.path.resolve() == path.resolve()]
    if not sources:
        raise MathdocError(f"{path} is no file of the package {settings.package.name}.")
    for marker in sources[0].markers:
        if line in (marker.line, *marker.lines):
            return sources[0], marker
    lines = [marker.line for marker in sources[0].markers]
    if not lines:
        raise MathdocError(f"{path} has no formula: write one above a statement, `# LaTeX: y = a x + b`.")
    nearest = min(lines, key=lambda other: abs(other - line))
    raise MathdocError(f"Line {line} of {path} has no formula; the nearest is on line {nearest}.")


def _title(settings: Settings, marker: Marker) -> str:
    place = f"{marker.path.resolve().relative_to(settings.root.resolve())}:{marker.line}"
    where = f", in {marker.scope}" if marker.scope else ""
    code = ast.unparse(marker.value or marker.statement) if marker.whole else ast.unparse(marker.statement)
    return f"{place}{where}\n    {marker.tex}\n    {code}"


def _about(marker: Marker, problems: Sequence[Problem]) -> list[str]:
    """What is said of a formula that could not be read, or is prose."""
    said = [str(problem) for problem in problems if problem.path == marker.path and problem.line == marker.line]
    return said or [f"prose: {marker.reason}"]


# --- symbols ----------------------------------------------------------------------------------------------------


def _symbols(formula: Formula, sample: Sample | None) -> Iterator[str]:
    """A row for each symbol: what it stands for, its shape by name, the range of its values, its meaning."""
    rows = [_row(formula.left, sample.result if sample else None)]
    rows += [_row(binding, sample.values.get(binding) if sample else None) for binding in formula.bindings]
    rows[0] = (*rows[0][:-1], f"{rows[0][-1]} (assigned by the line)".strip())
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        yield "    " + "  ".join(text.ljust(width) for text, width in zip(row, [*widths, 0], strict=True)).rstrip()


def _row(binding: Binding, values: Array | None) -> tuple[str, str, str, str, str]:
    if values is None:
        return binding.tex, binding.var, " ".join(binding.axes or ()), "no value", binding.text
    named = arranged(binding.axes or (), values)
    but = f", but axes {' '.join(binding.axes)}" if binding.axes else ""
    shape = _shape(named) if named is not None else f"shape {values.shape}{but}"
    return binding.tex, binding.var, shape, _range(values), binding.text


def _shape(named: Named) -> str:
    sizes = ", ".join(f"{axis}={size}" for axis, size in named.sizes().items())
    return f"[{sizes}]" if sizes else "a number"


def _range(values: Array) -> str:
    if values.size == 1:
        return f"{values.reshape(-1)[0]:.6g}"
    return f"{values.min():.4g} .. {values.max():.4g}"


# --- values -----------------------------------------------------------------------------------------------------


def _worst(formula: Formula, samples: Sequence[Sample]) -> Sample | None:
    """The execution in which the sides differ most; the first where they cannot be compared."""
    gaps = [_gap(formula, sample) for sample in samples]
    if not samples:
        return None
    return max(zip(gaps, samples, strict=True), key=lambda pair: np.nanmax(pair[0][0], initial=0.0))[1]


def _gap(formula: Formula, sample: Sample) -> tuple[Array, Named | None]:
    """How far the sides are apart at each place, and the formula's value; no place where the shapes do not fit."""
    assert formula.tree is not None
    found = arranged(formula.left.axes or (), sample.result)
    try:
        value = Evaluation(sample.values, sample.sizes).run(formula.tree)
    except FormulaError:
        return np.zeros(0), None
    if found is None or set(found.axes) != set(value.axes) or value.over(found.axes).shape != found.values.shape:
        return np.zeros(0), value
    return np.abs(value.over(found.axes) - found.values), value


def _values(formula: Formula, sample: Sample) -> Iterator[str]:
    """Both sides where they differ most, and the parts of the formula there."""
    gap, value = _gap(formula, sample)
    found = arranged(formula.left.axes or (), sample.result)
    if value is None or found is None or not gap.size:
        yield f"the line gives shape {sample.result.shape}" + (f", the formula {_shape(value)}" if value else "")
        return
    place = np.unravel_index(int(np.argmax(np.nan_to_num(gap, nan=np.inf))), gap.shape)
    at = dict(zip(found.axes, map(int, place), strict=True))
    where = ", ".join(f"{axis}={index}" for axis, index in at.items())
    yield f"values in float64{f', at {where}' if where else ''}, where the two sides differ most"
    yield f"    the line gives     {found.values[place]:.12g}"
    yield f"    the formula gives  {_at(value, at)}"
    yield f"    difference         {gap[place]:.3g}"
    yield "parts of the formula there"
    yield from _parts(formula, sample, at)


def _parts(formula: Formula, sample: Sample, at: dict[str, int]) -> Iterator[str]:
    """The value of each part of the right-hand side, the outer ones first."""
    assert formula.tree is not None
    evaluation = Evaluation(sample.values, sample.sizes)
    evaluation.run(formula.tree)
    outside = {axis: place for axis, place in at.items() if axis not in (ROW, COLUMN)}  # a product has other rows
    seen: dict[str, str] = {}
    for node in walk(formula.tree):
        text = formula.marker.tex[slice(*node.span)]
        if node.span == (0, 0) or isinstance(node, Number) or text in seen:
            continue
        if isinstance(node, Use) and any(index.shift for index in node.indices):
            continue
        seen[text] = _at(evaluation.value(node), at if node is formula.tree else outside)
    width = max((len(text) for text in seen), default=0)
    for text, said in seen.items():
        yield f"    {text.ljust(width)}  {said}"


def _at(value: Named, at: dict[str, int]) -> str:
    """The value at a place; a range over the indices that the place does not fix."""
    places = tuple(at.get(axis, slice(None)) for axis in value.axes)
    values = np.asarray(value.values[places])
    free = [axis for axis in value.axes if axis not in at]
    return f"{values.item():.12g}" if not free else f"{_range(values)} over {', '.join(free)}"


def _evidence(verdict: Verdict) -> str:
    seen = ", ".join(f"{count} times in {precision}" for precision, count in verdict.samples.items())
    compared = "" if verdict.gradient is None else "; gradient compared"
    return f"the line was seen {seen}; {verdict.rejected} of {verdict.mutants} mutants rejected{compared}"
