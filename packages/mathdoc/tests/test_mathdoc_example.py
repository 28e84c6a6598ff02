"""The worked example: three fields in three libraries. All of it holds, and what is broken in a copy is refused."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mathdoc

PROJECT = Path(mathdoc.__file__).parents[1]
EXAMPLE = PROJECT / "examples" / "fields"


def checked(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-m", "mathdoc", "check", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_every_formula_of_the_example_is_verified_in_all_three_libraries(tmp_path: Path) -> None:
    done = checked(EXAMPLE, "--json", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert {record["status"] for record in found} == {"verified"}
    modules = [record["id"].partition("#")[0] for record in found]
    assert {module: modules.count(module) for module in modules} == {"adam": 7, "attention": 4, "kalman": 8}
    assert all(record["rejected"] == record["mutants"] > 0 for record in found)
    losses = {record["file"]: record["gradient"] for record in found if "mathcal{L}" in record["left"]["tex"]}
    assert losses["fields/adam.py"] is not None
    assert losses["fields/attention.py"] is not None


BROKEN = {
    "a line inside jit": ("adam", "FAST * moments.first + (1 - FAST) * gradient", "FAST * moments.first + gradient"),
    "a line inside grad": ("adam", "targets - inputs @ weights", "targets + inputs @ weights"),
    "a gradient of JAX": ("adam", "jnp.mean(errors**2)", "jnp.mean(jax.lax.stop_gradient(errors) ** 2)"),
    "a gradient of PyTorch": ("attention", "teacher.detach()", "teacher"),
    "a Kalman gain": ("kalman", "(1 - gain) * self.variance", "(1 - gain) ** 2 * self.variance"),
}


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is said of a copy in which all of these lines are wrong."""
    copy = tmp_path_factory.mktemp("broken") / "fields"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for module, right, wrong in BROKEN.values():
        path = copy / "fields" / f"{module}.py"
        assert path.read_text().count(right) == 1
        path.write_text(path.read_text().replace(right, wrong))
    done = checked(copy)
    assert done.returncode == 1, done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "formula", "says"), [
    ("a line inside jit", r"m'_k = \beta_1 m_k", "the formula gives"),
    ("a line inside grad", r"e_n = t_n - \sum_k", "it would hold with the other sign"),
    ("a gradient of JAX", r"\mathcal{L} = \frac{1}{2} \mathbb{E}_n", "gradients in `e_n` differ"),
    ("a gradient of PyTorch", r"\mathcal{L} = \mathbb{E}_i", "gradients in `y_{i,e}` differ"),
    ("a Kalman gain", r"P'_n = (1 - K_n) P_n", "it would hold with a factor `1 - K_n`"),
])  # fmt: skip
def test_a_line_that_was_broken_is_refused(refusals: str, name: str, formula: str, says: str) -> None:
    about = [part for part in refusals.split("\n\n") if formula in part]
    assert any(says in part for part in about), refusals
