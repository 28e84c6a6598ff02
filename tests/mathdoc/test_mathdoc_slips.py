"""Slips that change nothing in small exercises, and much elsewhere: each is refused, or named as what is not seen."""

import pytest
from changed_copies import SmallChecked

from mathdoc.check import Report

ENTRIES = '\'x_t\' = { var = "x", axes = "t", text = "x" }\n\'y\' = { var = "y", text = "y" }\n'
CALL = "f(draw(5 + seed), 2.5 + seed)"


def refused(report: Report) -> str:
    return "\n".join(problem.message for problem in report.problems)


def named(report: Report) -> str:
    return "\n".join(spot.message for spot in report.blind)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("z = y * x + 1e-12", "the line has `1e-12`"),
        ("z = y * x * (1 + 2**-40)", "the line has `2 ** (-40)`"),
        ("z = y * x + EPS", "the line has `EPS`"),
        ("z = y * x + 1e-30 * np.finfo(float).eps", "finfo(float).eps`"),
        ("z = (y * x)[:1000]", "the line has `1000`"),
        ("z = y * x * (x < 9.5)", "compares values"),
        ("z = y * x * x.lt(9.5)", "compares values"),
        ("z = (y or 1.0) * x", "chooses between values"),
        ("z = (y * 4 // 1 / 4) * x", "rounds a value"),
        ("z = (2 * y).__class__(2 * y) / 2 * x.to(torch.int64)", "rounds a value"),
        ("z = (y * x).squeeze()", "takes away every axis"),
        ("z = torch.nansum(y * x[None], 0)", "replaces what is not a number"),
        ("z = x.mul_(y)", "changes `x` in place"),
        ("with torch.no_grad():\n    # LaTeX: z_t = y x_t\n    z = y * x", "their gradients in `x_t` differ"),
    ],
)
def test_what_the_formula_does_not_say_is_refused(small: SmallChecked, line: str, says: str) -> None:
    body = line if "LaTeX" in line else f"# LaTeX: z_t = y x_t\n{line}"
    assert says in refused(small(body, ENTRIES, CALL, "EPS = 1e-20\n"))


@pytest.mark.parametrize(
    ("formula", "line", "call"),
    [
        ("z_t = y x_t + 10^{-6}", "z = y * x + 1e-6", CALL),
        ("z_t = x_t y \\mathbf{1}[|x_t| > y]", "z = x * y * ((x > y) | (x < -y))", "f(3 * draw(9), 1.5 + seed)"),
        ("z_t = y x_{t+1}", "z = y * x.index_select(0, torch.arange(1, len(x)).long())", CALL),
        ("z_t = \\operatorname{sg}(y x_t)", "with torch.no_grad():\n    # LaTeX: {}\n    z = y * x", CALL),
        ("z = y \\sum_t x_t", "z = x.sum(dim=0) * y", "f(draw(5), 2.5 + seed)"),
    ],
)
def test_what_the_formula_says_is_accepted(small: SmallChecked, formula: str, line: str, call: str) -> None:
    body = line.format(formula) if "LaTeX" in line else f"# LaTeX: {formula}\n{line}"
    report = small(body, ENTRIES, call)
    assert refused(report) == ""
    assert "always ran" not in named(report)


@pytest.mark.parametrize(
    ("formula", "line", "call", "says"),
    [
        ("z = y \\mathbb{E}_t[x_t]", "z = y * x.sum() / 5", "f(draw(5), 2.5 + seed)", "the index t always ran over 5"),
        (
            "z_t = y x_t \\mathbf{1}[x_t > 0]",
            "z = y * x * (x >= 0)",
            CALL,
            "the two sides of this comparison were never equal",
        ),
        ("z_t = c y x_t", "z = RATE * y * x", CALL, "not seen: that `c`, `RATE`, is 0.9"),
    ],
)
def test_what_no_exercise_shows_is_named(small: SmallChecked, formula: str, line: str, call: str, says: str) -> None:
    constant = '\'c\' = { var = "RATE", text = "rate" }\n' if "RATE" in line else ""
    report = small(f"# LaTeX: {formula}\n{line}", ENTRIES + constant, call, "RATE = 0.9\n")
    assert refused(report) == ""
    assert says in named(report)


WHOLE = "# LaTeX: G = y \\sum_t x_t\ndef g(x, y=0.5):\n{}    return y * x.sum()\n"
G = "[functions.g]\n" + ENTRIES.replace('text = "y"', 'text = "DEFAULT by default: y"')


@pytest.mark.parametrize(
    ("inside", "default", "blind", "problem"),
    [
        ("", "0.5", "", ""),
        ("    if len(x) > 99:\n        x = 2 * x\n", "0.5", "the condition in line 5 was never true", ""),
        ("    if len(x) > 99:\n        raise ValueError(x)\n", "0.5", "", ""),
        ("    x.mul_(1.5)\n    x = x / 1.5\n", "0.5", "", "changes `x` in place"),
        ("", "0.7", "", "`y` is 0.7 by default, and `y` is 0.5"),
    ],
)
def test_of_a_whole_function_every_way_is_seen(
    small: SmallChecked, inside: str, default: str, blind: str, problem: str
) -> None:
    call = f"{CALL}\ng(draw(4 + seed), 0.7 + seed)"
    entries = ENTRIES + G.replace("DEFAULT", default)
    report = small(
        "# LaTeX: z_t = y x_t\nz = y * x",
        entries,
        call,
        WHOLE.format(inside),
    )
    assert (blind in named(report)) if blind else named(report) == ""
    assert (problem in refused(report)) if problem else refused(report) == ""


STATE = """class Tank:
    def __init__(self, level, inflow):
        self.level = level
        self.inflow = {}

    def step(self):
        # LaTeX: h' = h + q
        self.level = self.level + self.inflow
        {}
"""
TANK = """[functions."Tank.step"]
'h' = { var = "self.level", when = "before", text = "level" }
'q' = { var = "self.inflow", text = "inflow" }
[meanings]
"h'" = "next level"
"""


def test_a_state_under_another_name_is_named_and_a_stale_symbol_refused(small: SmallChecked) -> None:
    call = f"{CALL}\nTank(draw(1)[0], draw(1)[0]).step()"
    line, table = "# LaTeX: z_t = y x_t\nz = y * x", ENTRIES + TANK
    assert named(small(line, table, call, STATE.format("torch.as_tensor(inflow)", ""))) == ""
    assert "of `Tank.__init__` gives `self.inflow` what `q` stands for" in named(
        small(line, table, call, STATE.format("level", ""))
    )
    late = STATE.format("inflow", "# LaTeX: H = 2 h + q\n        doubled = 2 * self.level + self.inflow")
    assert "`h` is `self.level`, which has become `h'` in line 10" in refused(small(line, table, call, late))
