"""The fault harness in its short form. `make faults` is the long one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).parents[2] / "tools" / "faults" / "run_faults.py"
CASES = {"kills": 6, "populations": 3, "snapshots": 1, "damage": 26, "hostile": 15, "disks": 36, "workers": 3}
CASES |= {"terminations": 3}
TOGETHER = [("kills", "terminations"), ("hostile", "damage", "populations", "workers", "disks", "snapshots")]
"""In two processes, each of which makes the runs that it compares with once."""


@pytest.mark.slow
@pytest.mark.parametrize("promises", TOGETHER, ids=" ".join)
def test_every_promise_is_kept(promises: tuple[str, ...], tmp_path: Path) -> None:
    notes = tmp_path / "notes.jsonl"
    environment = {**os.environ, "PYTHONPATH": str(HARNESS.parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HARNESS), *promises, "--notes", str(notes)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1200)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    tried = [json.loads(line) for line in notes.read_text().splitlines()]
    assert [(one["promise"], one["number"], one["failure"]) for one in tried] == [
        (promise, number, "") for promise in promises for number in range(CASES[promise])
    ]


def test_every_promise_but_the_one_that_takes_minutes_is_tried() -> None:
    assert {promise for group in TOGETHER for promise in group} == CASES.keys()
