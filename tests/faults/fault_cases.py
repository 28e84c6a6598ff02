"""The promises, each as cases that are counted. A case that breaks its promise is described in a line."""

import errno
import itertools
import logging
import os
import random
import shutil
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from fault_hostile import hostile_cases, tried
from fault_runs import Child, Reference, dying_at, failing_at, finished_like, reference, train
from fault_tasks import TASKS
from test_snapshot import ELEVEN, SIX, dm_control_tasks, resumed, taken

from minerva.envs import processes
from minerva.errors import CheckpointError, TrainingError
from minerva.runs import files
from minerva.runs.checkpoint import Checkpoint, load_checkpoint
from minerva.runs.folder import RunFolder
from minerva.runs.store import CheckpointStore


@dataclass
class Tally:
    """What was tried, what failed, and figures worth telling."""

    cases: int = 0
    failures: list[str] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)

    def count(self, name: str, failure: str) -> None:
        """One more case; `failure` is empty if it went well."""
        self.cases += 1
        if failure:
            self.failures.append(f"{name}: {failure}")

    def most(self, name: str, value: float) -> None:
        """Keep the largest value."""
        self.notes[name] = round(max(self.notes.get(name, 0.0), value), 2)


def references(folder: Path) -> dict[str, Reference]:
    """Of every algorithm a run that is left alone."""
    return {algo: reference(algo, folder / f"reference_{algo}") for algo in TASKS}


# --- SIGKILL --------------------------------------------------------------------------------------------------------


def kills(count: int, folder: Path) -> Tally:
    """SIGKILL inside file operations and at random; a quarter of the runs are killed again while they recover."""
    tally, source, known = Tally(), random.Random(1), references(folder)
    algos = list(TASKS)
    while tally.cases < count:
        algo = algos[tally.cases % len(algos)]
        place, run = folder / f"kill_{tally.cases}", known[algo]
        names = []
        for _ in range(2 if source.random() < 0.25 else 1):
            if tally.cases + len(names) < count:
                names.append(_kill(algo, place, run, source))
        different = finished_like(algo, place, run.outcome)
        tally.count(f"{algo} killed {' and '.join(names)}", different)
        tally.cases += len(names) - 1
        shutil.rmtree(place, ignore_errors=True)
    return tally


def _kill(algo: str, place: Path, run: Reference, source: random.Random) -> str:
    """Start or go on, and kill; where. A run that ended before is none that was killed, so it is tried again."""
    while True:
        if source.random() < 0.6:
            number = source.randrange(run.operations)
            ended, name = train(algo, place, dying_at(number)).wait(), f"in file operation {number}"
        else:
            child, delay = train(algo, place), source.uniform(0, run.seconds)
            time.sleep(delay)
            child.send(signal.SIGKILL)
            ended, name = child.wait(), f"after {delay:.2f} s"
        if ended.code == -signal.SIGKILL:
            return name
        shutil.rmtree(place, ignore_errors=True)


# --- snapshots ------------------------------------------------------------------------------------------------------


def snapshots(names: Iterable[str], folder: Path) -> Tally:
    """A thousand steps from a snapshot, in another environment, against those that were taken."""
    tally = Tally()
    for name in names:
        snapshot, expected = taken(name)
        tally.count(name, "" if resumed(name, snapshot) == expected else "differs")
        tally.most("largest snapshot, KB", (snapshot.data.nbytes + len(snapshot.values)) / 1000)
    return tally


def short_snapshots(count: int, folder: Path) -> Tally:
    """The six that show most."""
    return snapshots(SIX[:count], folder)


def long_snapshots(count: int, folder: Path) -> Tally:
    """Every task but quadruped/escape, which needs OpenGL."""
    return snapshots([*ELEVEN, *dm_control_tasks()][:count], folder)


# --- damage ---------------------------------------------------------------------------------------------------------


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage()


