"""The guide is followed to the letter: its files are written, its commands run, and their output is what it shows."""

import re
from pathlib import Path

import pytest

import mathdoc
from mathdoc.__main__ import main

PROJECT = Path(mathdoc.__file__).parents[1]
GUIDE = (PROJECT / "docs" / "guide.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE, re.M | re.S)


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


def test_its_commands_print_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tanks").mkdir()
    (tmp_path / "tanks" / "__init__.py").touch()
    water = tmp_path / "tanks" / "water.py"
    water.write_text(blocks("python")[0].partition("\n")[2])
    begin, check, explain = (text.split()[1:] for text in blocks("bash"))
    verified, explained = blocks("text")

    assert main(begin) == 0
    (table,) = blocks("toml")
    assert table in (tmp_path / "docs" / "notation" / "water.toml").read_text()
    exercises = (tmp_path / "docs" / "exercises.py").read_text()
    wanted = [line.strip() for line in blocks("python")[1].splitlines() if line.strip()]
    assert [line for line in wanted if line not in exercises] == []

    capsys.readouterr()
    assert main(check) == 0
    assert verified.strip() in capsys.readouterr().out

    water.write_text(water.read_text().replace("v_n = \\sqrt{2 g h_n}", "v_n = \\sqrt{g h_n}"))
    assert main(explain) == 1
    said = capsys.readouterr().out
    assert [line for line in explained.splitlines() if line not in said] == []


@pytest.mark.parametrize("block", [text for text in blocks("python") if text.startswith("# fields/")])
def test_what_it_shows_of_the_example_is_there(block: str) -> None:
    name, _, code = block.partition("\n")
    assert code in (PROJECT / "examples" / name.removeprefix("# ").replace("fields/", "fields/fields/", 1)).read_text()


def test_what_it_counts_is_there() -> None:
    modules = (PROJECT / "examples" / "fields" / "fields").glob("*.py")
    assert f"{sum(path.read_text().count('# LaTeX: ') for path in modules)} formulas are checked" in GUIDE
