"""Files that change under a run: bits that flip, files that end too early, disks that refuse."""

import errno
import itertools
import logging
import os
import random
import shutil
from pathlib import Path
from typing import Any

import torch
from fault_runs import Case, Outcome, dying_at, failing_at, finished_like, reference, train
from tiny_runs import Numbers

from minerva.errors import CheckpointError, TrainingError
from minerva.runs import files
from minerva.runs.checkpoint import Checkpoint, load_checkpoint
from minerva.runs.folder import RunFolder
from minerva.runs.store import CheckpointStore

# --- damage ---------------------------------------------------------------------------------------------------------


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage()


def damage(folder: Path) -> Case:
    """One bit flipped or the rest cut off, anywhere in a run's checkpoints; every 25th such run is finished."""
    known = {algo: reference(algo, folder / f"reference_{algo}") for algo in ("mpo", "ppo")}
    for algo, run in known.items():
        train(algo, folder / algo, dying_at(len(run.operations) * 3 // 4)).wait()
    needed = {(algo, which): _files(folder / algo, algo, which) for algo in known for which in ("last", "previous")}

    def case(number: int) -> Outcome:
        source = random.Random(f"damage {number}")
        algo, place = source.choice(list(known)), folder / f"damage_{number}"
        shutil.copytree(folder / algo, place)
        path = source.choice(sorted((place / "checkpoints").glob("*.safetensors")))
        name = _damage(path, source)
        failure = _noticed(algo, place, path, path.name in needed[algo, "last"])
        shared = path.name in needed[algo, "last"] & needed[algo, "previous"]  # it goes on, but cannot be the same
        if not failure and number % 25 == 0 and not shared:
            failure = finished_like(algo, place, known[algo].outcome, best="best" not in path.name)
        shutil.rmtree(place)
        return Outcome(f"{algo}: {path.name} {name}", failure)

    return case


def _files(place: Path, algo: str, which: str) -> set[str]:
    """Return the names of all files that a checkpoint needs."""
    name = f"{algo}_{which}.safetensors"
    segments = load_checkpoint(place / "checkpoints" / name).state["replay_segments"]
    return {name, *(f"{algo}_replay_{first}_{end}.safetensors" for first, end, _ in segments)}


def _damage(path: Path, source: random.Random) -> str:
    content = bytearray(path.read_bytes())
    at = source.randrange(len(content))
    if source.random() < 0.3:
        path.write_bytes(content[:at])
        return f"cut to {at} bytes"
    content[at] ^= 1 << source.randrange(8)
    path.write_bytes(content)
    return f"with a bit of byte {at} flipped"


def _noticed(algo: str, place: Path, path: Path, needed: bool) -> str:
    """Return the failure; empty if a damaged file was reported when it was needed and another state was loaded."""
    if "best" in path.name:
        return "not noticed" if _readable(path) else ""
    heard = _Heard()
    logger = logging.getLogger("minerva")
    logger.propagate = False  # a thousand warnings are heard here and not printed
    logger.addHandler(heard)
    try:
        found = CheckpointStore(RunFolder(place, algo)).newest()
    except CheckpointError as error:
        return f"not survived: {error}"
    finally:
        logger.removeHandler(heard)
        logger.propagate = True
    if found.rows == [] and algo == "mpo":
        return "no rows are left"
    return "not noticed" if needed and path.name not in heard.text else ""


def _readable(path: Path) -> bool:
    try:
        load_checkpoint(path)
    except CheckpointError as error:
        return path.name not in str(error)
    return True


# --- disks ----------------------------------------------------------------------------------------------------------


ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)
SAVE = 12
"""File operations of a save; checked in every case."""


def disks(folder: Path) -> Case:
    """An error at every single file operation of a save: the old checkpoint is whole, or the new one is.

    After those, at every operation of whole runs, which are then gone on with.
    """
    of_a_save = list(itertools.product(ERRORS, range(SAVE)))
    run = []

    def case(number: int) -> Outcome:
        if number < len(of_a_save):
            return _disk_fails(folder / f"disk_{number}", *of_a_save[number])
        if not run:
            run.append(reference("mpo", folder / "reference", chunk=LARGE_PIECES))
        operation = number - len(of_a_save)
        if operation >= len(run[0].operations):
            raise StopIteration
        return _run_fails(folder / f"run_{operation}", operation, run[0])

    return case


LARGE_PIECES = 1 << 14


def _run_fails(place: Path, operation: int, run: Any) -> Outcome:
    error = ERRORS[operation % 2]
    ended = train("mpo", place, failing_at(operation, error), chunk=LARGE_PIECES).wait()
    calm = ended.code in (0, 1, 2) and "Traceback" not in ended.text
    failure = finished_like("mpo", place, run.outcome) if calm else f"{ended.code}: {ended.text[-300:]}"
    shutil.rmtree(place, ignore_errors=True)
    return Outcome(f"{os.strerror(error)} at {run.operations[operation]} ({operation}) of a run", failure)


def _disk_fails(place: Path, error: int, number: int) -> Outcome:
    store, rows = _saved_twice(place)
    operations: list[str] = []
    failed = _fails(_both(operations, failing_at(number, error)), store, rows)
    failure = _whole(place, failed, store, rows)
    if not failed and len(operations) != SAVE:
        failure = f"a save has {len(operations)} file operations: let SAVE say so"
    return Outcome(f"{os.strerror(error)} at {operations[number]} ({number})", failure)


def _saved_twice(place: Path) -> tuple[CheckpointStore, Numbers]:
    run = RunFolder(place, "mpo")
    run.make()
    run.create({})
    store, rows = CheckpointStore(run), Numbers()
    for step in (1, 2):
        _save(store, rows, step)
    return store, rows


def _save(store: CheckpointStore, rows: Numbers, step: int) -> None:
    rows.written = 9 * step
    agent = {"weights": torch.full((3,), float(step))}
    store.save(Checkpoint({"step": step}, {"trainer": {"agent": agent}, "step": step}), rows)


def _both(operations: list[str], hook: Any) -> Any:
    def both(operation: str, path: Path) -> None:
        operations.append(operation)
        hook(operation, path)

    return both


def _fails(hook: Any, store: CheckpointStore, rows: Numbers) -> bool:
    """Return whether the third save fails as it should."""
    before = files.before
    files.before = hook
    try:
        _save(store, rows, 3)
    except (TrainingError, OSError):
        return True
    finally:
        files.before = before
    return False


def _whole(place: Path, failed: bool, store: CheckpointStore, rows: Numbers) -> str:
    found = CheckpointStore(RunFolder(place, "mpo")).newest()
    step = found.checkpoint.state["step"]
    kept = torch.cat([part["float32"] for _, part in found.rows]).flatten()[-min(20, 9 * step) :]
    if step not in (2, 3) or float(found.checkpoint.state["trainer"]["agent"]["weights"][0]) != step:
        return f"step {step} with other weights"
    if not torch.equal(kept, torch.arange(float(9 * step))[-len(kept) :]):
        return f"step {step} with other rows"
    if not failed and step != 3:
        return "an error was not reported"
    _save(store, rows, 4)  # the disk has room again
    found = CheckpointStore(RunFolder(place, "mpo")).newest()
    left, step = [path.name for path in place.rglob("*.tmp")], found.checkpoint.state["step"]
    return "" if step == 4 and not left else f"step {step} afterwards, and {left} left"
