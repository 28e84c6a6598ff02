"""A pass must mean something: what level 3 refuses although the values agree."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mathdoc.check import check
from mathdoc.settings import find_settings

Messages = Callable[..., list[str]]


@pytest.fixture
def messages(tmp_path: Path) -> Messages:
    """`messages(body, entries, call)`: what is said of a package with one function `f`."""

    def said(body: str, entries: str, call: str) -> list[str]:
        package = tmp_path / "small"
        package.mkdir()
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        (package / "__init__.py").write_text(f"import numpy as np\n\ndef f(x, y=0.0):\n{lines}    return z\n")
        notation = tmp_path / "docs" / "notation"
        notation.mkdir(parents=True)
        table = '[axes]\nt = "time"\nk = "index"\n[functions.f]\n'
        (notation / "small.toml").write_text(table + entries)
        (tmp_path / "docs" / "exercises.py").write_text(
            f"import numpy as np\nfrom small import f\n\ndef run(dtype, seed):\n    {call}\n"
        )
        return [problem.message for problem in check(find_settings(str(package))).problems]

    return said


SCALAR = '\'x\' = { var = "x", text = "x" }\n'
TWO = SCALAR + '\'y\' = { var = "y", text = "y" }\n'
ROW = '\'x_t\' = { var = "x", axes = "t", text = "x" }\n'


def test_what_holds_is_not_refused(messages: Messages) -> None:
    assert messages("# LaTeX: z = 2 x + y\nz = 2 * x + y", TWO, "f(1.5 + seed, 0.5)") == []


def test_the_left_hand_side_on_the_right_says_nothing(messages: Messages) -> None:
    assert any("is on both sides" in m for m in messages("z = x\n# LaTeX: z = z + 0\nz = z + 0", SCALAR, "f(1.0)"))


def test_a_symbol_for_what_the_line_assigns_must_say_that_it_is_the_earlier_value(messages: Messages) -> None:
    entry = SCALAR + '\'z_0\' = { var = "z", text = "z before" }\n'
    assert any(
        "stands for what this line assigns" in m
        for m in messages("z = x\n# LaTeX: z = z_0 + x\nz = z + x", entry, "f(1.0)")
    )


def test_a_symbol_that_does_not_matter_is_refused(messages: Messages) -> None:
    said = messages("# LaTeX: z = 2 x + 0 y\nz = 2 * x", TWO, "f(1.5 + seed, 0.5)")
    assert "`y` can be changed without changing the result" in said


def test_a_clip_that_never_clipped_is_refused(messages: Messages) -> None:
    body = "# LaTeX: z = \\operatorname{clip}(x, -1, 1)\nz = np.clip(x, -1, 1)"
    assert any(
        "never took this to the side `at the lower end`" in m for m in messages(body, SCALAR, "f(0.5)\n    f(2.0)")
    )


def test_a_mask_that_masked_nothing_is_refused(messages: Messages) -> None:
    body = "# LaTeX: z = \\sum_{t \\in S} x_t\nz = (x * y).sum()"
    entries = ROW + '\'S\' = { var = "y", axes = "t", text = "set" }\n'
    assert any("side `outside`" in m for m in messages(body, entries, "f(np.arange(1.0, 4.0), np.ones(3))"))


def test_a_mutant_that_would_pass_is_named(messages: Messages) -> None:
    said = messages("# LaTeX: z = x y\nz = x * y", TWO, "f(1.0, 1.0)")
    assert any("a factor dropped here the formula would pass" in m for m in said)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_value_that_is_not_finite_is_refused(messages: Messages) -> None:
    assert any("the line gives nan" in m for m in messages("# LaTeX: z = \\log(x)\nz = np.log(x)", SCALAR, "f(-1.0)"))


def test_slack_that_is_not_needed_is_refused(messages: Messages) -> None:
    said = messages('# LaTeX[slack=1e-3 "none"]: z = 2 x\nz = 2 * x', SCALAR, "f(1.5)")
    assert said == ["this formula is exact: take its slack away"]


def test_slack_lets_a_stated_difference_pass(messages: Messages) -> None:
    assert (
        messages('# LaTeX[slack=1e-3 "a stabiliser"]: z = \\frac{x}{y}\nz = x / (y + 1e-4)', TWO, "f(1.5, 2.0)") == []
    )


def test_the_same_difference_without_slack_is_refused(messages: Messages) -> None:
    said = messages("# LaTeX: z = \\frac{x}{y}\nz = x / (y + 1e-8)", TWO, "f(1.5, 2.0)")
    assert len(said) == 2
    assert "the line has `1e-08`" in said[0]
    assert "relative difference 5.0e-09" in said[1]


def test_a_symbol_has_one_meaning_in_a_function(messages: Messages) -> None:
    said = messages("# LaTeX: x = 2 y\nz = 2 * y", TWO, "f(1.0, 2.0)")
    assert any("a symbol has one meaning" in m for m in said)


def test_what_katex_refuses_is_refused(messages: Messages) -> None:
    assert any("KaTeX refuses it" in m for m in messages("# LaTeX: z = \\frac{x\nz = x + 0", SCALAR, "f(1.0)"))


def test_a_declared_shape_that_does_not_fit_is_told(messages: Messages) -> None:
    said = messages("# LaTeX: z = \\sum_t x_t\nz = x.sum()", ROW, "f(np.ones((3, 2)))")
    assert any("of shape (3, 2), but its axes are: t" in m for m in said)
