"""Formulas in pages of Sphinx and of Python-Markdown, and in a notebook's cell."""

import os
import re
import subprocess
import sys
from pathlib import Path

import markdown
import pytest
from sphinx.application import Sphinx

import mathdoc
from mathdoc.problem import MathdocError

MODULE = '''"""Lenses."""


def image(focus, distance):
    """Where a lens shows what is at a distance."""
    # LaTeX: \\\\beta = \\\\frac{f}{g - f}
    size = focus / (distance - focus)
    return size


def power(focus):
    # LaTeX: D = \\\\frac{1}{f}
    dioptres = 1 / focus
    return dioptres
'''.replace("\\\\", "\\")

FILES = {
    "lenses/__init__.py": "",
    "lenses/thin.py": MODULE,
    "docs/notation/thin.toml": (
        '[functions.image]\n\'f\' = { var = "focus", text = "focal length" }\n'
        '\'g\' = { var = "distance", text = "distance of the object" }\n'
        '[functions.power]\n\'f\' = { var = "focus", text = "focal length" }\n'
    ),
    "docs/exercises.py": (
        "from lenses.thin import image, power\n\n\ndef run(dtype, seed):\n"
        "    image(1.5 + seed, 4.0 + 3 * seed)\n    power(1.5 + seed)\n"
    ),
    "pyproject.toml": '[tool.mathdoc]\npackage = "lenses"\n',
    "pages/conf.py": 'extensions = ["mathdoc.sphinx"]\nmathdoc_package = "../lenses"\n',
    "pages/index.rst": "Lenses\n======\n\n.. mathdoc:: thin.image\n\nAnd one line:\n\n.. mathdoc:: thin#f-power-d\n",
}


def lenses(root: Path) -> Path:
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return lenses(tmp_path)


def words(html: str) -> str:
    return re.sub(r"<[^>]*>", "", html)


def built(root: Path, **settings: str) -> tuple[str, str]:
    """Sphinx's page and what it warned of."""
    warned = (root / "warnings.txt").open("w+")
    pages = str(root / "pages")
    Sphinx(pages, pages, str(root / "html"), str(root / "trees"), "html", settings, None, warned).build()
    warned.seek(0)
    return (root / "html" / "index.html").read_text(), warned.read()


def test_sphinx_shows_a_function_with_its_formulas_and_their_badges(root: Path) -> None:
    page, warned = built(root)
    assert warned == ""
    assert page.count('<span class="badge verified"') == 2
    assert '<annotation encoding="application/x-tex">\\beta = \\frac{f}{g - f}</annotation>' in page
    assert "def image(focus, distance):" in words(page)
    assert "def power" not in words(page)
    for name in re.findall(r'(?:href|src)="(_static/mathdoc/[^"?]+)', page):
        assert (root / "html" / name).is_file()
    assert "_static/mathdoc/mathdoc.css" in page
    assert (root / "html" / "_static" / "mathdoc" / "katex" / "fonts" / "KaTeX_Main-Regular.woff2").is_file()


def test_a_formula_that_does_not_hold_is_a_warning_of_sphinx(root: Path) -> None:
    thin = root / "lenses" / "thin.py"
    thin.write_text(thin.read_text().replace("1 / focus", "2 / focus"))
    page, warned = built(root)
    assert "the formula gives" in warned
    assert "thin.py" in warned
    assert '<span class="badge refused"' in page


def test_what_is_not_there_is_told_with_its_place(root: Path) -> None:
    (root / "pages" / "index.rst").write_text("Lenses\n======\n\n.. mathdoc:: thin.mirror\n")
    _, warned = built(root)
    assert "index.rst:4: ERROR: thin has no mirror" in warned


def test_markdown_shows_a_function_with_its_formulas(root: Path) -> None:
    text = "# Lenses\n\n[[mathdoc thin.image]]\n\n```\n[[mathdoc thin.power]]\n```\n"
    settings = {"mathdoc.markdown": {"package": str(root / "lenses"), "assets": str(root / "site")}}
    page = markdown.markdown(text, extensions=["fenced_code", "mathdoc.markdown"], extension_configs=settings)
    assert page.count('<span class="badge verified"') == 1
    assert "def image(focus, distance):" in words(page)
    assert "[[mathdoc thin.power]]" in page
    assert (root / "site" / "mathdoc" / "mathdoc.css").is_file()