def damage(count: int, folder: Path) -> Tally:
    """One bit flipped or the rest cut off, anywhere in a run's checkpoints; every 25th such run is finished."""
    tally, source = Tally(), random.Random(2)
    known = {algo: reference(algo, folder / f"reference_{algo}") for algo in ("mpo", "ppo")}
    for algo in known:
        train(algo, folder / algo, dying_at(known[algo].operations * 3 // 4)).wait()
    needed = {(algo, which): _files(folder / algo, algo, which) for algo in known for which in ("last", "previous")}
    for number in range(count):
        algo = source.choice(list(known))
        place = folder / f"damage_{number}"
        shutil.copytree(folder / algo, place)
        path = source.choice(sorted((place / "checkpoints").glob("*.pt")))
        name = _damage(path, source)
        failure = _noticed(algo, place, path, path.name in needed[algo, "last"])
        shared = path.name in needed[algo, "last"] & needed[algo, "previous"]  # it goes on, but cannot be the same
        if not failure and number % 25 == 0 and not shared:
            failure = finished_like(algo, place, known[algo].outcome, best="best" not in path.name)
        tally.count(f"{algo}: {path.name} {name}", failure)
        shutil.rmtree(place)
    return tally


def _files(place: Path, algo: str, which: str) -> set[str]:
    """The names of all files that a checkpoint needs."""
    name = f"{algo}_{which}.pt"
    segments = load_checkpoint(place / "checkpoints" / name).state["replay_segments"]
    return {name, *(f"{algo}_replay_{first}_{end}.pt" for first, end, _ in segments)}


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
    """Nothing, if a damaged file was named when it was needed and another state was found."""
    if "best" in path.name:
        return "not noticed" if _readable(path) else ""
    heard = _Heard()
    logger = logging.getLogger("minerva")
    logger.addHandler(heard)
    try:
        found = CheckpointStore(RunFolder(place, algo)).newest()
    except CheckpointError as error:
        return f"not survived: {error}"
    finally:
        logger.removeHandler(heard)
    if found.rows == [] and algo == "mpo":
        return "no rows are left"
    return "not noticed" if needed and path.name not in heard.text else ""


def _readable(path: Path) -> bool:
    try:
        load_checkpoint(path)
    except CheckpointError as error:
        return path.name not in str(error)
    return True


# --- hostile files --------------------------------------------------------------------------------------------------


def hostile(count: int, folder: Path) -> Tally:
    """Files made to run code, to write elsewhere, to use up memory, or to be believed though they are wrong."""
    tally = Tally()
    for algo in ("ppo", "mpo"):
        run = reference(algo, folder / f"reference_{algo}")
        train(algo, folder / algo, dying_at(run.operations * 3 // 4)).wait()
    for number, (name, algo, spoil) in zip(range(count), hostile_cases(random.Random(3)), strict=False):
        tally.count(name, tried(algo, spoil, folder, number))
    return tally


# --- disks ----------------------------------------------------------------------------------------------------------


class _Rows:
    """A replay of which row n holds the number n."""

    steps, written = 20, 0

    def since(self, first: int) -> torch.Tensor:
        return torch.arange(float(first), float(self.written)).view(-1, 1, 1)

    def put(self, first: int, rows: torch.Tensor) -> None:
        raise NotImplementedError


LONGEST_SAVE = 20
"""File operations, at most."""


def disks(count: int, folder: Path) -> Tally:
    """An error at every single file operation of a save: the old checkpoint is whole, or the new one is."""
    tally = Tally()
    for error, number in itertools.product((errno.ENOSPC, errno.EIO, errno.EROFS), range(LONGEST_SAVE)):
        place = folder / f"disk_{error}_{number}"
        store, rows = _saved_twice(place)
        operations: list[str] = []
        failed = _fails(_both(operations, failing_at(number, error)), store, rows)
        if number < len(operations):
            tally.count(f"{os.strerror(error)} at {operations[number]} ({number})", _whole(place, failed, store, rows))
    return tally


def long_disks(count: int, folder: Path) -> Tally:
    """The same, and at every file operation of a whole run, which is then gone on with."""
    tally = disks(count, folder)
    run = reference("mpo", folder / "reference")
    for number in range(run.operations):
        place = folder / f"run_{number}"
        ended = train("mpo", place, failing_at(number, errno.ENOSPC)).wait()
        calm = ended.code in (0, 1, 2) and "Traceback" not in ended.text
        failure = finished_like("mpo", place, run.outcome) if calm else f"{ended.code}: {ended.text[-300:]}"
        tally.count(f"disk full at operation {number} of a run", failure)
        shutil.rmtree(place, ignore_errors=True)
    return tally


def _saved_twice(place: Path) -> tuple[CheckpointStore, _Rows]:
    run = RunFolder(place, "mpo")
    run.make()
    run.create({})
    store, rows = CheckpointStore(run), _Rows()
    for step in (1, 2):
        _save(store, rows, step)
    return store, rows


def _save(store: CheckpointStore, rows: _Rows, step: int) -> None:
    rows.written = 9 * step
    agent = {"weights": torch.full((3,), float(step))}
    store.save(Checkpoint({"step": step}, {"trainer": {"agent": agent}, "step": step}), rows)


def _both(operations: list[str], hook: Any) -> Any:
    def both(operation: str, path: Path) -> None:
        operations.append(operation)
        hook(operation, path)

    return both


def _fails(hook: Any, store: CheckpointStore, rows: _Rows) -> bool:
    """Whether the third save fails as it should."""
    before = files.before
    files.before = hook
    try:
        _save(store, rows, 3)
    except (TrainingError, OSError):
        return True
    finally:
        files.before = before
    return False


def _whole(place: Path, failed: bool, store: CheckpointStore, rows: _Rows) -> str:
    found = CheckpointStore(RunFolder(place, "mpo")).newest()
    step = found.checkpoint.state["step"]
    kept = torch.cat([part for _, part in found.rows]).flatten()[-min(20, 9 * step) :]
    if step not in (2, 3) or float(found.checkpoint.state["trainer"]["agent"]["weights"][0]) != step:
        return f"step {step} with other weights"
    if not torch.equal(kept, torch.arange(float(9 * step))[-len(kept) :]):
        return f"step {step} with other rows"
    if not failed and step != 3:
        return "an error was not told"
    _save(store, rows, 4)  # the disk has room again
    found = CheckpointStore(RunFolder(place, "mpo")).newest()
    left, step = [path.name for path in place.rglob("*.tmp")], found.checkpoint.state["step"]
    return "" if step == 4 and not left else f"step {step} afterwards, and {left} left"


# --- SIGTERM --------------------------------------------------------------------------------------------------------


def terminations(count: int, folder: Path) -> Tally:
    """SIGTERM or SIGINT at a random moment: exit code 3 within ten seconds, how to go on, and nothing lost."""
    tally, source, known = Tally(), random.Random(4), references(folder)
    algos = list(TASKS)
    while tally.cases < count:
        algo = algos[tally.cases % len(algos)]
        place, run = folder / f"term_{tally.cases}", known[algo]
        number = source.choice((signal.SIGTERM, signal.SIGINT))
        child, delay = train(algo, place), source.uniform(0, run.seconds)
        time.sleep(delay)
        failure, seconds = _terminated(child, number, algo, place)
        if failure is None:  # it had ended before
            shutil.rmtree(place, ignore_errors=True)
            continue
        tally.most("slowest exit, s", seconds)
        tally.count(f"{algo}: {number.name} after {delay:.2f} s", failure or finished_like(algo, place, run.outcome))
        shutil.rmtree(place, ignore_errors=True)
    return tally


def _terminated(child: Child, number: signal.Signals, algo: str, place: Path) -> tuple[str | None, float]:
    try:
        child.send(number)
    except ProcessLookupError:
        return None, 0.0
    sent = time.monotonic()
    ended = child.wait()
    seconds = time.monotonic() - sent
    if ended.code == 0:
        return None, seconds
    begun = RunFolder(place, algo).last.exists()
    told = f"minerva train {algo} --resume {place}" in ended.text or not begun
    if ended.code != 3 or seconds > 10 or not told or "Traceback" in ended.text:
        return f"exit code {ended.code} after {seconds:.1f} s: {ended.text[-500:]}", seconds
    return "", seconds


# --- workers --------------------------------------------------------------------------------------------------------


def workers(count: int, folder: Path) -> Tally:
    """An environment's process that raises, is killed or hangs once, while training or while evaluating."""
    tally, source = Tally(), random.Random(5)
    options = {"engine": "processes", "env": "fault_envs:FaultyHopper-v0"}
    known: dict[str, Reference] = {}
    algos = list(TASKS)
    while tally.cases < count:
        algo = algos[tally.cases % len(algos)]
        if algo not in known:
            known[algo] = reference(algo, folder / f"reference_{algo}", **options)
        fault = FAULTS[(tally.cases + tally.cases // len(algos)) % len(FAULTS)]
        at, mark = source.randrange(1, 200), folder / f"mark_{tally.cases}"
        os.environ.update(FAULT=fault, FAULT_MARK=str(mark), FAULT_AT=str(at))
        place = folder / f"worker_{tally.cases}"
        processes.TIMEOUT = 3.0
        failure = finished_like(algo, place, known[algo].outcome, **options)
        tally.count(f"{algo}: {fault} in step {at}", failure or ("" if mark.exists() else "nothing happened"))
        for name in ("FAULT", "FAULT_MARK", "FAULT_AT"):
            del os.environ[name]
        shutil.rmtree(place, ignore_errors=True)
    return tally


FAULTS = ("raises", "is killed", "hangs")
