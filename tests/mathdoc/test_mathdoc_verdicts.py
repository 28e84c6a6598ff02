"""What cannot be read or run is a verdict on one formula, with its place; the check goes on with the others."""

import pytest
from changed_copies import SmallChecked

SCALAR = '\'x\' = { var = "x", text = "x" }\n'
ROW = '\'x_t\' = { var = "x", axes = "t", text = "x" }\n\'y\' = { var = "y", text = "y" }\n'
GOOD = "\n# LaTeX: g = 2 \\cdot x\ng = 2 * x"
GOOD_ROW = "\n# LaTeX: g_t = 2 y x_t\ng = 2 * y * x"


@pytest.mark.parametrize(
    ("line", "entries", "call", "says"),
    [
        ("# LaTeX: z = \\sum_t x_{t+0.5}\nz = x.sum()" + GOOD_ROW, ROW, "f(draw(3), 2.5 + seed)", "is not defined"),
        ("# LaTeX: z = \\max_t x_{t+5}\nz = x.max()" + GOOD_ROW, ROW, "f(draw(3), 2.5 + seed)", "could not be checked"),
        ("# LaTeX: z = x\nz, q = 2 * x, 1" + GOOD, SCALAR, "f(1.5 + seed)", "assigns nothing"),
        ('# LaTeX[slack=e-- "why"]: z = 2 x\nz = 2 * x' + GOOD, SCALAR, "f(1.5 + seed)", "slack"),
        ("# LaTeX: z = 2 x\nz = 2j * x" + GOOD, SCALAR, "f(1.5 + seed)", "the formula gives"),
        (
            "z = 1\n# LaTeX: h = x\nz = ''.join(x)" + GOOD,
            SCALAR,
            "try: f(1.5 + seed)\nexcept TypeError: pass",
            "not seen",
        ),
    ],
)
def test_a_fault_concerns_one_formula(small: SmallChecked, line: str, entries: str, call: str, says: str) -> None:
    report = small(line, entries, call)
    assert any(says in problem.message for problem in report.problems), [str(p) for p in report.problems]
    assert all(problem.line for problem in report.problems)
    good = [verdict.status for verdict in report.verdicts if verdict.formula.left.tex.startswith("g")]
    assert good in (["verified"], ["refused"] if "''" in line else ["verified"])


@pytest.mark.parametrize(
    "line",
    [
        "z = sum(y * v for v in x)",
        "z = sum([y * v for v in x])",
        "z = (lambda q: y * q.sum())(x)",
        "z = torch.stack([v * y for v in x]).sum()",
    ],
)
def test_a_line_with_a_scope_of_its_own_is_checked_with_its_gradient(small: SmallChecked, line: str) -> None:
    report = small(f"# LaTeX: \\mathcal{{L}} = \\sum_t y x_t\n{line}", ROW, "f(draw(3), 2.5 + seed)")
    assert [str(problem) for problem in report.problems] == []
    assert [verdict.gradient is not None for verdict in report.verdicts] == [True]


def test_a_line_that_no_longer_depends_on_its_symbols_is_refused(small: SmallChecked) -> None:
    report = small("# LaTeX: z = \\sum_t x_t\nz = torch.tensor(3.0) * 1", ROW, "f(draw(3))")
    assert any("the formula gives" in problem.message for problem in report.problems)


def test_exercises_that_raise_an_error_are_a_problem_at_their_line(small: SmallChecked) -> None:
    report = small("# LaTeX: z = 2 x\nz = 2 * x", SCALAR, "f(1.5 + seed)\nf(None)")
    (problem,) = report.problems
    assert "the exercises stop here: TypeError" in problem.message
    assert problem.path.name == "exercises.py"
    assert [verdict.status for verdict in report.verdicts] == ["verified"]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("'x' = { var = 3, text = \"x\" }\n", "a text in quotes"),
        ('\'x\' = { var = "x", axes = 1, text = "x" }\n', "a text in quotes"),
        ('\'x_\' = { var = "x", text = "x" }\n', "nothing follows"),
        ("'x' = 3\n", "has the fields"),
    ],
)
def test_an_entry_that_cannot_be_read_is_a_problem_of_the_table(small: SmallChecked, entry: str, says: str) -> None:
    report = small("# LaTeX: z = 2 x\nz = 2 * x", entry, "f(1.5)")
    assert any(says in problem.message and problem.path.suffix == ".toml" for problem in report.problems)


def test_a_module_that_is_no_python_is_a_problem(small: SmallChecked) -> None:
    report = small("z = = 2", SCALAR, "f(1.5)")
    assert any(problem.message.startswith("not Python") for problem in report.problems)