def test_markdown_ends_where_a_formula_does_not_hold(root: Path) -> None:
    thin = root / "lenses" / "thin.py"
    thin.write_text(thin.read_text().replace("1 / focus", "2 / focus"))
    settings = {"mathdoc.markdown": {"package": str(root / "lenses")}}
    with pytest.raises(MathdocError, match="the formula gives"):
        markdown.markdown("[[mathdoc thin]]", extensions=["mathdoc.markdown"], extension_configs=settings)


MKDOCS = """site_name: Lenses
docs_dir: pages
use_directory_urls: false
markdown_extensions:
  - mathdoc.markdown:
      package: lenses
      assets: pages/assets
extra_css: [assets/mathdoc/katex/katex.min.css, assets/mathdoc/mathdoc.css]
extra_javascript: [assets/mathdoc/mathdoc.js]
"""


def mkdocs(root: Path) -> subprocess.CompletedProcess[str]:
    """`mkdocs build` of a site with one page."""
    (root / "mkdocs.yml").write_text(MKDOCS)
    (root / "pages" / "index.md").write_text("# Lenses\n\n[[mathdoc thin.image]]\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(mathdoc.__file__).parents[1])}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


def test_mkdocs_builds_a_site_with_the_formulas_and_what_they_need(root: Path) -> None:
    done = mkdocs(root)
    assert done.returncode == 0, done.stderr
    page = (root / "site" / "index.html").read_text()
    assert page.count('<span class="badge verified"') == 1
    assert "def image(focus, distance):" in words(page)
    needed = re.findall(r'(?:href|src)="(assets/mathdoc/[^"]+)"', page)
    assert len(needed) == 3
    assert all((root / "site" / name).is_file() for name in needed)


def test_mkdocs_ends_where_a_formula_does_not_hold(root: Path) -> None:
    thin = root / "lenses" / "thin.py"
    thin.write_text(thin.read_text().replace("1 / focus", "2 / focus"))
    done = mkdocs(root)
    assert done.returncode != 0
    assert "the formula gives" in done.stderr


@pytest.fixture(scope="module")
def shell():
    """IPython with the magic."""
    from IPython.core.interactiveshell import InteractiveShell

    made = InteractiveShell.instance()
    made.run_line_magic("load_ext", "mathdoc.jupyter")
    made.run_cell("import numpy as np\ngravity = 9.81\nlevel = np.array([1.0, 2.0, 3.5], dtype=np.float32)")
    yield made
    InteractiveShell.clear_instance()


CELL = "# LaTeX: v_n = \\sqrt{2 g h_n}\nspeed = np.sqrt(2 * gravity * level)\n"


def test_a_cell_is_checked_and_run(shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("mathdoc", "", CELL)
    assert capsys.readouterr().out == "verified: v_n = \\sqrt{2 g h_n}\n"
    assert shell.user_ns["speed"].dtype == "float32"  # the cell itself ran on what was there
    assert shell.user_ns["speed"][0] == pytest.approx((2 * 9.81) ** 0.5)


def test_a_wrong_cell_is_told_where_and_how(shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("mathdoc", "", CELL.replace("2 g", "g"))
    said = capsys.readouterr().out
    assert "cell.py:1:10: the formula gives" in said
    assert "it would hold with a factor 2" in said


def test_a_cell_may_say_what_its_symbols_stand_for(shell, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = "#: 'h_n' = { var = \"gravity\" }\n" + CELL
    shell.run_cell_magic("mathdoc", "", wrong)
    assert "`h_n` is `gravity` of shape (), but its axes are: n" in capsys.readouterr().out
    shell.run_cell_magic("mathdoc", "", wrong.replace('"gravity"', '"level"'))
    assert capsys.readouterr().out == "verified: v_n = \\sqrt{2 g h_n}\n"


def test_a_cell_is_read_as_well_as_run(shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("mathdoc", "", CELL.replace("* level", "* np.minimum(level, 99)"))
    said = capsys.readouterr().out
    assert "the line limits a value and the formula does not say so" in said
    assert "verified" not in said
    shell.run_cell_magic("mathdoc", "", "# LaTeX: w_n = k h_n\nw = 3 * level\n")
    assert "write into the cell:\n      #: 'k' = { var = " in capsys.readouterr().out


def test_a_cell_without_a_formula_is_told_so_and_run(shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("mathdoc", "", "answer = 42\n")
    assert "this cell has no formula" in capsys.readouterr().out
    assert shell.user_ns["answer"] == 42
