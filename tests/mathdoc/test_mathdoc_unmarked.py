"""Mathematics without a formula is listed, unless its reason is written down."""

from pathlib import Path

import pytest
from changed_copies import SmallChecked

ENTRIES = '\'x_t\' = { var = "x", axes = "t", text = "x" }\n\'y\' = { var = "y", text = "y" }\n'
ABOVE = "def scaled(x: torch.Tensor) -> torch.Tensor:\n    return (x - x.mean()) / x.std()\n\n"
ABOVE += "def half(count: int) -> str:\n    return 'n' * (count // 2 + 1)\n"


def said(small: SmallChecked, folder: Path, excused: str) -> list[str]:
    (folder / "docs").mkdir(exist_ok=True)
    (folder / "docs" / "unmarked.toml").write_text(f"[excused]\n{excused}")
    report = small("# LaTeX: z_t = y x_t\nz = y * x", ENTRIES, "f(draw(5), 2.5 + seed)", ABOVE)
    return [problem.message for problem in report.problems]


def test_a_statement_without_a_formula_is_listed(small: SmallChecked, tmp_path: Path) -> None:
    assert said(small, tmp_path, "") == ["this computes with arrays and has no formula"]


@pytest.mark.parametrize("key", ["small.scaled", "small", "sm*"])
def test_a_written_reason_excuses_it(small: SmallChecked, tmp_path: Path, key: str) -> None:
    assert said(small, tmp_path, f'"{key}" = "a test compares it with another"\n') == []


@pytest.mark.parametrize(
    ("excused", "fault"),
    [('"small.scaled" = "a"\n"small.other" = "b"\n', "excuses nothing"), ('"small.scaled" = " "\n', "has no reason")],
)
def test_an_excuse_is_needed_and_has_a_reason(small: SmallChecked, tmp_path: Path, excused: str, fault: str) -> None:
    assert any(fault in message for message in said(small, tmp_path, excused))


def test_without_the_file_nothing_is_listed(small: SmallChecked) -> None:
    report = small("# LaTeX: z_t = y x_t\nz = y * x", ENTRIES, "f(draw(5), 2.5 + seed)", ABOVE)
    assert report.problems == []
