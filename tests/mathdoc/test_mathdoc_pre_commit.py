"""The hook for pre-commit: run as pre-commit runs it, with the changed files behind its command."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
(HOOK,) = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())


@pytest.fixture
def two_packages(tmp_path: Path) -> Path:
    """Two projects side by side; a formula of the second is wrong."""
    for name, factor in (("circle", "2"), ("square", "3")):
        for file, text in {
            f"{name}/{name}/__init__.py": f"def f(r):\n    # LaTeX: z = 2 r\n    z = {factor} * r\n    return z\n",
            f"{name}/docs/notation/{name}.toml": '[functions.f]\n\'r\' = { var = "r", text = "radius" }\n',
            f"{name}/docs/exercises.py": f"from {name} import f\n\ndef run(dtype, seed):\n    f(1.5 + seed)\n",
            f"{name}/pyproject.toml": f'[tool.mathdoc]\npackage = "{name}"\n',
        }.items():
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(text)
    return tmp_path


def hooked(folder: Path, *changed: str) -> subprocess.CompletedProcess[str]:
    wanted = [name for name in changed if re.search(HOOK["files"], name)]
    program, *arguments = shlex.split(HOOK["entry"])
    assert program == "python"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "packages" / "mathdoc")}
    command = [sys.executable, *arguments, *wanted]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_only_the_packages_of_the_changed_files_are_checked(two_packages: Path) -> None:
    done = hooked(two_packages, "circle/circle/__init__.py", "README.md")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 formulas: 1 verified" in done.stdout
    done = hooked(two_packages, "circle/circle/__init__.py", "square/docs/notation/square.toml")
    assert done.returncode == 1
    assert "square/square/__init__.py:2:14: the formula gives" in done.stdout
    assert done.stdout.count(" formulas: ") == 2
