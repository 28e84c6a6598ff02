"""What a function does between its formulas is named, or seen by formulas above it."""

from pathlib import Path

import pytest
from changed_copies import SmallChecked

from mathdoc.problem import MathdocError

ENTRIES = '\'x_t\' = { var = "x", axes = "t", text = "x" }\n\'y\' = { var = "y", text = "y" }\n'
CALL = "f(draw(5), 2.5 + seed)"
LINE = "# LaTeX: z_t = y x_t\nz = y * x"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (LINE, ""),
        ("if y is None:\n    raise ValueError(y)\n" + LINE, ""),
        (LINE + "\nz = z.detach()", "line 7"),
        (LINE + "\nreturn 2 * z", "line 7"),
        (LINE + "\nreturn float(z.sum())", "line 7"),
        ("w = x.flip(0)\n" + LINE, "line 5"),
        ("for _ in range(2):\n    pass\n" + LINE, "line 5"),
        (LINE + "\nx.add_(1)\nx.mul_(2)", "lines 7-8"),
    ],
)
def test_a_line_that_no_formula_describes_is_named(small: SmallChecked, body: str, named: str) -> None:
    report = small(body, ENTRIES, CALL)
    found = [spot.message for spot in report.between]
    if named:
        assert found == [f"not seen: what {named} of `f` {'do' if 'lines' in named else 'does'} between its formulas"]
    else:
        assert found == []
        assert report.problems == []


SWAPPED = """# LaTeX: m = \\mathbb{E}_t[x_t]
# LaTeX: v = \\frac{1}{y} \\sum_t (x_t - \\mathbb{E}_k[x_k])^2
def g(x, y):
    middle = x.mean()
    spread = ((x - middle) ** 2).sum() / y
    return {"mean": middle, "var": spread}
"""
G = ENTRIES + "[functions.g]\n" + ENTRIES


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("", "", ""),
        ('{"mean": middle, "var": spread}', '{"var": spread, "mean": middle}', "the formula gives"),
        ('{"mean": middle, "var": spread}', "middle, spread.detach()", "their gradients"),
        ('{"mean": middle, "var": spread}', "middle, (spread,)", ""),
        ('{"mean": middle, "var": spread}', "middle, spread, y", "returns 3 values and has 2 formulas"),
        ("/ y", "/ y.clamp(max=1e3)", "limits a value"),
    ],
)
def test_several_results_have_a_formula_each(small: SmallChecked, old: str, new: str, says: str) -> None:
    above = SWAPPED.replace(old, new) if old else SWAPPED
    call = CALL + "\ng(draw(5), torch.tensor(2.5 + seed))\ng(draw(6), torch.tensor(1.5))"
    report = small(LINE, G, call, above)
    said = [problem.message for problem in report.problems]
    assert any(says in message for message in said) if says else said == [], said
    assert report.between == []


def test_a_reason_is_counted_and_one_that_is_not_needed_is_refused(small: SmallChecked, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    excuses = tmp_path / "docs" / "unmarked.toml"
    excuses.write_text('[between]\n"small.f" = "turned round"\n')
    turned = small("w = x.flip(0)\n" + LINE, ENTRIES, CALL)
    assert turned.between == []
    assert [line.endswith("turned round") for line in turned.excused] == [True]
    assert [problem.message for problem in small(LINE, ENTRIES, CALL).problems] == [
        '"small.f" excuses nothing: remove it'
    ]
    excuses.write_text("[beside]\n")
    with pytest.raises(MathdocError, match="known are excused and between"):
        small(LINE, ENTRIES, CALL)
