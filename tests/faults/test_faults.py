"""The fault harness in its short form. `make faults` is the long one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).parents[2] / "tools" / "faults" / "run_faults.py"
CASES = {
    "kills": 12,
    "populations": 3,
    "snapshots": 6,
    "damage": 50,
    "hostile": 30,
    "disks": 36,
    "workers": 3,
    "terminations": 5,
}


@pytest.mark.parametrize("promise", CASES)
def test_every_promise_is_kept(promise: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes.jsonl"
    environment = {**os.environ, "PYTHONPATH": str(HARNESS.parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HARNESS), promise, "--notes", str(notes)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1200)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    tried = [json.loads(line) for line in notes.read_text().splitlines()]
    assert [(one["number"], one["failure"]) for one in tried] == [(number, "") for number in range(CASES[promise])]
