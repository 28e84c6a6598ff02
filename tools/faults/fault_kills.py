"""Processes that die: the run's, by SIGKILL, SIGTERM or SIGINT, and an environment's."""

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from fault_runs import Case, Child, Outcome, Reference, dying_at, finished_like, reference, train
from fault_tasks import TASKS

from minerva.envs.engines import subprocesses as processes
from minerva.runs.folder import RunFolder

ALGOS = list(TASKS)


def references(folder: Path, **changed: Any) -> dict[str, Reference]:
    """Return an undisturbed reference run of every algorithm."""
    return {algo: reference(algo, folder / f"reference_{algo}", **changed) for algo in ALGOS}


# --- SIGKILL --------------------------------------------------------------------------------------------------------


def kills(folder: Path) -> Case:
    """SIGKILL in turn inside a file operation of a save, until all have been, and at random.

    A quarter of the latter are killed again while they recover.
    """
    known = references(folder)
    of_a_save = {algo: operations_of_a_save(run, algo) for algo, run in known.items()}

    def case(number: int) -> Outcome:
        source, algo = random.Random(f"kill {number}"), ALGOS[number % len(ALGOS)]
        run, place = known[algo], folder / f"kill_{number}"
        turn, at_random = divmod(number // len(ALGOS), 2)
        if turn < len(of_a_save[algo]) and not at_random:
            names = _killed_in(algo, place, of_a_save[algo][turn], run)
        else:
            names = _killed_somehow(algo, place, run, source)
            if source.random() < 0.25:
                names += _kill(algo, place, run, source)
        failure = finished_like(algo, place, run.outcome)
        shutil.rmtree(place, ignore_errors=True)
        return Outcome(f"{algo} killed {' and '.join(names)}", failure, {"kills": len(names)})

    return case


def populations(folder: Path) -> Case:
    """Kill seeds that are trained together: some may have saved a checkpoint, others not."""
    together = {"seeds": "0,4"}
    known = references(folder, **together)

    def case(number: int) -> Outcome:
        source, algo = random.Random(f"population {number}"), ALGOS[number % len(ALGOS)]
        run, place = known[algo], folder / f"kill_{number}"
        names = _killed_somehow(algo, place, run, source, **together)
        if source.random() < 0.25:
            names += _kill(algo, place, run, source, **together)
        failure = finished_like(algo, place, run.outcome, **together)
        shutil.rmtree(place, ignore_errors=True)
        return Outcome(f"{algo}, two seeds, killed {' and '.join(names)}", failure, {"kills": len(names)})

    return case


def operations_of_a_save(run: Reference, algo: str) -> list[int]:
    """The numbers of the file operations of one save amid the run, of writes in pieces some; in an order by lot."""
    renames = [n for n, name in enumerate(run.operations) if name == f"rename {algo}_last.safetensors"]
    first, last = renames[len(renames) // 2] + 1, renames[len(renames) // 2 + 1]
    pieces = [n for n in range(first, last + 1) if run.operations[n].startswith("write")]
    left_out = {n for i, n in enumerate(pieces) if i % 4}
    found = [n for n in range(first, last + 3) if n not in left_out]  # the folder's sync and a removal come after
    random.Random(0).shuffle(found)
    return found


def _killed_in(algo: str, place: Path, operation: int, run: Reference) -> list[str]:
    ended = train(algo, place, dying_at(operation)).wait()
    if ended.code != -signal.SIGKILL:
        raise RuntimeError(f"{algo} did not reach file operation {operation}: {ended.code}, {ended.text}")
    return [f"in {run.operations[operation]} ({operation})"]


def _killed_somehow(algo: str, place: Path, run: Reference, source: random.Random, **changed: Any) -> list[str]:
    """Repeat until a kill succeeds: a run that ended before its kill does not count."""
    while True:
        shutil.rmtree(place, ignore_errors=True)
        names = _kill(algo, place, run, source, **changed)
        if names:
            return names


def _kill(algo: str, place: Path, run: Reference, source: random.Random, **changed: Any) -> list[str]:
    """Start or resume a run and kill it; return where, or an empty list if it ended before."""
    if source.random() < 0.4:
        number = source.randrange(len(run.operations))
        ended, name = train(algo, place, dying_at(number), **changed).wait(), f"in {run.operations[number]} ({number})"
    else:
        child, delay = train(algo, place, **changed), source.uniform(0, run.seconds)
        time.sleep(delay)
        child.send(signal.SIGKILL)
        ended, name = child.wait(), f"after {delay:.2f} s"
    return [name] if ended.code == -signal.SIGKILL else []


# --- SIGTERM --------------------------------------------------------------------------------------------------------


def terminations(folder: Path) -> Case:
    """SIGTERM or SIGINT at a random moment: its status within ten seconds, a resume command, and nothing lost."""
    known = references(folder)

    def case(number: int) -> Outcome:
        source, algo = random.Random(f"signal {number}"), ALGOS[number % len(ALGOS)]
        run, place = known[algo], folder / f"term_{number}"
        which = source.choice((signal.SIGTERM, signal.SIGINT))
        while True:
            shutil.rmtree(place, ignore_errors=True)
            child, delay = train(algo, place), source.uniform(0, run.seconds)
            time.sleep(delay)
            failure, seconds = _terminated(child, which, algo, place)
            if failure is not None:  # it had not ended before
                break
        failure = failure or finished_like(algo, place, run.outcome)
        shutil.rmtree(place, ignore_errors=True)
        return Outcome(f"{algo}: {which.name} after {delay:.2f} s", failure, {"slowest exit, s": seconds})

    return case


def _terminated(child: Child, number: signal.Signals, algo: str, place: Path) -> tuple[str | None, float]:
    child.send(number)
    sent = time.monotonic()
    ended = child.wait()
    seconds = time.monotonic() - sent
    if ended.code == 0:
        return None, seconds
    begun = RunFolder(place, algo).last.exists()
    resume_command_printed = f"minerva train {algo} --resume {place}" in ended.text or not begun
    if ended.code != 128 + number or seconds > 10 or not resume_command_printed or "Traceback" in ended.text:
        return f"exit code {ended.code} after {seconds:.1f} s: {ended.text[-500:]}", seconds
    return "", seconds


# --- workers --------------------------------------------------------------------------------------------------------

FAULTS = ("raises", "is killed", "hangs")


def workers(folder: Path) -> Case:
    """An environment's process that raises, is killed or hangs once, while training or while evaluating."""
    options = {"engine": "processes", "env": "fault_envs:FaultyHopper-v0"}
    known: dict[str, Reference] = {}

    def case(number: int) -> Outcome:
        algo = ALGOS[number % len(ALGOS)]
        if algo not in known:
            known[algo] = reference(algo, folder / f"reference_{algo}", **options)
        fault = FAULTS[(number + number // len(ALGOS)) % len(FAULTS)]
        at, mark = random.Random(f"worker {number}").randrange(1, 200), folder / f"mark_{number}"
        at = min(at, 190)  # an environment takes no more steps than that
        os.environ.update(FAULT=fault, FAULT_MARK=str(mark), FAULT_AT=str(at))
        place = folder / f"worker_{number}"
        processes.TIMEOUT = 3.0
        failure = finished_like(algo, place, known[algo].outcome, **options)
        for name in ("FAULT", "FAULT_MARK", "FAULT_AT"):
            del os.environ[name]
        shutil.rmtree(place, ignore_errors=True)
        return Outcome(f"{algo}: {fault} in step {at}", failure or ("" if mark.exists() else "nothing happened"))

    return case
