"""The pages, as Markdown: what stands on each, in which order."""

import re
from pathlib import Path

import pytest

from mathdoc.check import check
from mathdoc.pages.build import build
from mathdoc.pages.highlight import highlighted
from mathdoc.pages.markdown import rendered
from mathdoc.problem import MathdocError
from mathdoc.settings import find_settings

PACKAGE = '''"""Falling bodies.

>>> import falling
>>> falling.fall(2.0)

>>> falling.fall(0)
0.0
"""

from falling.body import Ball as Ball
from falling.body import _undocumented, fall as fall


def __getattr__(name): return None
'''

MODULE = '''"""A module that falls.

It has *two* lines of docstring, and [brackets].
"""

import numpy as np


def fall(height, *, gravity: float = 9.81, **rest: int) -> "np.ndarray":
    """How long `height` takes. a < b"""
    # LaTeX: t = \\\\sqrt{\\\\frac{2 h}{g}}
    time = np.sqrt(
        2 * height / gravity
    )
    return time


def _undocumented(): return 1


class Ball(dict, metaclass=type):
    """Round."""

    def __init__(self, radius=1.0):
        self.radius = radius

    @property
    def area(self) -> float:
        """Its shadow."""
        area = np.pi * self.radius**2  # LaTeX: A = \\\\pi r^2
        return area
'''.replace("\\\\", "\\")

NOTATION = """
[functions.fall]
'h' = { var = "height", text = "height" }
'g' = { var = "gravity", text = "gravity" }
[functions."Ball.area"]
'\\pi' = { var = "np.pi", text = "pi" }
'r' = { var = "self.radius", text = "radius" }
"""

