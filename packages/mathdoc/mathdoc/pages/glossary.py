"""The notation glossary: every symbol, what it stands for in the code, what it means, and where it is used."""

from mathdoc.check import Report
from mathdoc.notation import Binding, Notation
from mathdoc.pages.figure import inline
from mathdoc.pages.text import escape
from mathdoc.verify import Verdict


def glossary_page(report: Report, address: str) -> list[str]:
    """The blocks of the glossary. `address` makes a link to a formula from {module} and {anchor}."""
    blocks = [
        "# Notation",
        "Every symbol of every formula: what it stands for in the code, and what it means. One table per module;"
        " a symbol has one meaning in a function. Letters in subscripts name axes:",
        _axes(report),
    ]
    for source in report.sources:
        verdicts = report.of(source.module)
        if verdicts:
            blocks += [f"## `{source.module}`", _table(verdicts, address)]
    return blocks


def _axes(report: Report) -> str:
    axes: dict[str, str] = {}
    for module, notation in report.notations.items():
        if report.of(module):
            axes |= _used_axes(notation)
    rows = "".join(f"<tr><td>{inline(_upright(axis))}</td><td>{escape(text)}</td></tr>" for axis, text in axes.items())
    return (
        f'<table class="glossary"><thead><tr><th>index</th><th>runs over</th></tr></thead><tbody>{rows}</tbody></table>'
    )


def _used_axes(notation: Notation) -> dict[str, str]:
    return {axis: text for axis, text in notation.axes.items() if len(axis) == 1}


def _upright(axis: str) -> str:
    return axis if len(axis) == 1 else rf"\mathrm{{{axis}}}"


def _table(verdicts: list[Verdict], address: str) -> str:
    """Symbols in the order of their first use; those with the same meaning and variable once."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for verdict in verdicts:
        formula = verdict.formula
        link = address.format(module=formula.marker.module, anchor=formula.anchor)
        for binding in [formula.left, *formula.bindings]:
            places.setdefault(_key(binding), []).append(
                f'<a href="{escape(link)}">{escape(formula.marker.scope.split(".")[-1] or "module")}</a>'
            )
    rows = "".join(_row(key, found) for key, found in places.items())
    heading = "<th>symbol</th><th>LaTeX</th><th>in the code</th><th>meaning</th><th>formulas</th>"
    return f'<table class="glossary"><thead><tr>{heading}</tr></thead><tbody>{rows}</tbody></table>'


def _key(binding: Binding) -> tuple[str, str, str]:
    return binding.tex, binding.var, binding.text


def _row(key: tuple[str, str, str], places: list[str]) -> str:
    tex, var, text = key
    where = ", ".join(dict.fromkeys(places))
    code = "returned" if var == "return" else f"<code>{escape(var)}</code>"
    return (
        f"<tr><td>{inline(tex)}</td> <td><code>{escape(tex)}</code></td> <td>{code}</td> <td>{escape(text)}</td> "
        f"<td>{where}</td></tr> "
    )
