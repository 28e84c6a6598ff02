"""Level 3: is the right-hand side, evaluated on what the line saw, what the line computed? And does a pass mean it?"""

from dataclasses import dataclass, field, replace
from itertools import combinations, permutations

import numpy as np

from mathdoc.blind import blind_spots
from mathdoc.capture import Probe, Sample
from mathdoc.evaluate import Evaluation
from mathdoc.formula import Formula
from mathdoc.gradient import gradient_difference, slopes
from mathdoc.mutate import Mutant, equivalent, mutants
from mathdoc.named import Array, Named, arranged
from mathdoc.notation import Binding
from mathdoc.problem import FormulaError, Problem, ShapeError
from mathdoc.repair import repair
from mathdoc.rounding import rounding
from mathdoc.said import NUMBER
from mathdoc.shapes import TAIL
from mathdoc.tree import Call, Cases, Indicator, Member, Node, Reduce, Use, free_axes, walk

RELATIVE = {"float64": 1e-9, "float32": 2e-5}
ABSOLUTE = {"float64": 1e-12, "float32": 1e-6}

SMALL = 1e-3
"""In quantities of SI units, a result far below one is no rounding error: it is compared by its own size."""

DIFFERENT = 1e-4
"""Gradients that differ by more, relatively, are not the same; a stop-gradient more or less changes them far more."""

BOTH_SIDES = {
    "max": {"left", "right"},
    "min": {"left", "right"},
    "clip": {"inside", "at the lower end", "at the upper end"},
}


@dataclass
class Verdict:
    """What the check of one formula found."""

    formula: Formula
    status: str = "prose"
    """verified, slack, prose or refused."""
    samples: dict[str, int] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)
    mutants: int = 0
    rejected: int = 0
    gradient: float | None = None
    compared: set[Binding] = field(default_factory=set)
    """The symbols in which the gradients were compared."""
    problems: list[Problem] = field(default_factory=list)
    blind: list[Problem] = field(default_factory=list)
    """What the check could not see, although the formula passed."""


def verify(formula: Formula, probes: dict[str, Probe]) -> Verdict:
    """All of level 3 for one formula, from what was caught at its line in each precision."""
    verdict = Verdict(formula)
    if formula.tree is not None:
        verdict.status = "refused"
        try:
            _verify(verdict, formula.tree, probes)
        except Exception as error:  # a fault of the check itself concerns this formula, not the others
            verdict.status = "refused"
            verdict.problems.append(formula.marker.problem(f"this formula could not be checked: {error!r}", level=3))
    return verdict


def _verify(verdict: Verdict, tree: Node, probes: dict[str, Probe]) -> None:
    formula, marker = verdict.formula, verdict.formula.marker
    for precision, probe in probes.items():
        if not probe.samples:
            reason = probe.failure or probe.skipped or "the exercises never ran it"
            verdict.problems.append(marker.problem(f"this line was not seen in {precision}: {reason}", level=3))
            return
        try:
            probe.samples = _settle_axes(formula, tree, probe.samples)
            _compare(verdict, precision, tree, probe)
        except FormulaError as error:
            hint = error.hint or (_ends(tree) if isinstance(error, ShapeError) else "")
            verdict.problems.append(marker.problem(error.message, error.start, error.end, hint=hint, level=3))
        if verdict.problems:
            return
    _guard(verdict, tree, probes["float64"].samples)
    verdict.problems += [
        marker.problem(f"the line changes `{binding.var}` in place, and `{binding.tex}` is only read here", level=3)
        for binding in formula.bindings
        if binding in probes["float64"].changed
    ]
    if not verdict.problems:
        verdict.status = "slack" if marker.slack else "verified" if verdict.mutants else "prose"
        verdict.blind = blind_spots(formula, probes["float64"], verdict.compared)


def difference(
    tree: Node, left: Binding, sample: Sample, precision: str, slack: dict[str, float] | None = None
) -> float:
    """The largest difference in units of what is allowed: above 1 is too much. A value that is not finite is one,
    unless both are the same infinity.
    """
    value = Evaluation(sample.values, sample.sizes).run(tree)
    expected, found = _aligned(left, value, sample.result), sample.result
    endless = np.isinf(found) & (expected == found)
    if not np.all(np.isfinite(expected) & np.isfinite(found) | endless):
        return np.inf
    expected, found = np.where(endless, 0.0, expected), np.where(endless, 0.0, found)
    absolute = ABSOLUTE[precision]
    if precision == "float64" and 0 < np.max(np.abs(found), initial=0.0) < SMALL:
        absolute = min(absolute, rounding(tree, sample))
    allowed = absolute + max(RELATIVE[precision], (slack or {}).get(precision, 0.0)) * np.abs(found)
    return float(np.max(np.abs(expected - found) / allowed, initial=0.0))