EXERCISES = """
from falling.body import Ball, fall

def run(dtype, seed):
    fall(2.0 + seed)
    Ball(1.5 + seed).area
"""


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("falling")
    for name, text in {
        "falling/__init__.py": PACKAGE,
        "falling/body.py": MODULE,
        "docs/notation/body.toml": NOTATION,
        "docs/exercises.py": EXERCISES,
        "written/guide/one.md": "# One\n\nWith $x^2$ and `$5`.\n\n[[body#f-fall-t]]\n",
        "pyproject.toml": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    report = check(find_settings(str(root / "falling")))
    assert [str(problem) for problem in report.problems] == []
    build(report, root / "out", pages=root / "written")
    build(report, root / "site", pages=root / "written", rendered=True)
    return root / "out"


def test_the_reference_has_every_function_class_and_method(out: Path) -> None:
    text = (out / "reference" / "body.md").read_text()
    headings = re.findall(r"^#+ .*$", text, re.MULTILINE)
    assert headings == [
        "# `body`",
        "## Functions",
        "### fall",
        "### \\_undocumented",
        "## Classes",
        "### Ball",
        "#### Methods in Ball",
        "##### \\_\\_init\\_\\_",
        "##### area",
    ]
    assert "\n`falling/body.py`\n\nA module that falls." in text
    assert "```python\ndef fall(height, *, gravity: float=9.81, **rest: int) -> 'np.ndarray'\n```" in text
    assert "*Base classes:* `dict`\n\nRound." in text
    assert "```python\n@property\ndef area(self) -> float\n```\n\nIts shadow." in text
    assert text.count("*No docstring provided.*") == 2
    assert "a &lt; b" in text
    assert "\\*two\\* lines of docstring, and \\[brackets\\]" in text


def test_a_package_shows_what_it_offers_and_examples_as_code(out: Path) -> None:
    text = (out.parent / "site" / "reference" / "falling.md").read_text()
    assert re.findall(r"^#+ .*$", text, re.MULTILINE) == [
        "# `falling`",
        "## Functions",
        "### fall",
        "## Classes",
        "### Ball",
        "#### Methods in Ball",
        "##### \\_\\_init\\_\\_",
        "##### area",
    ]
    assert "### fall\n\n*Defined in* [`body`](body.md)\n\n```python\ndef fall(" in text
    assert "```python\nimport falling\nfalling.fall(2.0)\n```\n\n```pycon\n>>> falling.fall(0)\n0.0\n```" in text
    index = (out.parent / "site" / "reference" / "index.md").read_text()
    assert "## Public names\n\n[`falling`](falling.md): `Ball`, `fall`\n" in index
    assert "- [`body`](body.md): A module that falls. ([2 formulas](../math/body.md))" in index


def test_a_site_leaves_private_names_to_the_source_and_has_formulas_where_there_are_some(out: Path) -> None:
    site = out.parent / "site"
    assert "_undocumented" not in (site / "reference" / "body.md").read_text()
    assert "_undocumented" in (site / "source" / "body.md").read_text()
    assert not (site / "math" / "falling.md").exists()
    assert "../math/" not in (site / "reference" / "falling.md").read_text()
    assert "../math/body.md" in (site / "source" / "body.md").read_text()


def test_the_math_list_has_each_statement_with_its_formula_then_the_source(out: Path) -> None:
    text = (out / "math" / "body.md").read_text()
    assert text.startswith(
        "# `body` Math-Annotated Source\n\n`falling/body.py`\n\n## Rendered Math Annotations\n\n### `fall`: time\n"
    )
    assert "```python\ntime = np.sqrt(\n    2 * height / gravity\n)\n```" in text
    assert "$$\nt = \\sqrt{\\frac{2 h}{g}}\n$$" in text
    trailing = next(number for number, line in enumerate(MODULE.splitlines(), 1) if "area = np.pi" in line)
    assert f'### `area`: area\n\n<a id="f-ball-area-a"></a>Line {trailing}\n\n' in text
    assert f"Line {trailing}\n\n```python\narea = np.pi * self.radius**2\n```" in text
    source = text.split("## Full Source")[1]
    assert "    # LaTeX: t = \\sqrt{\\frac{2 h}{g}}\n" in source
    assert "# LaTeX: A = \\pi r^2" in source


def test_the_annotated_source_has_the_formula_in_place_of_its_marker(out: Path) -> None:
    text = (out / "source" / "body.md").read_text()
    assert "## Annotated Source" in text
    listing = text.split("## Annotated Source")[1]
    assert "# LaTeX" not in re.sub(r"<[^>]*>", "", listing)
    plain = re.sub(r"<figure.*?</figure>", "", listing, flags=re.DOTALL)
    lines = re.findall(r'<span class="line" id="L(\d+)">', plain)
    assert [int(number) for number in lines] == [n for n in range(1, len(MODULE.splitlines()) + 1) if n != 11]
    shown = listing.index('id="f-fall-t"')
    assert listing.index('id="L10"') < shown < listing.index('id="L12"')
    assert 'style="--indent:4ch"' in listing
    assert re.search(r'data-sym="f-fall-t.1" title="height · height"[^>]*><span class="n">height', listing)


def test_a_module_without_formulas_has_its_three_pages_too(out: Path) -> None:
    for kind in ("reference", "math", "source"):
        assert (out / kind / "falling.md").is_file()
    assert "*This module has no formulas.*" in (out / "math" / "falling.md").read_text()


def test_the_indexes_and_the_glossary_lead_everywhere(out: Path) -> None:
    assert "[`body`](body.md)" in (out / "reference" / "index.md").read_text()
    assert (
        "**2 formulas: 2 verified, 0 verified with stated slack, 0 prose.**" in (out / "math" / "index.md").read_text()
    )
    glossary = (out / "notation.md").read_text()
    assert "<code>self.radius</code>" in glossary
    assert 'href="math/body.md#f-fall-t"' in glossary
    for file in ("formulas.json", "assets/mathdoc/mathdoc.css", "assets/mathdoc/katex/fonts/KaTeX_Main-Regular.woff2"):
        assert (out / file).is_file()
    assert (out / "assets/mathdoc/katex/LICENSE").is_file()


def test_a_hand_written_page_shows_a_checked_formula_with_its_line(out: Path) -> None:
    text = (out / "guide" / "one.md").read_text()
    assert 'href="../source/body.md#L12"' in text
    assert 'class="badge verified"' in text
    assert "<math" in text.split("`$5`")[0]
    assert "`$5`" in text


def test_a_page_that_shows_a_formula_that_is_gone_is_an_error(out: Path) -> None:
    from mathdoc.pages.markdown import embedded

    report = check(find_settings(str(out.parent / "falling")), truth=False)
    with pytest.raises(MathdocError, match="no such formula"):
        embedded("[[body#f-nowhere]]", report, "")


def test_dollars_in_code_are_left_alone() -> None:
    text = "```\n$a$\n```\n\n`$b$` costs\n"
    assert rendered(text) == text


def test_a_docstring_is_highlighted_as_one(out: Path) -> None:
    lines = highlighted('def f():\n    """This is\n    not and or\n    code."""\n')
    assert 'class="ow"' not in "".join(lines)
    assert len(lines) == 4
