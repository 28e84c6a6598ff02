"""A formula as a reader sees it: rendered, linked to the code, with its badge, its symbols and what to copy."""

from functools import cache

from mathdoc.guess import words
from mathdoc.katex import render, render_linked
from mathdoc.notation import Binding
from mathdoc.pages.text import escape
from mathdoc.verify import Verdict

WORDS = {
    "verified": "verified",
    "slack": "verified with slack",
    "prose": "prose",
    "refused": "refused",
}


def figure(verdict: Verdict, place: str) -> str:
    """The whole figure as HTML. `place` is the address of the line."""
    formula = verdict.formula
    line = formula.marker.statement.lineno
    tools = (
        f'<span class="badge {verdict.status}" title="{escape(evidence(verdict))}">{WORDS[verdict.status]}</span> '
        f'<a class="permalink" href="#{formula.anchor}" title="link to this formula">#</a> '
        f'<a class="place" href="{escape(place)}">line {line}</a> '
        f'<button class="copy" type="button" data-tex="{escape(formula.marker.tex)}">copy LaTeX</button>'
    )
    return (
        f'<figure class="formula" id="{formula.anchor}">'
        f'<div class="rendered" tabindex="0">{linked(verdict)}</div>'
        f'<figcaption><div class="tools">{tools}</div>{_symbols(verdict)}</figcaption></figure>'
    )


def formula_name(verdict: Verdict) -> str:
    """What a formula is called in headings: the function, and what the left-hand side is."""
    formula = verdict.formula
    left = formula.left.text or words(formula.left.var if formula.left.var != "return" else "result")
    function = formula.marker.scope.rpartition(".")[2] or formula.marker.module
    return f"`{function}`: {left}"


def linked(verdict: Verdict) -> str:
    """KaTeX's HTML and MathML with a name and a meaning on each symbol."""
    formula = verdict.formula
    names = symbol_names(verdict)
    tex = formula.marker.tex
    spans = [(*_with_power(tex, formula.left_span), names[formula.left][0])]
    spans += [(*_with_power(tex, use.span), names[use.binding][0]) for use in formula.uses]
    html = render_linked(tex, _disjoint(spans))
    for name, title in names.values():
        html = html.replace(f'data-sym="{name}"', f'data-sym="{name}" title="{escape(title)}"')
    return html


def symbol_names(verdict: Verdict) -> dict[Binding, tuple[str, str]]:
    """A name on the page and a meaning for each symbol of a formula."""
    formula = verdict.formula
    found = [formula.left, *formula.bindings]
    return {binding: (f"{formula.anchor}.{number}", _title(binding)) for number, binding in enumerate(found)}


def _title(binding: Binding) -> str:
    var = "what is returned" if binding.var == "return" else binding.var
    return f"{binding.text or binding.tex} · {var}"


def _with_power(tex: str, span: tuple[int, int]) -> tuple[int, int]:
    """A symbol with a power directly behind it: apart, the two would not be set as one."""
    start, end = span
    if tex[end : end + 1] != "^":
        return span
    if tex[end + 1 : end + 2] == "{":
        return start, tex.index("}", end) + 1
    return start, end + 2


def _disjoint(spans: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    kept: list[tuple[int, int, str]] = []
    for span in sorted(spans):
        if not kept or span[0] >= kept[-1][1]:
            kept.append(span)
    return kept


def evidence(verdict: Verdict) -> str:
    """What stands behind the badge, in one sentence."""
    marker = verdict.formula.marker
    if verdict.status == "prose":
        return f"not checked: {marker.reason}" if marker.reason else "not checked"
    if verdict.status == "refused":
        return "the formula does not hold"
    error = verdict.error.get("float64", 0.0)
    largest = "exact" if error == 0 else f"largest relative error {error:.0e}"
    text = f"{largest} in float64 on {verdict.samples.get('float64', 0)} executions of the line; "
    text += f"{verdict.rejected} of {verdict.mutants} mutants rejected"
    if verdict.gradient is not None:
        text += "; gradient compared"
    return text + (f"; slack: {marker.reason}" if marker.slack else "")


def _symbols(verdict: Verdict) -> str:
    formula = verdict.formula
    rows = []
    for binding, (name, _) in symbol_names(verdict).items():
        var = "returned" if binding.var == "return" else f"<code>{escape(binding.var)}</code>"
        rows.append(
            f'<tr data-sym="{name}"><td>{inline(binding.tex)}</td> <td>{var}</td> <td>{escape(binding.text)}</td></tr> '
        )
    checked = escape(evidence(verdict))
    return (
        (
            f"<details><summary>symbols and evidence</summary> <table><thead><tr><th>symbol</th> <th>in the code</th> "
            f"<th>meaning</th></tr></thead> <tbody>{''.join(rows)}</tbody></table><p>{checked}.</p></details>"
        )
        if formula.tree is not None
        else f"<p class='reason'>{checked}.</p>"
    )


@cache
def inline(tex: str) -> str:
    """A symbol inside a line of text."""
    return render(tex, display=False)
