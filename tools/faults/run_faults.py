"""The fault harness: every promise about runs that die, tried so and so often.

python tools/faults/run_faults.py              the short form, as in `make test`
python tools/faults/run_faults.py --long       the long one, `make faults`: the table goes into docs/faults.md
python tools/faults/run_faults.py kills        one promise only

A case is a number: it is the same whenever it is tried. The long form notes each in benchmarks/results/faults.jsonl
with its date and commit, and leaves out those that went well before: it can be stopped and gone on with, one promise
at a time, on as many cores as there are.
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

from fault_files import damage, disks  # noqa: E402  found only now
from fault_hostile import hostile  # noqa: E402
from fault_kills import kills, populations, terminations, workers  # noqa: E402
from fault_runs import Case  # noqa: E402
from fault_snapshots import snapshots  # noqa: E402
from fault_stalls import stalls  # noqa: E402

from minerva.runs.folder import provenance  # noqa: E402

Note = dict[str, Any]
"""Record of a case: promise, number, name, failure, figures, date, commit."""


class Promise(NamedTuple):
    """What is promised, how to try it in a folder, and how often each form does so, if there are as many cases."""

    text: str
    prepare: Callable[[Path], Case]
    short: int
    long: int


PROMISES = {
    "kills": Promise(
        "SIGKILL inside every file operation of a save, at random, and while recovering: the finished run is the same",
        *(kills, 6, 200),
    ),
    "populations": Promise(
        "the same with seeds that are trained together: every seed's finished run is the same", populations, 3, 45
    ),
    "snapshots": Promise("environments restored from a snapshot: 1,000 steps are the same", snapshots, 1, 1000),
    "damage": Promise("bit flips and truncations noticed, named, survived", damage, 26, 1000),
    "hostile": Promise("hostile files: no code is run, nothing is written outside the folder", hostile, 15, 300),
    "disks": Promise(
        "disk full or an I/O error at each write, sync and rename: a whole checkpoint is left", disks, 36, 1000
    ),
    "workers": Promise("a worker that is killed, hangs or raises once: the finished run is the same", workers, 3, 60),
    "terminations": Promise(
        "SIGTERM or SIGINT at random: saved, exit code 3 within 10 s, and the finished run is the same",
        *(terminations, 3, 50),
    ),
    "stalls": Promise(
        "training waits for its checkpoints at most 1 % of its time: presets of HalfCheetah-v5, MPO's replay full",
        *(stalls, 0, 3),
    ),
}


# --- trying ---------------------------------------------------------------------------------------------------------


def try_all(name: str, numbers: list[int], jobs: int, notes: Path) -> None:
    """Run these cases, divided among several processes, and record the results."""
    made = {"date": time.strftime("%Y-%m-%d"), "commit": provenance()["commit"]}
    if jobs == 1:  # here, where the next promise finds the runs that this one made for comparison
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
            with open(notes, "a") as file:  # a line at once: others write here too
                file.write(json.dumps(note | ({"figures": figures} if figures else {})) + "\n")


def read_notes(path: Path) -> dict[str, dict[int, Note]]:
    """Return the records by promise and number; of repeated cases the last one counts."""
    found: dict[str, dict[int, Note]] = {name: {} for name in PROMISES}
    for line in path.read_text().splitlines() if path.exists() else []:
        note = json.loads(line)
        found[note["promise"]][note["number"]] = note
    return found


# --- telling --------------------------------------------------------------------------------------------------------


def told(name: str, notes: list[Note]) -> str:
    """Return a line about a promise, and the cases that broke it."""
    broken = [note for note in notes if note["failure"]]
    lines = [f"{name}: {len(notes)} cases, {len(broken)} broken{_figures(notes)}"]
    return "\n".join(lines + [f"  {note['number']} {note['case']}: {note['failure']}" for note in broken])


def page(notes: dict[str, dict[int, Note]]) -> str:
    """Return the text of docs/faults.md."""
    versions = provenance()["versions"]
    used = ", ".join(f"{name} {versions[name]}" for name in ("torch", "gymnasium", "mujoco", "dm-control"))
    return "\n".join(
        [
            "# What was tried to break a run",
            "",
            "Generated by `make faults`. How the cases are made: `tools/faults`; every single one that was tried:",
            "`benchmarks/results/faults.jsonl`. A run is the same if state, replay, metrics, evaluations and",
            "TensorBoard files are, bit for bit, those of a run that was left alone.",
            "",
            f"{used}, one thread, CPU.",
            "",
            "| promise | cases | broken | | date | commit |",
            "|---|---|---|---|---|---|",
            *(_row(PROMISES[name].text, list(tried.values())) for name, tried in notes.items() if tried),
            "",
            "Left out: `quadruped/escape` of dm_control, whose terrain can only be made with OpenGL.",
            "",
        ]
    )


def _row(text: str, notes: list[Note]) -> str:
    broken = sum(bool(note["failure"]) for note in notes)
    dates, commits = ([*dict.fromkeys(note[name] for note in notes)] for name in ("date", "commit"))
    figures = _figures(notes).removeprefix(", ")
    return f"| {text} | {len(notes)} | {broken} | {figures} | {', '.join(dates)} | {', '.join(map(str, commits))} |"


def _figures(notes: list[Note]) -> str:
    """Return the sums of counts and the maxima of measured figures."""
    names = dict.fromkeys(name for note in notes for name in note.get("figures", {}))
    values = {name: [note["figures"][name] for note in notes if name in note.get("figures", {})] for name in names}
    whole = {name: sum(all_) if name == "kills" else max(all_) for name, all_ in values.items()}
    return "".join(f", {name}: {round(value, 2):g}" for name, value in whole.items())


def main() -> int:
    """Run the cases of the command line. Return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("promises", nargs="*", choices=[*PROMISES, []], help="default: all")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--count", type=int, help="cases of each promise, if there are as many")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that try them")
    parser.add_argument("--again", action="store_true", help="also what went well before")
    parser.add_argument("--notes", type=Path, help="where the cases are noted (default of --long: benchmarks/results)")
    parser.add_argument("--page", action="store_true", help="try nothing, and write docs/faults.md from the notes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        notes: Path = options.notes or (NOTES if options.long or options.page else Path(folder) / "notes.jsonl")
        for name in [] if options.page else options.promises or PROMISES:
            known = {} if options.again else read_notes(notes)[name]
            usual = PROMISES[name].long if options.long else PROMISES[name].short
            count = usual if options.count is None else options.count
            left = [n for n in range(count) if n not in known or known[n]["failure"]]
            try_all(name, left, options.jobs if options.long else 1, notes)
            print(told(name, list(read_notes(notes)[name].values())), flush=True)
        results = read_notes(notes)
        if options.page or (options.long and notes == NOTES):
            PAGE.write_text(page(results))
    return int(any(note["failure"] for tried in results.values() for note in tried.values()))


if __name__ == "__main__":
    sys.exit(main())
