"""The fault harness in its short form. `make faults` is the long one."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fault_tests import missing

HARNESS = Path(__file__).parents[2] / "tools" / "faults" / "run_faults.py"
CASES = {"kills": 6, "populations": 3, "snapshots": 1, "damage": 26, "hostile": 15, "disks": 36, "workers": 3}
CASES |= {"terminations": 3}
TOGETHER = [("kills", "terminations"), ("hostile", "damage", "populations", "workers", "disks", "snapshots")]
"""In two processes, each of which makes the runs that it compares with once."""


DAY = int(time.time()) // 86_400


def tried(notes: Path, *arguments: Any) -> list[tuple[str, int, str]]:
    """Run the harness; return promise, number and failure of each case."""
    environment = {**os.environ, "PYTHONPATH": str(HARNESS.parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HARNESS), *map(str, arguments), "--notes", str(notes)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1200)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    cases = [json.loads(line) for line in notes.read_text().splitlines()]
    return [(case["promise"], case["number"], case["failure"]) for case in cases]


@pytest.mark.slow
@pytest.mark.parametrize("promises", TOGETHER, ids=" ".join)
def test_every_promise_is_kept(promises: tuple[str, ...], tmp_path: Path) -> None:
    assert tried(tmp_path / "notes.jsonl", *promises) == [
        (promise, number, "") for promise in promises for number in range(CASES[promise])
    ]


@pytest.mark.slow
def test_a_run_that_is_killed_in_every_phase_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """One algorithm on one engine, another one each day: a case takes half a minute."""
    assert tried(tmp_path / "notes.jsonl", "phases", "--first", DAY, "--count", 1) == [("phases", DAY, "")]


def test_what_the_page_says_is_covered_by_a_test_is() -> None:
    assert missing() == []


def test_every_promise_but_the_one_that_takes_minutes_is_tried() -> None:
    assert {promise for group in TOGETHER for promise in group} == CASES.keys()
