"""`pytest --mathdoc` in a session of its own: what is collected, what fails and how, what is chosen and reported."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import mathdoc

PROJECT = Path(mathdoc.__file__).parents[1]
PLUGINS = ("-p", "mathdoc.pytest_plugin", "-p", "xdist")


@pytest.fixture(scope="module")
def orbit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with three formulas, of which the second is wrong, and one ordinary test."""
    root = tmp_path_factory.mktemp("orbit")
    marked = (
        "import numpy as np\n\n\ndef period(axis, mass):\n"
        "    # LaTeX: T = 2 \\pi \\sqrt{\\frac{a^3}{M}}\n    time = 2 * np.pi * np.sqrt(axis**3 / mass)\n"
        "    # LaTeX: v = \\frac{\\pi a}{T}\n    speed = 2 * np.pi * axis / time\n"
        "    # LaTeX: E = \\frac{v^2}{2}\n    energy = speed**2 / 2\n    return energy\n"
    )
    table = (
        '[functions.period]\n\'\\pi\' = { var = "np.pi", text = "pi" }\n\'a\' = { var = "axis", text = "axis" }\n'
        '\'M\' = { var = "mass", text = "mass" }\n'
    )
    for name, text in {
        "orbit/__init__.py": '"""Planets."""\n',
        "orbit/kepler.py": marked,
        "docs/notation/kepler.toml": table,
        "docs/exercises.py": (
            "from orbit.kepler import period\n\n\ndef run(dtype, seed):\n    period(2.0 + seed, 3.0 + seed)\n"
        ),
        "tests/test_orbit.py": "def test_ordinary():\n    pass\n",
        "pyproject.toml": '[tool.mathdoc]\npackage = "orbit"\n[tool.pytest.ini_options]\ntestpaths = ["tests"]\n',
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def session(folder: Path, *arguments: str) -> str:
    """What a session of pytest prints."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_XDIST")}
    command = [sys.executable, "-m", "pytest", *PLUGINS, "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_each_formula_is_a_test_beside_the_others_and_the_report_has_them(orbit: Path, tmp_path: Path) -> None:
    said = session(orbit, "--mathdoc", "-v", f"--junitxml={tmp_path / 'junit.xml'}")
    for passed in ("kepler.py::notation", "kepler.py::period-t", "kepler.py::period-e", "test_orbit.py::test_ordinary"):
        assert f"{passed} PASSED" in said, said
    assert "kepler.py::period-v FAILED" in said
    assert "# LaTeX: v = \\frac{\\pi a}{T}" in said
    assert "it would hold with a factor 2" in said
    assert "Traceback" not in said
    cases = {case.get("name"): case for case in ElementTree.parse(tmp_path / "junit.xml").iter("testcase")}
    properties = {p.get("name"): p.get("value") for p in cases["period-t"].iter("property")}
    assert properties["status"] == "verified"
    assert cases["period-v"].find("failure") is not None


def test_without_the_option_formulas_are_left_alone(orbit: Path) -> None:
    assert "1 passed" in session(orbit)


def test_formulas_are_chosen_by_name_and_by_file_and_the_first_failure_can_end_the_session(orbit: Path) -> None:
    assert "1 passed, 4 deselected" in session(orbit, "--mathdoc", "-k", "period-t")
    assert "1 failed, 2 passed" in session(orbit, "--mathdoc", "-x", "orbit/kepler.py")


def test_workers_share_the_formulas(orbit: Path) -> None:
    assert "1 failed, 4 passed" in session(orbit, "--mathdoc", "-n", "2")


def test_an_unknown_symbol_fails_the_test_of_the_notation(orbit: Path, tmp_path: Path) -> None:
    shutil.copytree(orbit, tmp_path / "copy")
    table = tmp_path / "copy" / "docs" / "notation" / "kepler.toml"
    table.write_text(table.read_text().replace("'M'", "'m'"))
    said = session(tmp_path / "copy", "--mathdoc", "-v", "orbit")
    assert "kepler.py::notation FAILED" in said
    assert "`M` is not defined" in said


def test_a_level_that_is_lost_fails_as_it_does_on_the_command_line(orbit: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(orbit, copy)
    kepler, levels = copy / "orbit" / "kepler.py", copy / "docs" / "formulas.json"
    kepler.write_text(kepler.read_text().replace("\\frac{\\pi a}{T}", "\\frac{2 \\pi a}{T}"))
    names = {f"kepler#f-period-{name}": "verified" for name in "tve"}
    levels.write_text(json.dumps(names))
    assert "5 passed" in session(copy, "--mathdoc", "orbit/kepler.py")
    levels.write_text(json.dumps({**names, "newton#f-force-f": "verified"}))
    said = session(copy, "--mathdoc", "-v", "orbit")
    assert "kepler.py::baseline FAILED" in said
    assert "newton#f-force-f was verified and is gone" in said
    command = [sys.executable, "-m", "mathdoc", "check", "orbit"]
    done = subprocess.run(
        command, cwd=copy, env={**os.environ, "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "newton#f-force-f was verified and is gone" in done.stderr


def test_an_installed_package_brings_the_option() -> None:
    entries = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert entries["pytest11"] == {"mathdoc": "mathdoc.pytest_plugin"}