def relative_error(tree: Node, left: Binding, sample: Sample, precision: str) -> float:
    """The largest relative difference; what is small beside the absolute tolerance counts as that."""
    return difference(tree, left, sample, precision) * RELATIVE[precision]


def _aligned(left: Binding, value: Named, result: Array) -> Array:
    """The formula's value with its axes in the order of the array that the line assigned."""
    found = arranged(left.axes or (), result)
    if found is None or set(found.axes) != set(value.axes):
        names = set(found.axes) if found else set()
        extra = sorted(set(value.axes) - names)
        raise FormulaError(f"the index {extra[0]} is left free" if extra else "an index of the left-hand side is lost")
    expected = value.over(found.axes)
    if expected.shape != found.values.shape:
        shape = _shape(found.axes, expected)
        raise ShapeError(f"the formula's value has shape {shape}, and `{left.var}` has {result.shape}")
    return expected.reshape(result.shape)


def _shape(axes: tuple[str, ...], values: Array) -> str:
    return "(" + ", ".join(f"{axis}={size}" for axis, size in zip(axes, values.shape, strict=True)) + ")"


def _settle_axes(formula: Formula, tree: Node, samples: list[Sample]) -> list[Sample]:
    """The order of the left-hand side's axes, known from the sizes, and the samples that decide it."""
    telling, why = [], ""
    for sample in samples:
        sample.sizes = _counted(formula, tree, sample.result)
        evaluation = Evaluation(sample.values, sample.sizes)
        value = evaluation.run(tree)
        uninformative = _uninformative(tree, evaluation.sizes)
        if uninformative:
            why = uninformative
            continue
        telling.append(sample)
        if formula.left.axes is None:
            orders = [
                order
                for found in permutations(sorted(formula.left.letters))
                if _fits(order := (*found, *TAIL[formula.left.shape]), value, sample.result)
            ]
            if len(orders) != 1:
                shape = _shape(value.axes, value.values)
                message = f"`{formula.left.var}` has shape {sample.result.shape}, the formula {shape}"
                raise ShapeError(message)
            formula.left.axes = orders[0]
    if not telling:
        raise FormulaError(f"every exercise of this line shows too little: {why}")
    return telling


def _counted(formula: Formula, tree: Node, result: Array) -> dict[str, int]:
    """The sizes of indices that the right-hand side only counts with, from what the line assigned."""
    carried = {index.letter for use in formula.uses for index in use.indices}
    found = arranged(formula.left.axes or (), result)
    sizes = found.sizes() if found is not None else {}
    return {letter: size for letter, size in sizes.items() if letter in free_axes(tree) - carried}


def _ends(tree: Node) -> str:
    """How to say that a shifted index goes round, if there is one."""
    shifted = [i for node in walk(tree) if isinstance(node, Use) for i in node.indices if i.shift and not i.round]
    if not shifted:
        return ""
    said = f"{shifted[0].letter}{shifted[0].shift:+d}"
    return (
        f"`{said}` stays inside the array; if it goes round, write `({said}) \\bmod N`, N being the number of entries"
    )


def _fits(order: tuple[str, ...], value: Named, result: Array) -> bool:
    found = arranged(order, result)
    return (
        found is not None and set(found.axes) == set(value.axes) and value.over(found.axes).shape == found.values.shape
    )


def _uninformative(tree: Node, sizes: dict[str, int]) -> str:
    """Why sizes like these could hide an exchanged axis."""
    for letter, size in sizes.items():
        alike = [other for other in sizes if other != letter and sizes[other] == size and _both(tree, letter, other)]
        if alike:
            return f"{letter} and {alike[0]} both run over {size} values"
        if size < 2:
            return f"{letter} runs over {size} value"
    return ""


