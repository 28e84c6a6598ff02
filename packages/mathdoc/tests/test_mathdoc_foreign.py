"""A small package that has nothing to do with Minerva: NumPy code, its own notation, its own exercises."""

from pathlib import Path

import pytest

from mathdoc.__main__ import main
from mathdoc.check import check, lost_levels, write_baseline
from mathdoc.settings import find_settings

SPRINGS = '''"""Masses on springs. Shapes: m masses, D dimensions."""

import numpy as np

STIFFNESS = 3.0


def energy(mass: np.ndarray, velocity: np.ndarray, position: np.ndarray) -> float:
    """Kinetic and potential energy."""
    # LaTeX: T = \\\\frac{1}{2} \\\\sum_m \\\\mu_m \\\\sum_j v_{m,j}^2
    kinetic = 0.5 * (mass * (velocity**2).sum(-1)).sum()
    # LaTeX: U = \\\\frac{\\\\kappa}{2} \\\\sum_m \\\\sum_j x_{m,j}^2
    potential = 0.5 * STIFFNESS * (position**2).sum()
    return kinetic + potential  # LaTeX: E = T + U


class Integrator:
    """Semi-implicit Euler."""

    def __init__(self, step: float) -> None:
        self.step = step

    def advance(self, velocity: np.ndarray, force: np.ndarray) -> np.ndarray:
        # LaTeX: v'_{m,j} = v_{m,j} + h f_{m,j}
        velocity = (
            velocity
            + self.step * force
        )
        return velocity
'''.replace("\\\\", "\\")

NOTATION = """
[axes]
m = "mass"
j = "dimension"

[functions.energy]
'\\mu_m' = { var = "mass", axes = "m", text = "mass" }
'v_{m,j}' = { var = "velocity", axes = "m j", text = "velocity" }
'x_{m,j}' = { var = "position", axes = "m j", text = "position" }
'\\kappa' = { var = "STIFFNESS", text = "stiffness of the springs" }

[functions."Integrator.advance"]
'v_{m,j}' = { var = "velocity", axes = "m j", when = "before", text = "velocity before" }
'h' = { var = "self.step", text = "time step" }
'f_{m,j}' = { var = "force", axes = "m j", text = "acceleration" }
"""

EXERCISES = """
import numpy as np
from springs.model import Integrator, energy

def run(dtype, seed):
    draw = np.random.default_rng(seed).standard_normal
    mass, velocity, position = (draw(shape).astype(dtype) for shape in ((5,), (5, 3), (5, 3)))
    energy(mass, velocity, position)
    Integrator(0.1).advance(velocity, position)
"""


@pytest.fixture
def springs(tmp_path: Path) -> Path:
    for name, text in {
        "springs/__init__.py": '"""Springs."""\n',
        "springs/model.py": SPRINGS,
        "docs/notation/model.toml": NOTATION,
        "docs/exercises.py": EXERCISES,
        "pyproject.toml": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "springs"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_its_formulas_are_verified(springs: Path) -> None:
    report = check(find_settings(str(springs)))
    assert [str(problem) for problem in report.problems] == []
    assert [verdict.status for verdict in report.verdicts] == ["verified"] * 4


def test_a_wrong_one_fails_the_command(springs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(springs / "model.py", "\\frac{\\kappa}{2} \\sum_m", "\\frac{\\kappa}{4} \\sum_m")
    assert main(["check", str(springs)]) == 1
    printed = capsys.readouterr().out
    assert "model.py:12:14: the formula gives" in printed
    assert "U = \\frac{\\kappa}{4}" in printed
    assert "3 verified" in printed


def test_an_unknown_symbol_comes_with_the_entry_to_paste(springs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(springs / "model.py", "+ h f_{m,j}", "+ h g_{m,j}")
    assert main(["check", str(springs)]) == 1
    printed = capsys.readouterr().out
    assert "`g_{m,j}` is not defined" in printed
    assert (
        """[functions."Integrator.advance"]\n      'g_{m,j}' = { var = "...", axes = "m j", text = "..." }""" in printed
    )
    assert "    # LaTeX: v'_{m,j} = v_{m,j} + h g_{m,j}\n                                    ^^^^^^^" in printed


def test_a_formula_that_loses_its_level_fails_the_command(springs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = find_settings(str(springs))
    write_baseline(check(settings))
    assert lost_levels(check(settings)) == []
    edit(springs / "model.py", "# LaTeX: E = T", '# LaTeX[prose "for the test"]: E = T')
    assert main(["check", str(springs)]) == 1
    assert "model#f-energy-e was verified and is prose" in capsys.readouterr().err


def test_a_line_that_no_exercise_runs_is_not_verified(springs: Path) -> None:
    edit(springs.parent / "docs" / "exercises.py", "    Integrator(0.1).advance(velocity, position)\n", "")
    problems = check(find_settings(str(springs))).problems
    assert ["the exercises never ran it" in problem.message for problem in problems] == [True]


def test_sizes_that_could_hide_an_exchanged_axis_are_refused(springs: Path) -> None:
    edit(springs.parent / "docs" / "exercises.py", "((5,), (5, 3), (5, 3))", "((5,), (5, 5), (5, 5))")
    messages = [problem.message for problem in check(find_settings(str(springs))).problems]
    assert messages
    assert all("both run over 5 values" in message for message in messages)


def test_a_notation_that_hides_arithmetic_is_refused(springs: Path) -> None:
    edit(springs.parent / "docs" / "notation" / "model.toml", 'var = "STIFFNESS"', 'var = "STIFFNESS / 2"')
    assert any("is arithmetic" in problem.message for problem in check(find_settings(str(springs))).problems)


def test_an_entry_that_no_formula_needs_is_refused(springs: Path) -> None:
    with (springs.parent / "docs" / "notation" / "model.toml").open("a") as table:
        table.write("""'q' = { var = "force", axes = "m j", text = "unneeded" }\n""")
    problems = check(find_settings(str(springs))).problems
    assert ["`q` is used by no formula" in problem.message for problem in problems] == [True]


def test_a_package_that_is_not_there_is_an_error_and_not_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "no_such_package_anywhere"]) == 2
    assert "neither the folder nor the import name" in capsys.readouterr().err
