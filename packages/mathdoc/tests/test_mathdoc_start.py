"""From nothing to a checked formula: what `mathdoc init` guesses, what `mathdoc explain` shows, what messages name."""

from pathlib import Path

import pytest

from mathdoc.__main__ import main
from mathdoc.check import check
from mathdoc.settings import find_settings

TANKS = '''"""Water in N tanks."""

import numpy as np

GRAVITY = 9.81


def outflow(level: np.ndarray, hole: np.ndarray) -> np.ndarray:
    """Torricelli."""
    # LaTeX: v_n = \\sqrt{2 g h_n}
    speed = np.sqrt(2 * GRAVITY * level)
    # LaTeX: Q_n = a_n v_n
    flow = hole * speed
    return flow


class Tank:
    """One of them, over T steps."""

    def __init__(self, level: np.ndarray, step: float) -> None:
        self.level = level
        self.step = step

    def drain(self, flow: np.ndarray) -> None:
        # LaTeX: h'_n = h_n - \\Delta Q_n
        self.level = self.level - self.step * flow
'''


LAB = '''"""Of other fields."""

import numpy as np


def rate(substrate: np.ndarray, vmax: float, km: float, inhibitor: float, ki: float) -> np.ndarray:
    # LaTeX: K' = K_m (1 + \\frac{I}{K_i})
    apparent = km * (1 + inhibitor / ki)
    # LaTeX: v_n = \\frac{V_{max} s_n}{K' + s_n}
    speed = vmax * substrate / (apparent + substrate)
    return speed


def growth(mass: np.ndarray, exponent: float) -> np.ndarray:
    # LaTeX: B_n = 70 m_n^e
    burnt = 70 * mass**exponent
    return burnt


def gain(covariance: np.ndarray, observed: np.ndarray, noise: np.ndarray) -> np.ndarray:
    # LaTeX: S = O C O^\\top + N
    spread = observed @ covariance @ observed.T + noise
    # LaTeX: K = C O^\\top S^{-1}
    result = covariance @ observed.T @ np.linalg.inv(spread)
    return result


# LaTeX: y_n = \\sum_k t_k s_{n-k}
def filtered(samples: np.ndarray, taps: np.ndarray) -> np.ndarray:
    return np.convolve(samples, taps)[: len(samples)]
'''.replace("\\\\", "\\")


def test_names_exponents_matrices_and_two_indices_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "__init__.py").write_text(LAB)
    monkeypatch.chdir(tmp_path)
    assert main(["init", "lab"]) == 0
    report = check(find_settings())
    assert [str(problem) for problem in report.problems] == []
    assert [verdict.status for verdict in report.verdicts] == ["verified"] * 6
    assert report.blind == []


HILL = """import numpy as np


def hill(substrate: np.ndarray, half: float, exponent: float) -> np.ndarray:
    # LaTeX: \\theta_n = \\frac{s_n^h}{K^h + s_n^h}
    bound = substrate**exponent / (half**exponent + substrate**exponent)
    return bound
""".replace("\\\\", "\\")


def test_two_symbols_that_were_guessed_the_wrong_way_round_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "__init__.py").write_text(HILL)
    monkeypatch.chdir(tmp_path)
    main(["init", "lab"])
    assert main(["check"]) == 1
    assert "it would hold if `h` were `exponent` and `K` were `half`: see the table" in capsys.readouterr().out


MEANS = """import numpy as np


def means(x: np.ndarray, a: float, limit: float = 0.25) -> float:
    # LaTeX: s = \\sum_{i=1}^{N} x_i
    s = x.sum()
    # LaTeX: m = \\frac{s}{N} + a
    m = s / len(x) + a
    # LaTeX: r = \\|x\\|_2 - c
    r = np.linalg.norm(x) - limit
    return s * m * r
"""


def test_sizes_norms_and_defaults_are_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "__init__.py").write_text(MEANS)
    monkeypatch.chdir(tmp_path)
    main(["init", "lab"])
    table = (tmp_path / "docs" / "notation" / "lab.toml").read_text()
    assert '\'N\' = { var = "len(x)", text = "number of x" }' in table
    assert '\'x\' = { var = "x", shape = "vector", text = "x" }' in table
    assert '\'c\' = { var = "limit", text = "0.25 by default: limit" }' in table
    report = check(find_settings())
    assert [str(problem) for problem in report.problems] == []
    assert [spot.message for spot in report.blind if "between" not in spot.message] == []


