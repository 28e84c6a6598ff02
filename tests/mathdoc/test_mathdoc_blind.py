"""What the check cannot see is said, and fails a strict run; and markers of whole functions."""

from pathlib import Path

import pytest
from changed_copies import SmallChecked

from mathdoc.__main__ import main

ENTRIES = '\'x_t\' = { var = "x", axes = "t", text = "x" }\n\'y\' = { var = "y", text = "y" }\n'


@pytest.mark.parametrize(
    ("body", "call", "says"),
    [
        ("# LaTeX: z_t = y x_t\nz = y * x", "f(draw(5), 2.5)", "`y` always had the value 2.5"),
        ("# LaTeX: z_t = x_t + y\nz = x + y", "f(draw(5), 2.5 + seed)", ""),
        ("w = -x\n# LaTeX: z_t = y w_t - x_t\nz = y * w - x", "f(draw(5), 2.5 + seed)", "always had opposite values"),
        ("# LaTeX: z_t = y x_t\nz = y * x[:]", "f(draw(5).double().numpy(), 2.5 + seed)", ""),
        ("# LaTeX: z_t = y x_t\nz = torch.tensor((y * x).tolist())", "f(draw(5), 2.5 + seed)", ""),
    ],
)
def test_a_blind_spot_is_named(small: SmallChecked, body: str, call: str, says: str) -> None:
    entries = ENTRIES + '\'w_t\' = { var = "w", axes = "t", text = "w" }\n' * ("w_t" in body)
    report = small(body, entries, call)
    found = [spot.message for spot in report.blind]
    if "tolist" in body:
        assert any("their gradients" in problem.message for problem in report.problems)
    else:
        assert report.problems == []
        assert (found == []) if not says else any(says in message for message in found), found


def test_a_gradient_that_was_not_compared_is_a_blind_spot(small: SmallChecked) -> None:
    entries = ENTRIES.replace('var = "x"', 'var = "x", implied = ""').replace(', implied = ""', "")
    body = "# LaTeX: z = y \\sqrt{\\sum_t x_t^2}\nz = y * x.norm()"
    report = small(body, entries, "f(draw(5), 2.5 + seed)")
    assert report.problems == []
    assert report.blind == []
    at_kinks = small(
        "# LaTeX: z_t = |x_t| + y\nz = x.abs() + y",
        entries,
        "f(torch.zeros(5), 2.5 + seed)\nf(torch.zeros(4), seed - 9)",
    )
    assert at_kinks.problems or at_kinks.blind


def test_a_strict_run_fails_on_a_blind_spot(
    small: SmallChecked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small("# LaTeX: z_t = y x_t\nz = y * x", ENTRIES, "f(draw(5), 2.5)")
    assert main(["check", str(tmp_path / "small")]) == 0
    assert main(["check", str(tmp_path / "small"), "--strict"]) == 1
    assert "not seen: `y` always had the value 2.5" in capsys.readouterr().out


RECURSION = """def g(x, y):
    total = torch.zeros_like(x[0])
    for step in reversed(range(len(x))):
        total = x[step] + y * total
    return total
"""
TABLE = ENTRIES + "[functions.g]\n" + ENTRIES
WHOLE = "# LaTeX: G = \\sum_t y^t x_t\n"


@pytest.mark.parametrize(
    ("old", "new", "fine"),
    [
        ("", "", True),
        ("reversed(range(len(x)))", "range(len(x))", False),
        ("reversed(range(len(x)))", "reversed(range(1, len(x)))", False),
        ("zeros_like", "ones_like", False),
        ("return total", "return total.clamp(-1, 1)", False),
        ("return total", "return total.detach()", False),
        ("x[step] + y * total", "x[step].detach() + y * total", False),
    ],
)
def test_a_marker_above_a_function_is_about_what_it_returns(
    small: SmallChecked, old: str, new: str, fine: bool
) -> None:
    above = WHOLE + RECURSION.replace(old, new) if old else WHOLE + RECURSION
    body = "# LaTeX: z_t = y x_t\nz = y * x"
    report = small(body, TABLE, "f(draw(5), 2.5 + seed)\ng(draw(4), 0.7 + 0.1 * seed)\ng(draw(5), 0.75)", above)
    said = [problem.message for problem in report.problems]
    assert (said == []) == fine, said
    assert fine or any(words in said[0] for words in ("the formula gives", "their gradients", "limits a value"))


def test_a_kalman_gain_is_a_formula(small: SmallChecked) -> None:
    above = (
        "def gain(p, h, r):\n    # LaTeX: S = H P H^\\top + R\n    s = h @ p @ h.T + r\n"
        "    # LaTeX: K = P H^\\top S^{-1}\n    k = p @ h.T @ torch.linalg.inv(s)\n"
        "    # LaTeX: P' = (I - K H) P\n    after = (torch.eye(len(p)) - k @ h) @ p\n    return after\n"
    )
    names = "".join(f'\'{n}\' = {{ var = "{n.lower()}", shape = "matrix", text = "{n}" }}\n' for n in "PHR")
    call = "f(draw(5), 2.5 + seed)\ngain(draw(4, 4) + 5 * torch.eye(4), draw(3, 4), draw(3, 3) + 9 * torch.eye(3))"
    body = "# LaTeX: z_t = y x_t\nz = y * x"
    report = small(body, ENTRIES + "[functions.gain]\n" + names, call, above)
    assert [str(problem) for problem in report.problems] == []
    assert [verdict.gradient is not None for verdict in report.verdicts] == [True] * 4
    for old, new in (
        ("k = p @ h.T", "k = p.T @ h.T"),
        ("(torch.eye(len(p)) - k @ h) @ p", "p @ (torch.eye(len(p)) - k @ h)"),
    ):
        wrong = small(body, ENTRIES + "[functions.gain]\n" + names, call, above.replace(old, new))
        assert any("the formula gives" in problem.message for problem in wrong.problems)
