"""Execution of benchmark tasks as processes of this machine."""

import ctypes
import functools
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from minerva.compute.python import search_path
from minerva.envs.engines.envpool import THREADS, cores
from minerva.lab.benchmark.tasks import Task

SECONDS_TO_STOP = 20.0
"""Seconds that a task has to write its checkpoint and exit; a run needs ten at most."""
PARENT_DEATH = 1
"""PR_SET_PDEATHSIG of <sys/prctl.h>."""


class LocalExecutor:
    """Executor of at most `jobs` tasks at a time, which share the cores.

    With a GPU, measuring does not count against `jobs`: it runs on the CPU beside training.
    """

    def __init__(self, jobs: int, gpu: bool) -> None:
        self.jobs, self.gpu = jobs, gpu
        self._processes: list[tuple[Task, subprocess.Popen[bytes]]] = []

    def room(self, task: Task) -> bool:
        """Return whether the task could be started now."""
        like = [other for other in self.running() if not self.gpu or other.kind == task.kind]
        return len(like) < (cores() if self.gpu and task.kind == "measure" else self.jobs)

    def start(self, task: Task) -> None:
        """Start the task's command as a process with its share of the cores."""
        at_once = self.jobs if task.kind == "train" else 4  # the seeds of a group are measured at the same time
        self._processes.append((task, begin(task.command, task.log, max(cores() // at_once, 1))))

    def running(self) -> list[Task]:
        """Return the tasks that were started and that `ended` has not returned."""
        return [task for task, _ in self._processes]

    def ended(self) -> list[tuple[Task, int]]:
        """Return the tasks that ended since the last call, with their exit codes."""
        codes = [(task, process, process.poll()) for task, process in self._processes]
        self._processes = [(task, process) for task, process, code in codes if code is None]
        return [(task, code) for task, _, code in codes if code is not None]

    def stop(self, tasks: Sequence[Task]) -> None:
        """Let these tasks write their checkpoints and exit, and wait for them."""
        end([process for task, process in self._processes if task in tasks])
        self._processes = [(task, process) for task, process in self._processes if task not in tasks]


def begin(command: Sequence[str], log: Path, threads: int) -> subprocess.Popen[bytes]:
    """Start a command that appends to `log`. Ctrl-C does not reach it, and it is terminated with this process."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        **search_path(),
        "OMP_NUM_THREADS": "1",
        THREADS: str(threads),
        "COLUMNS": "1000",
    }  # no wrapped lines
    with open(log, "ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=_dies_with_parent(),
        )


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Send SIGTERM to all, and SIGKILL to those that are still running after `SECONDS_TO_STOP`."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + SECONDS_TO_STOP
    for process in processes:
        try:
            process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _dies_with_parent() -> Callable[[], object] | None:
    """Return a function that makes Linux send SIGTERM to a child when its parent dies, so that no run is orphaned."""
    if not sys.platform.startswith("linux"):
        return None
    return functools.partial(ctypes.CDLL(None).prctl, PARENT_DEATH, signal.SIGTERM)