def _both(tree: Node, one: str, other: str) -> bool:
    """Two letters for one axis (as in a softmax) run over the same values and may be alike."""
    axes: dict[str, set[tuple[Binding, str]]] = {}
    for node in walk(tree):
        for index in getattr(node, "indices", ()):
            axes.setdefault(index.letter, set()).add((node.binding, index.axis))  # type: ignore[attr-defined]
    limits = {(n.letter, other) for n in walk(tree) if isinstance(n, Reduce) for other in n.beside}
    limits |= {(index.letter, index.other) for n in walk(tree) if isinstance(n, Use) for index in n.indices}
    if {(one, other), (other, one)} & limits or not (axes.get(one) and axes.get(other)):
        return False
    return not axes.get(one, set()) & axes.get(other, set())


def _compare(verdict: Verdict, precision: str, tree: Node, probe: Probe) -> None:
    formula = verdict.formula
    marker = formula.marker
    verdict.samples[precision] = len(probe.samples)
    worst = max(probe.samples, key=lambda s: difference(tree, formula.left, s, precision, marker.slack))
    verdict.error[precision] = max(relative_error(tree, formula.left, sample, precision) for sample in probe.samples)
    if difference(tree, formula.left, worst, precision, marker.slack) > 1:
        message, hint = _explained(formula, tree, worst, precision, probe)
        verdict.problems.append(marker.problem(message, hint=hint, level=3))
    if precision in marker.slack and verdict.error[precision] < 0.1 * RELATIVE[precision]:
        verdict.problems.append(marker.problem("this formula is exact: take its slack away", level=3))


def _explained(formula: Formula, tree: Node, sample: Sample, precision: str, probe: Probe) -> tuple[str, str]:
    """Where formula and line differ most, and which small change would make them agree."""
    value = Evaluation(sample.values, sample.sizes).run(tree)
    expected = _aligned(formula.left, value, sample.result)
    gap = np.abs(expected - sample.result)
    place = np.unravel_index(int(np.argmax(np.nan_to_num(gap, nan=np.inf))), gap.shape)
    at = ", ".join(map(str, place))
    error = relative_error(tree, formula.left, sample, precision)
    message = (
        f"the formula gives {expected[place]:.9g} and the line {sample.result[place]:.9g}"
        f"{f' at [{at}]' if at else ''} (relative difference {error:.1e}, {precision})"
    )
    if np.isnan(expected[place]) and np.isnan(sample.result[place]):
        return f"the line gives nan{f' at [{at}]' if at else ''}", "choose exercises for which it is a number"
    candidates = [s for s in probe.samples if s.values.keys() == sample.values.keys()]
    found = repair(formula, tree, lambda t: all(_holds(t, formula.left, s, precision) for s in candidates), sample)
    if not found.startswith("it would hold"):
        found = _exchanged(formula, tree, candidates, precision) or "\n".join(filter(None, (found, _ends(tree))))
    return message, found


def _exchanged(formula: Formula, tree: Node, samples: list[Sample], precision: str) -> str:
    """Which two symbols would make the formula hold if each stood for the other's variable."""
    for one, other in combinations(formula.bindings, 2):
        turned = [replace(s, values={**s.values, one: s.values[other], other: s.values[one]}) for s in samples]
        if all(_holds(tree, formula.left, sample, precision) for sample in turned):
            return f"it would hold if `{one.tex}` were `{other.var}` and `{other.tex}` were `{one.var}`: see the table"
    return ""


def _holds(tree: Node, left: Binding, sample: Sample, precision: str) -> bool:
    try:
        return difference(tree, left, sample, precision) <= 1
    except (FormulaError, KeyError):
        return False


# --- guards: a pass must mean something -------------------------------------------------------------------------


def _guard(verdict: Verdict, tree: Node, samples: list[Sample]) -> None:
    marker = verdict.formula.marker
    one_sided = _one_sided(tree, samples)
    for message, span, hint in [
        *one_sided,
        *_insensitive(verdict.formula, tree, samples),
        *_wrong_texts(verdict.formula, samples),
        *_gradient_faults(verdict, tree, samples),
        *(() if one_sided else _survivors(verdict, tree, samples)),  # what lies on the other side would all survive
    ]:
        verdict.problems.append(marker.problem(message, *span, hint=hint, level=3))


Fault = tuple[str, tuple[int, int], str]


