"""Execution of benchmark tasks on a Ray cluster. A task whose node dies is resumed on another, from its checkpoint."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minerva.errors import ConfigError
from minerva.lab.benchmark.files import Files
from minerva.lab.benchmark.local import begin, end
from minerva.lab.benchmark.tasks import Task
from minerva.lab.cluster.engine import RELEASE, ray, wait_until_released

ATTEMPTS = 5
"""Retries of a task whose node died, that was preempted, or that failed for a reason that may be the node's."""
WRONG_INPUT = 2
"""Exit code of wrong input, which a retry on another node would not change."""
POLL = 0.2


class RayExecutor:
    """Executor that sends each task to a node with a free core and, for training on a GPU, a share of one.

    All nodes must see the same folders: results and checkpoints are written to shared storage.
    """

    def __init__(self, files: Files, address: str | None, jobs: int | None, gpu: bool) -> None:
        """Run at most `jobs` tasks at a time; None: as many as fit the cluster. With GPUs, `jobs` tasks share each."""
        self.ray = ray(address)
        self.files, self.jobs = files, jobs
        self.share = 1.0 / (jobs or 1) if gpu else 0.0
        if gpu and not self._resource("GPU"):
            raise ConfigError("No node of the cluster has a GPU: use --device cpu.")
        self._tasks: dict[Any, Task] = {}
        how = {"max_retries": ATTEMPTS, "retry_exceptions": [AttemptFailedError], "scheduling_strategy": "SPREAD"}
        self._attempt = self.ray.remote(num_cpus=1, **how)(attempt)

    def room(self, task: Task) -> bool:
        """Return whether the task could be started now; one more than fits, so that an elastic cluster scales up."""
        if self.share and task.kind == "train":
            training = [other for other in self.running() if other.kind == "train"]
            return len(training) <= self._resource("GPU") / self.share
        return (
            len(self._tasks) < self.jobs if self.jobs and not self.share else len(self._tasks) <= self._resource("CPU")
        )

    def start(self, task: Task) -> None:
        """Submit a task to the cluster."""
        training = task.kind == "train"
        folders = [self.files.run(cell) for cell in task.cells] if training else []
        remote = self._attempt.options(num_gpus=self.share if training else 0.0)
        self._tasks[remote.remote(task, folders)] = task

    def running(self) -> list[Task]:
        """Return the tasks that were started and have not been returned by `ended`."""
        return list(self._tasks.values())

    def ended(self) -> list[tuple[Task, int]]:
        """Return the tasks that ended since the last call, with their exit codes."""
        if not self._tasks:
            return []
        over, _ = self.ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)
        return [(self._tasks.pop(reference), self._code(reference)) for reference in over]

    def stop(self, tasks: Sequence[Task]) -> None:
        """Let these tasks write their checkpoints and exit, and wait for them."""
        stopped = [reference for reference, task in self._tasks.items() if task in tasks]
        for reference in stopped:
            self.ray.cancel(reference)
        if stopped:
            self.ray.wait(stopped, num_returns=len(stopped), timeout=RELEASE)
        self._tasks = {reference: task for reference, task in self._tasks.items() if reference not in stopped}

    def _code(self, reference: Any) -> int:
        """Return a task's exit code, also if all attempts failed."""
        try:
            return int(self.ray.get(reference))
        except self.ray.exceptions.RayTaskError as error:
            return int(getattr(error.cause, "code", 1))
        except self.ray.exceptions.RayError:
            return 1

    def _resource(self, name: str) -> float:
        return float(self.ray.cluster_resources().get(name, 0.0))


class AttemptFailedError(Exception):
    """An attempt failed, and another one may succeed."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def attempt(task: Task, folders: list[Path]) -> int:
    """Run a task's command on a node and return its exit code. If cancelled, the command stops with a checkpoint."""
    wait_until_released(folders)
    process = begin((sys.executable, *task.command[1:]), task.log, threads=1)
    try:
        while process.poll() is None:
            time.sleep(POLL)
    except BaseException:  # KeyboardInterrupt, by which Ray cancels
        end([process])
        raise
    if process.returncode not in (0, WRONG_INPUT):
        raise AttemptFailedError(process.returncode)
    return process.returncode
