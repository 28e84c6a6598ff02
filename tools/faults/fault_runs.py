"""Whole runs in forked processes, so that they can be killed: this process imports torch once and never trains."""

import contextlib
import io
import json
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import fault_envs
import torch
from fault_tasks import TASKS, differing, outcome
from matplotlib.figure import Figure

from minerva.cli.main import main
from minerva.runs import files

torch.set_num_threads(1)
# what is slow the first time is done here, and not in every process anew: importing simulators, finding fonts
for maker in (fault_envs.hopper, fault_envs.cheetah, fault_envs.reacher):
    maker().close()
figure = Figure(layout="constrained")
figure.add_subplot().set(title="as every run ends")
figure.savefig(io.BytesIO(), format="png")

Hook = Callable[[str, Path], None]
PATIENCE = 1800.0
PIECE = 1 << 12
"""Bytes per write, small enough that kills also fall into the middle of a file."""


class Outcome(NamedTuple):
    """Outcome of a case: its name, its failure if any, and measured figures."""

    name: str
    failure: str
    figures: dict[str, float] | None = None


Case = Callable[[int], Outcome]
"""Function that runs the case of a number, deterministically; raises StopIteration after the last one."""


class Ended(NamedTuple):
    """Outcome of a process: exit code (minus the signal that killed it), what it printed, and how long it took."""

    code: int
    text: str
    seconds: float


class Child:
    """A forked process that runs `work`, its output in a file."""

    def __init__(self, work: Callable[[], Any], log: Path) -> None:
        self.log, self.began = log, time.monotonic()
        log.unlink(missing_ok=True)
        self.pid = os.fork()
        if self.pid == 0:
            self._work(work)

    def _work(self, work: Callable[[], Any]) -> None:
        code = 70
        try:
            handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
            code = int(work() or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        os.kill(self.pid, number)

    def wait(self, patience: float = PATIENCE) -> Ended:
        """Wait until the process ends; kill it after a timeout, which no case expects."""
        deadline = time.monotonic() + patience
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.005)
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return Ended(os.waitstatus_to_exitcode(status), text, time.monotonic() - self.began)


def train(algo: str, folder: Path, hook: Hook | None = None, chunk: int = PIECE, **changed: Any) -> Child:
    """Start or resume the algorithm's small run, calling `hook` before every file operation."""

    def work() -> int:
        files.CHUNK = chunk
        if hook is not None:
            files.before = hook  # type: ignore[assignment]
        return main(TASKS[algo].command(folder, **changed))

    return Child(work, folder.with_name(f"{folder.name}.log"))


def dying_at(number: int) -> Hook:
    """Return a hook that sends SIGKILL to its own process before the file operation of this number."""
    count = iter(range(10**9))

    def hook(operation: str, path: Path) -> None:
        if next(count) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def failing_at(number: int, error: int) -> Hook:
    """Return a hook that raises the error of a full or broken disk at the file operation of this number."""
    count = iter(range(10**9))

    def hook(operation: str, path: Path) -> None:
        if next(count) == number:
            raise OSError(error, os.strerror(error))

    return hook


class Reference(NamedTuple):
    """An undisturbed reference run: its outcome, its file operations, its duration in seconds."""

    outcome: dict[str, Any]
    operations: list[str]
    seconds: float


def reference(algo: str, folder: Path, **changed: Any) -> Reference:
    """Train the reference run and record its file operations; cached per process, because it is deterministic."""
    key = json.dumps([algo, changed], sort_keys=True)
    if key not in _references:
        _references[key] = _left_alone(algo, folder, **changed)
    return _references[key]


_references: dict[str, Reference] = {}


def _left_alone(algo: str, folder: Path, **changed: Any) -> Reference:
    notes = folder.with_name(f"{folder.name}.operations")
    folder.parent.mkdir(parents=True, exist_ok=True)

    def note(operation: str, path: Path) -> None:
        with open(notes, "a") as file:
            file.write(f"{operation} {re.sub(r'[.][0-9]+[.]tmp', '', path.name)}\n")

    ended = train(algo, folder, note, **changed).wait()
    if ended.code != 0:
        raise RuntimeError(f"the reference run of {algo} ended with {ended.code}:\n{ended.text}")
    return Reference(all_outcomes(folder, algo, **changed), notes.read_text().splitlines(), ended.seconds)


def finished_like(algo: str, folder: Path, expected: dict[str, Any], best: bool = True, **changed: Any) -> str:
    """Resume a run until it is finished; return what differs from the reference run, or an empty string."""
    ended = train(algo, folder, **changed).wait()
    if ended.code != 0:
        return f"ended with {ended.code}: {ended.text[-600:]}"
    found = all_outcomes(folder, algo, best, **changed)
    different = differing(found, expected if best else {**expected, "best": None})
    return f"differs in {different}" if different else ""


def all_outcomes(folder: Path, algo: str, best: bool = True, **changed: Any) -> dict[str, Any]:
    """Return the outcome of a run, or of all seeds that were trained together."""
    if "seeds" not in changed:
        return outcome(folder, algo, best)
    each = {seed: outcome(folder / f"seed{seed}", algo, best) for seed in changed["seeds"].split(",")}
    return {f"seed {seed}: {name}": value for seed, found in each.items() for name, value in found.items()}