def _one_sided(tree: Node, samples: list[Sample]) -> list[Fault]:
    """Every min, max, clip, set and indicator must have gone both ways."""
    branches: dict[Node, set[str]] = {}
    for sample in samples:
        Evaluation(sample.values, sample.sizes, branches=branches).run(tree)
    faults = []
    for node in walk(tree):
        wanted: set[str] = set()
        if isinstance(node, Call):
            wanted = BOTH_SIDES.get(node.function, set())
        elif isinstance(node, Indicator):
            wanted = {"true", "false"}
        elif isinstance(node, Cases):
            wanted = {f"line {number + 1}" for number in range(len(node.values))}
        elif isinstance(node, Member) or (isinstance(node, Reduce) and node.member):
            wanted = {"inside", "outside"}
        missing = sorted(wanted - branches.get(node, set()))
        if missing:
            hint = "extend the exercises until they do"
            faults.append((f"the exercises never took this to the side `{missing[0]}`", node.span, hint))
    return faults


def _insensitive(formula: Formula, tree: Node, samples: list[Sample]) -> list[Fault]:
    """Changing any symbol must change the result."""
    faults = []
    for binding in formula.bindings:
        changed = False
        for sample in samples:
            before = sample.values[binding]
            moved = np.where(before == 0, 1.0, before * np.linspace(2, 3, before.size).reshape(before.shape))
            for new in (moved, -moved):
                other = replace(sample, values={**sample.values, binding: new})
                changed = changed or not _holds(tree, formula.left, other, "float64")
        if not changed:
            span = next(use.span for use in formula.uses if use.binding is binding)
            faults.append((f"`{binding.tex}` can be changed without changing the result", span, ""))
    return faults


def _wrong_texts(formula: Formula, samples: list[Sample]) -> list[Fault]:
    """A meaning that begins with a number, as in `10: largest value`, is the value that the code has."""
    faults = []
    for binding in formula.bindings:
        said = NUMBER.match(binding.text)
        found = {value.item() for sample in samples for value in sample.values[binding].ravel()}
        if said and not all(np.isclose(value, float(said[1]), rtol=1e-9, atol=0.0) for value in found):
            seen = next(value for value in found if value != float(said[1]))
            span = next(use.span for use in formula.uses if use.binding is binding)
            faults.append((f"the table says that `{binding.tex}` is {said[1]}, and it is {seen:g}", span, ""))
    return faults


def _gradient_faults(verdict: Verdict, tree: Node, samples: list[Sample]) -> list[Fault]:
    """A line must have the gradient that its formula says."""
    formula = verdict.formula
    worst: tuple[float, str] = (0.0, "")
    compared = [sample for sample in samples if sample.gradients]
    for sample in compared:
        found = slopes(tree, formula.left, sample)
        verdict.compared |= {slope.binding for slope in found if slope.telling}
        worst = max([worst, *((slope.difference, slope.binding.tex) for slope in found)])
    if compared:
        verdict.gradient = worst[0]
    if worst[0] > DIFFERENT:
        hint = "either one of them stops the gradient (\\operatorname{sg} in the formula is .detach()),\n"
        hint += "or they are equal only for values like those of the exercises"
        return [(f"value and line agree, but their gradients in `{worst[1]}` differ", (0, 0), hint)]
    return []


def _survivors(verdict: Verdict, tree: Node, samples: list[Sample]) -> list[Fault]:
    """Every mutant must be rejected."""
    faults = []
    for mutant in mutants(tree):
        if _unseen(mutant, verdict) or equivalent(mutant, tree, samples[0]):
            continue
        verdict.mutants += 1
        if _rejected(mutant, verdict, samples):
            verdict.rejected += 1
        else:
            hint = "extend the exercises, or write the formula so that each part of it matters"
            faults.append((f"with {mutant.what} here the formula would pass as well", mutant.span, hint))
    return faults


def _unseen(mutant: Mutant, verdict: Verdict) -> bool:
    """Dropping a stop-gradient changes no value: it counts where gradients were compared."""
    return mutant.what == "sg dropped" and verdict.gradient is None


def _rejected(mutant: Mutant, verdict: Verdict, samples: list[Sample]) -> bool:
    left = verdict.formula.left
    slack = verdict.formula.marker.slack
    for sample in samples:
        try:
            if difference(mutant.tree, left, sample, "float64", slack) > 1:
                return True
        except (FormulaError, KeyError):
            return True
    compared = [sample for sample in samples if sample.gradients]
    return any(gradient_difference(mutant.tree, left, sample)[0] > DIFFERENT for sample in compared)