@pytest.fixture
def tanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with formulas and nothing else."""
    (tmp_path / "tanks").mkdir()
    (tmp_path / "tanks" / "__init__.py").write_text('"""Tanks."""\n')
    (tmp_path / "tanks" / "water.py").write_text(TANKS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_guessed_from_the_names_is_enough_to_verify(tanks: Path) -> None:
    assert main(["init", "tanks"]) == 0
    table = (tanks / "docs" / "notation" / "water.toml").read_text()
    assert '\'g\' = { var = "GRAVITY", text = "9.81: gravity" }' in table
    assert '\'h_n\' = { var = "level", axes = "n", text = "level" }' in table
    assert '\'h_n\' = { var = "self.level", axes = "n", when = "before", text = "level" }' in table
    report = check(find_settings())
    assert [str(problem) for problem in report.problems] == []
    assert [verdict.status for verdict in report.verdicts] == ["verified"] * 3


def test_what_is_there_already_is_left_as_it_is(tanks: Path) -> None:
    (tanks / "pyproject.toml").write_text('[project]\nname = "tanks"\n')
    main(["init", "tanks"])
    assert (tanks / "pyproject.toml").read_text().startswith('[project]\nname = "tanks"\n\n[tool.mathdoc]\n')
    for name in ("docs/exercises.py", "docs/notation/water.toml"):
        (tanks / name).write_text(f"# mine: {name}\n")
    before = (tanks / "pyproject.toml").read_text()
    main(["init", "tanks"])
    assert (tanks / "pyproject.toml").read_text() == before
    assert (tanks / "docs" / "exercises.py").read_text() == "# mine: docs/exercises.py\n"
    assert (tanks / "docs" / "notation" / "water.toml").read_text() == "# mine: docs/notation/water.toml\n"


def test_a_symbol_that_nothing_fits_is_left_to_the_author_and_refused_until_then(
    tanks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tanks / "tanks" / "water.py"
    path.write_text(TANKS.replace("2 g h_n}", "2 \\xi \\chi h_n}"))
    main(["init", "tanks"])
    assert "nothing fits \\xi, \\chi: put its variable in place of ..." in capsys.readouterr().out
    assert main(["check"]) == 1
    assert "`\\xi`: it is not said yet which variable it stands for" in capsys.readouterr().out


def test_a_package_without_formulas_is_told_how_to_write_one(tanks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tanks / "tanks" / "water.py").write_text("x = 1\n")
    assert main(["init", "tanks"]) == 0
    assert "tanks has no formula yet: write one above a statement" in capsys.readouterr().out


def test_an_explanation_shows_the_reading_the_symbols_and_where_the_sides_part(
    tanks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["init", "tanks"])
    path = tanks / "tanks" / "water.py"
    path.write_text(path.read_text().replace("v_n = \\sqrt{2 g h_n}", "v_n = \\sqrt{g h_n}"))
    line = path.read_text().splitlines().index("    speed = np.sqrt(2 * GRAVITY * level)") + 1
    capsys.readouterr()
    assert main(["explain", f"tanks/water.py:{line}"]) == 1
    said = capsys.readouterr().out
    assert "tanks/water.py:10, in outflow\n" in said
    assert "read as\n    v_n = sqrt(g * h_n)\n" in said
    assert "    g    GRAVITY  a number  9.81 " in said
    assert "    h_n  level    [n=5]     " in said
    line_value, formula_value = (float(said.split(f"the {side} gives")[1].split()[0]) for side in ("line", "formula"))
    assert line_value == pytest.approx(2**0.5 * formula_value)
    assert "parts of the formula there\n    \\sqrt{g h_n}  " in said
    assert "it would hold with a factor 2 at `g h_n`" in said


def test_a_formula_that_holds_is_explained_as_well(tanks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", "tanks"])
    assert main(["explain", "tanks/water.py:12"]) == 0
    assert "verified: the line was seen 3 times in float64" in capsys.readouterr().out


def test_a_place_without_a_formula_is_told_the_nearest(tanks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "tanks/water.py:1"]) == 2
    assert "has no formula; the nearest is on line 10" in capsys.readouterr().err
    assert main(["explain", "tanks/water.py"]) == 2
    assert "is no FILE:LINE" in capsys.readouterr().err


def test_a_name_that_the_code_does_not_have_is_told_with_the_nearest(
    tanks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["init", "tanks"])
    table = tanks / "docs" / "notation" / "water.toml"
    table.write_text(table.read_text().replace('var = "GRAVITY"', 'var = "GRAVITI"'))
    assert main(["check"]) == 1
    said = capsys.readouterr().out
    assert "`g` stands for `GRAVITI`, and outflow has no `GRAVITI`" in said
    assert "the nearest name there is `GRAVITY`" in said


def test_an_unknown_symbol_comes_with_the_variable_that_fits_it(
    tanks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["init", "tanks"])
    table = tanks / "docs" / "notation" / "water.toml"
    lines = [line for line in table.read_text().splitlines() if not line.startswith("'g'")]
    table.write_text("\n".join(lines))
    assert main(["check"]) == 1
    assert '\'g\' = { var = "GRAVITY", text = "..." }' in capsys.readouterr().out


def test_a_shape_that_does_not_fit_says_how_many_axes_to_name(tanks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", "tanks"])
    exercises = tanks / "docs" / "exercises.py"
    exercises.write_text(exercises.read_text().replace("outflow(draw(5), draw(5))", "outflow(draw(5, 3), draw(5, 3))"))
    assert main(["check"]) == 1
    said = capsys.readouterr().out
    assert "`h_n` is `level` of shape (5, 3), but its axes are: n" in said
    assert "name 2 axes, left to right" in said


PHYSICS = '''"""Physics."""

import numpy as np


def step(slope, t: float, y: np.ndarray, h: float) -> np.ndarray:
    # LaTeX: k_n = s(t, y_n)
    rise = slope(t, y)
    # LaTeX: y'_n = y_n + h k_n
    new = y + h * rise
    return new


def energy(coupling: float, spins: np.ndarray) -> float:
    # LaTeX: E = -J \\\\sum_i s_i s_{(i+1) \\\\bmod I}
    total = -coupling * np.sum(spins * np.roll(spins, -1))
    return total


def curvature(u: np.ndarray, dx: float) -> np.ndarray:
    # LaTeX: c_i = \\\\frac{u_{i+1} - 2 u_i + u_{i-1}}{(\\\\Delta x)^2}
    bend = (u[2:] - 2 * u[1:-1] + u[:-2]) / dx**2
    return bend


def smoothed(values: np.ndarray, alpha: float) -> float:
    average = values[0]
    for value in values[1:]:
        # LaTeX: a_t = \\\\alpha v + (1 - \\\\alpha) a_{t-1}
        average = alpha * value + (1 - alpha) * average
    return average


def ridge(design: np.ndarray, target: np.ndarray, penalty: float) -> np.ndarray:
    # LaTeX: b = (D^\\\\top D + \\\\lambda I)^{-1} D^\\\\top y
    beta = np.linalg.inv(design.T @ design + penalty * np.eye(design.shape[1])) @ design.T @ target
    return beta
'''.replace("\\\\", "\\")


def test_shifts_counts_functions_and_numbers_are_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "__init__.py").write_text("")
    (tmp_path / "lab" / "physics.py").write_text(PHYSICS)
    monkeypatch.chdir(tmp_path)
    assert main(["init", "lab"]) == 0
    table = (tmp_path / "docs" / "notation" / "physics.toml").read_text()
    for entry in (
        '\'s\' = { var = "slope", shape = "function"',
        "'I' = { var = \"len(spins)\"",
        "'\\Delta x' = { var = \"dx\"",
        '\'a_{t-1}\' = { var = "average", axes = "t", when = "before"',
        "'\\lambda' = { var = \"penalty\", text",
    ):
        assert entry in table
    assert "u_{i" not in table


def test_a_module_that_is_new_comes_with_the_calls_to_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "__init__.py").write_text("")
    (tmp_path / "lab" / "hill.py").write_text(HILL)
    monkeypatch.chdir(tmp_path)
    main(["init", "lab"])
    (tmp_path / "lab" / "physics.py").write_text(PHYSICS)
    capsys.readouterr()
    main(["init", "lab"])
    said = capsys.readouterr().out
    assert "docs/exercises.py is left as it is; these calls are not in it:" in said
    assert "    ridge(draw(4, 4)" in said
    assert "hill(" not in said


def test_functions_of_one_name_in_two_modules_are_both_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "__init__.py").write_text("")
    for name in ("one", "two"):
        (tmp_path / "lab" / f"{name}.py").write_text(HILL)
    monkeypatch.chdir(tmp_path)
    main(["init", "lab"])
    exercises = (tmp_path / "docs" / "exercises.py").read_text()
    assert "from lab.two import hill as two_hill" in exercises
    assert "    hill(draw(5)" in exercises
    assert "    two_hill(draw(5)" in exercises
