"""The fault harness: test every guarantee about interrupted runs, many times over.

python tools/faults/run_faults.py              the short form, as in `make test`
python tools/faults/run_faults.py --long       the long form, `make faults`: writes the table in docs/faults.md
python tools/faults/run_faults.py kills        one guarantee only
python tools/faults/run_faults.py phases --first 7 --count 1    one case only

A case is identified by its number and reproducible. The long form records each case in
benchmarks/results/faults.jsonl with date and commit, and skips those that passed before: it can be interrupted and
continued, one guarantee at a time, on all cores.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "faults.md"
NOTES = REPOSITORY / "benchmarks" / "results" / "faults.jsonl"
for folder in ("", "tests/support", "tests/envs"):
    sys.path.insert(0, str(REPOSITORY / folder))

from fault_files import damage, disks  # noqa: E402  on the path only now
from fault_hostile import hostile  # noqa: E402
from fault_kills import kills, populations, terminations, workers  # noqa: E402
from fault_phases import phases, table  # noqa: E402
from fault_runs import Case  # noqa: E402
from fault_snapshots import snapshots  # noqa: E402
from fault_stalls import stalls  # noqa: E402
from fault_tests import chapters  # noqa: E402

from minerva.runs.folder import provenance  # noqa: E402

Note = dict[str, Any]
"""Record of a case: promise, number, name, failure, figures, date, commit."""


class Promise(NamedTuple):
    """A guarantee, how to test it in a folder, and how many cases the short and the long form run at most."""

    text: str
    prepare: Callable[[Path], Case]
    short: int
    long: int


PROMISES = {
    "kills": Promise(
        "SIGKILL in each file operation of a save, at random times, and during recovery: the finished run is identical",
        *(kills, 6, 200),
    ),
    "phases": Promise(
        "SIGKILL once in each phase of a run, for each algorithm on each engine: no process is left, and the finished "
        "run is identical; EnvPool, whose simulators cannot be saved, says so and ends with a sound folder",
        *(phases, 1, 144),
    ),
    "populations": Promise(
        "SIGKILL with seeds that are trained together: every seed's finished run is identical", populations, 3, 45
    ),
    "snapshots": Promise(
        "environments restored from a snapshot: the next 1,000 steps are identical", snapshots, 1, 1000
    ),
    "damage": Promise("flipped bits and truncated files: detected, reported by name, and survived", damage, 26, 1000),
    "hostile": Promise("malicious files: no code is executed, nothing is written outside the folder", hostile, 15, 300),
    "disks": Promise(
        "full disk or I/O error at each write, sync and rename: an intact checkpoint remains", disks, 36, 1000
    ),
    "workers": Promise(
        "an environment process that is killed, hangs or raises once: the finished run is identical", workers, 3, 60
    ),
    "terminations": Promise(
        "SIGTERM or SIGINT at random times: saved and ended by itself within 10 s, and the finished run is identical",
        *(terminations, 3, 50),
    ),
    "stalls": Promise(
        "training waits at most 1 % of its time for checkpoints: presets of HalfCheetah-v5, MPO with a full replay",
        *(stalls, 0, 3),
    ),
}


# --- running ---------------------------------------------------------------------------------------------------------


def try_all(name: str, numbers: list[int], jobs: int, notes: Path) -> None:
    """Run these cases, divided among `jobs` processes, and record the outcomes."""
    made = {"date": time.strftime("%Y-%m-%d"), "commit": provenance()["commit"]}
    if jobs == 1:  # in this process: the next promise reuses the reference runs that this one made
        _try_some(name, numbers, notes, made)
        return
    pids = []
    for job in range(min(jobs, len(numbers))):
        pid = os.fork()
        if pid == 0:
            _leave_after(lambda job=job: _try_some(name, numbers[job::jobs], notes, made))
        pids.append(pid)
    for pid in pids:
        if os.waitpid(pid, 0)[1] != 0:
            raise SystemExit(f"{name}: the harness itself failed")


def _leave_after(work: Callable[[], None]) -> None:
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _try_some(name: str, numbers: list[int], notes: Path, made: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        case = PROMISES[name].prepare(Path(folder))
        for number in numbers:
            try:
                tried, failure, figures = case(number)
            except StopIteration:
                return
            note = {"promise": name, "number": number, "case": tried, "failure": failure, **made}
            with open(notes, "a") as file:  # one write per line: other processes append here too
                file.write(json.dumps(note | ({"figures": figures} if figures else {})) + "\n")


def read_notes(path: Path) -> dict[str, dict[int, Note]]:
    """Return the records by promise and number; of several attempts at one case, the last counts."""
    found: dict[str, dict[int, Note]] = {name: {} for name in PROMISES}
    for line in path.read_text().splitlines() if path.exists() else []:
        note = json.loads(line)
        found[note["promise"]][note["number"]] = note
    return found


# --- reporting --------------------------------------------------------------------------------------------------------


def summary(name: str, notes: list[Note]) -> str:
    """Return a promise in one line, followed by the cases that broke it."""
    broken = [note for note in notes if note["failure"]]
    lines = [f"{name}: {len(notes)} cases, {len(broken)} broken{_figures(notes)}"]
    return "\n".join(lines + [f"  {note['number']} {note['case']}: {note['failure']}" for note in broken])


def page(notes: dict[str, dict[int, Note]]) -> str:
    """Return the text of docs/faults.md."""
    versions = provenance()["versions"]
    used = ", ".join(f"{name} {versions[name]}" for name in ("torch", "gymnasium", "mujoco", "dm-control"))
    return "\n".join(
        [
            "# Fault tests",
            "",
            "What Minerva guarantees when a run is killed, its files are damaged or its disk is full, and how often",
            "that was tested. Generated by `make faults`. The tests are in `tools/faults`; every case is recorded in",
            "`benchmarks/results/faults.jsonl`. Two runs are identical if state, replay, metrics, evaluations and",
            "TensorBoard files agree bit for bit; the reference is an undisturbed run.",
            "",
            f"{used}, one thread, CPU.",
            "",
            "| guarantee | cases | broken | measured | date | commit |",
            "|---|---|---|---|---|---|",
            *(_row(PROMISES[name].text, list(tried.values())) for name, tried in notes.items() if tried),
            "",
            "Not included: `quadruped/escape` of dm_control, whose terrain needs OpenGL.",
            "",
            "## Kills by phase",
            "",
            "Each run was killed once in every phase, at its start first and then in an order by lot, after a number",
            "of function calls by lot. A phase that was shorter was killed as it ended. "
            f"{len(notes['phases'])} of {PROMISES['phases'].long} cases have been run.",
            "",
            *table([*notes["phases"].values()]),
            "",
            "## What `make test` covers",
            "",
            "These faults have a test each. Readers of files are also given mutations of what",
            "Minerva writes, for two seconds each; `MINERVA_FUZZ_SECONDS=600 pytest tests/fuzz` tries longer.",
            "",
            *chapters(),
            "",
        ]
    )


def _row(text: str, notes: list[Note]) -> str:
    broken = sum(bool(note["failure"]) for note in notes)
    dates, commits = ([*dict.fromkeys(note[name] for note in notes)] for name in ("date", "commit"))
    figures = _figures(notes).removeprefix(", ")
    return f"| {text} | {len(notes)} | {broken} | {figures} | {', '.join(dates)} | {', '.join(map(str, commits))} |"


def _figures(notes: list[Note]) -> str:
    """Return the totals of counts and the maxima of measurements."""
    names = dict.fromkeys(name for note in notes for name in note.get("figures", {}))
    values = {name: [note["figures"][name] for note in notes if name in note.get("figures", {})] for name in names}
    whole = {name: sum(all_) if name.startswith("kills") else max(all_) for name, all_ in values.items()}
    return "".join(f", {name}: {round(value, 2):g}" for name, value in whole.items())


def main() -> int:
    """Run the requested cases; return exit code 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("promises", nargs="*", choices=[*PROMISES, []], help="default: all")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--count", type=int, help="cases of each promise, at most")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of processes")
    parser.add_argument("--again", action="store_true", help="repeat cases that passed before")
    parser.add_argument(
        "--notes", type=Path, help="file of the records (default of --long: benchmarks/results/faults.jsonl)"
    )
    parser.add_argument("--page", action="store_true", help="run nothing; write docs/faults.md from the records")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        notes: Path = options.notes or (NOTES if options.long or options.page else Path(folder) / "notes.jsonl")
        for name in [] if options.page else options.promises or PROMISES:
            known = {} if options.again else read_notes(notes)[name]
            usual = PROMISES[name].long if options.long else PROMISES[name].short
            count = usual if options.count is None else options.count
            numbers = range(options.first, options.first + count)
            left = [n for n in numbers if n not in known or known[n]["failure"]]
            try_all(name, left, options.jobs if options.long else 1, notes)
            print(summary(name, list(read_notes(notes)[name].values())), flush=True)
        results = read_notes(notes)
        if options.page or (options.long and notes == NOTES):
            PAGE.write_text(page(results))
    return int(any(note["failure"] for tried in results.values() for note in tried.values()))


if __name__ == "__main__":
    sys.exit(main())
