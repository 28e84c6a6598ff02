"""Level 1: KaTeX, vendored and run inside QuickJS, so that neither Node nor a network is needed."""

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any

from mathdoc.problem import FormulaError, MathdocError

FOLDER = Path(__file__).parent / "vendor" / "katex"
VERSION = "0.19.1"

RENDER = """(function (tex, display) {
  return katex.renderToString(tex, {
    displayMode: display, throwOnError: true, output: "htmlAndMathml",
    strict: function (code) { return code === "htmlExtension" ? "ignore" : "error"; },
    trust: function (context) { return context.command === "\\\\htmlData"; }
  });
})"""


@cache
def _engine() -> Any:
    try:
        import quickjs
    except ImportError as error:
        raise MathdocError('Rendered formulas need the extra site: pip install "mathdoc[site]"') from error
    context = quickjs.Context()
    context.eval((FOLDER / "katex.min.js").read_text())
    return context.eval(RENDER)


def render(tex: str, display: bool = True) -> str:
    """HTML with MathML inside, as KaTeX makes it in strict mode; a FormulaError where it refuses."""
    try:
        html: str = _engine()(tex, display)
    except Exception as error:
        if type(error).__name__ != "JSException":
            raise
        raise _refusal(str(error)) from None
    return html


def render_linked(tex: str, spans: list[tuple[int, int, str]]) -> str:
    """The same with `data-sym` on each span (start, end, name); the TeX that is kept for copying stays as it was."""
    wrapped, at = "", 0
    for start, end, name in sorted(spans):
        wrapped += tex[at:start] + rf"\htmlData{{sym={name}}}{{{tex[start:end]}}}"
        at = end
    wrapped += tex[at:]
    html = render(wrapped)
    original = tex.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(
        r'(<annotation encoding="application/x-tex">).*?(</annotation>)',
        lambda found: found[1] + original + found[2],
        html,
        flags=re.DOTALL,
    )


def can_render() -> bool:
    """Whether what runs KaTeX is installed: the extra `site`, without which everything else is checked."""
    return importlib.util.find_spec("quickjs") is not None


def check_syntax(tex: str) -> None:
    """Raise a FormulaError, with its place, if KaTeX refuses the formula."""
    if can_render():
        render(tex)


def _refusal(message: str) -> FormulaError:
    text = message.splitlines()[0].removeprefix("ParseError: ").removeprefix("KaTeX parse error: ")
    at = re.search(r"at position (\d+)", text)
    offset = int(at[1]) - 1 if at else 0
    return FormulaError(f"KaTeX refuses it: {text}", offset)
