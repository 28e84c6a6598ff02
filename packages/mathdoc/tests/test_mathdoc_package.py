"""What the package needs to be imported and to check: NumPy, and nothing else that the checked code does not use."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mathdoc

PROJECT = Path(mathdoc.__file__).parents[1]

FALLING = {
    "falling/__init__.py": (
        "import numpy as np\n\n\ndef fall(height):\n"
        "    # LaTeX: t = \\sqrt{\\frac{2 h}{9.81}}\n    time = np.sqrt(2 * height / 9.81)\n    return time\n"
    ),
    "docs/notation/falling.toml": '[functions.fall]\n\'h\' = { var = "height", text = "height" }\n',
    "docs/exercises.py": "from falling import fall\n\ndef run(dtype, seed):\n    fall(2.0 + seed)\n",
    "pyproject.toml": '[tool.mathdoc]\npackage = "falling"\n',
}

ONLY_NUMPY = """
import sys
from importlib.abc import MetaPathFinder

FOREIGN = {"torch", "jax", "quickjs", "pygments", "markdown", "jinja2", "yaml", "sphinx", "IPython", "pytest"}

class Absent(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in FOREIGN:
            raise ModuleNotFoundError(f"{name} is not installed", name=name)

sys.meta_path.insert(0, Absent())
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.split(".")[0] in FOREIGN else find(name, *rest)
from mathdoc.__main__ import main
code = main(sys.argv[1:])
print("foreign:", sorted(FOREIGN & sys.modules.keys()))
sys.exit(code)
"""


@pytest.fixture
def falling(tmp_path: Path) -> Path:
    for name, text in FALLING.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def without_others(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`mathdoc ...` where NumPy is the only other package."""
    command = [sys.executable, "-c", ONLY_NUMPY, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_numpy_alone_is_enough_to_check(falling: Path) -> None:
    done = without_others(falling, "check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 formulas: 1 verified" in done.stdout
    assert 'Whether KaTeX accepts the formulas was not checked: pip install "mathdoc[site]"' in done.stdout
    assert "foreign: []" in done.stdout


def test_code_in_numpy_is_checked_without_importing_torch_or_jax_where_they_are_installed(falling: Path) -> None:
    script = (
        "import sys; from mathdoc.__main__ import main; code = main(['check', 'falling']); "
        "print('imported:', {'torch', 'jax'} & sys.modules.keys()); sys.exit(code)"
    )
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run([sys.executable, "-c", script], cwd=falling, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "imported: set()" in done.stdout


def test_pages_without_the_extra_are_refused_with_its_name(falling: Path) -> None:
    done = without_others(falling, "build", "falling", "out")
    assert done.returncode == 2
    assert 'pip install "mathdoc[site]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_only_numpy_is_required() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert [line.partition(">")[0] for line in project["dependencies"]] == ["numpy"]


def test_files_stand_for_the_packages_they_belong_to(falling: Path) -> None:
    (falling / "notes.txt").touch()
    for files, checked in ((["falling/__init__.py"], 1), (["docs/notation/falling.toml"], 1), (["notes.txt"], 0)):
        done = without_others(falling, "check", "--files", *files)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("1 formulas: 1 verified") == checked
