"""Every example is run as it is: scripts as scripts, the notebook from top to bottom."""

import runpy
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOK = EXAMPLES / "first_steps.ipynb"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_runs(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom_and_is_not_flooded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MPLBACKEND")  # a notebook draws into itself
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "commit it without outputs"
    NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = ["".join(out.get("text", "") for out in cell.get("outputs", [])) for cell in notebook.cells]
    assert all(len(text.splitlines()) <= 10 for text in shown)
    assert sum("steps: return" in line for text in shown for line in text.splitlines()) == 3
    kinds = [kind for cell in notebook.cells for out in cell.get("outputs", []) for kind in out.get("data", {})]
    assert "image/png" in kinds


def test_the_list_of_examples_is_complete() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    assert all(f"`{path.name}`" in listed for path in [*SCRIPTS, NOTEBOOK])
