"""Minerva without the extra: nothing imports Ray, and what needs it says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minerva.cli.main import main
from minerva.lab.cluster import engine

REPOSITORY = Path(__file__).parents[3]

EVERYTHING_ELSE = """
import importlib, pkgutil, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("ray", "optuna"):
            raise AssertionError(f"{name} is imported")
sys.meta_path.insert(0, Refuse())
import minerva
for module in pkgutil.walk_packages(minerva.__path__, "minerva."):
    if module.name not in ("minerva.__main__", "minerva.lab.export.run_policy"):  # programs
        importlib.import_module(module.name)
from minerva.cli.main import main
assert main(["--help"]) == 0
assert main(["benchmark", "--algos", "ppo", "--envs", "Pendulum-v1", "--status"]) == 0
print("imported", len(sys.modules))
"""


def test_nothing_imports_ray_until_it_is_asked_for(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EVERYTHING_ELSE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert done.returncode == 0, done.stderr
    assert "imported" in done.stdout


def test_without_ray_its_users_are_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: None)
    command = ["benchmark", "--algos", "ppo", "--envs", "Pendulum-v1", "--executor", "ray", "--out", str(tmp_path)]
    assert main(command) == 2
    assert "pip install " in capsys.readouterr().err
