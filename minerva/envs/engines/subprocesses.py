"""Environments in subprocesses: one that raises, hangs or dies is replaced without changing the run.

Each subprocess is asked for a snapshot from time to time, and the calls since then are kept. After a fault a new
subprocess restores the snapshot and replays those calls: then it is in the state of the old one.
"""

import contextlib
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import numpy as np
import torch

from minerva.compute.python import PYTHON, search_path
from minerva.envs.engines.host import Arrays, HostEngine
from minerva.envs.ids import EnvLike, env_name, factory
from minerva.envs.mujoco_log import route_warnings
from minerva.envs.snapshot import NoSnapshotError, Snapshot
from minerva.envs.spaces import prepared, specs
from minerva.envs.time_limit import has_time_limit
from minerva.errors import EnvError, EnvStepError
from minerva.layout import Array

logger = logging.getLogger("minerva")

Call = tuple[str, tuple[Any, ...]]

TIMEOUT = 60.0
"""Seconds without a reply after which a subprocess counts as hung."""
START_TIMEOUT = 300.0
"""Seconds without a reply while a subprocess starts and makes its environments."""
SNAPSHOT_EVERY = 500
"""Steps between snapshots: at most this many are replayed."""
TRIES = 3
"""Faults in one call after which the run is stopped."""
RESTARTS = 20
"""Faults of one subprocess, over the whole run, after which the run is stopped."""


class _FaultError(Exception):
    """Raised when a subprocess raised, died or did not reply; the message says which."""


class SubprocessEngine(HostEngine):
    """Subprocesses, one per core but at most one per environment, each stepping its share of the environments."""

    name = "processes"
    episodes_of_gymnasium = True

    def __init__(self, env: EnvLike, num_envs: int) -> None:
        route_warnings()
        probe = prepared(
            factory(env)(), env_name(env)
        )  # an unusable environment is refused here, where the user sees the message
        super().__init__(env_name(env), num_envs, *specs(probe))
        self.time_limited = has_time_limit(probe)
        probe.close()
        count = min(num_envs, os.cpu_count() or 1)
        shares = pairwise(num_envs * i // count for i in range(count + 1))
        self._infos: dict[int, Mapping[str, float]] = {}
        self._workers = [_Worker(env, slice(first, end)) for first, end in shares]

    @classmethod
    def make(cls, env: EnvLike, num_envs: int, share: int, device: torch.device) -> "SubprocessEngine":
        """Start the subprocesses that make `num_envs` copies of an environment."""
        return cls(env, num_envs)

    def reset_arrays(self, mask: Array, seeds: Sequence[int] | None = None) -> Array:
        """Reset the environments of `mask`, in the subprocesses that have any, and return their observations."""
        resetting = [worker for worker in self._workers if mask[worker.share].any()]
        for worker in resetting:
            worker.send("reset_arrays", mask[worker.share], None if seeds is None else list(seeds[worker.share]))
        return np.concatenate([worker.receive() for worker in resetting])

    def send_arrays(self, actions: Array) -> None:
        """Send every subprocess the actions of its environments."""
        for worker in self._workers:
            worker.send("step", actions[worker.share])

    def recv_arrays(self) -> Arrays:
        """Wait for every subprocess and return the arrays, concatenated."""
        replies = [worker.receive() for worker in self._workers]
        parts = [arrays for arrays, _ in replies]
        self._infos = {
            worker.share.start + i: info
            for worker, (_, infos) in zip(self._workers, replies, strict=True)
            for i, info in infos.items()
        }
        obs, rewards, terminated, truncated = (np.concatenate(part) for part in zip(*parts, strict=True))
        return obs, rewards, terminated, truncated

    def ended_infos(self) -> Mapping[int, Mapping[str, float]]:
        """Return the numbers in the `info` of each environment whose episode ended in the last step."""
        return self._infos

    def snapshots(self, part: slice = slice(None)) -> list[Snapshot]:
        """Return a snapshot of every environment of `part`; raise NoSnapshotError if one has none."""
        return [snapshot for worker in self._workers for snapshot in worker.snapshots()][part]

    def restore(self, snapshots: Sequence[Snapshot], part: slice = slice(None)) -> None:
        """Restore the environments of `part` from snapshots."""
        wanted = dict(zip(range(self.num_envs)[part], snapshots, strict=True))
        for worker in self._workers:
            mine = [i for i in range(self.num_envs)[worker.share] if i in wanted]
            if mine:
                first, last = mine[0] - worker.share.start, mine[-1] - worker.share.start
                worker.send("restore", [wanted[i] for i in mine], slice(first, last + 1))
                worker.receive()

    def close(self) -> None:
        """Kill every subprocess."""
        for worker in self._workers:
            worker.kill()


class _Worker:
    """One subprocess, replaced when it fails. `share` is the slice of its environments."""

    def __init__(self, env: EnvLike, share: slice) -> None:
        self.share = share
        last = share.stop - 1
        which = f"environments {share.start} to {last}" if last > share.start else f"environment {last}"
        self._name = f"{env_name(env)}, {which}"
        try:
            self._make = cloudpickle.dumps(("make", (env, share.stop - share.start, share.start)))
        except Exception as error:  # pickling raises whatever the environment's parts raise
            raise EnvError(
                f"{env_name(env)} cannot be sent to another process ({error}): give its id or a function that makes "
                "it, or use the engine gymnasium."
            ) from None
        self._snapshot: list[Snapshot] = []  # empty: the environments as they were made
        self._calls_since: list[Call] = []
        self._no_snapshot_reason = ""  # set once there are too many calls to replay without one
        self._restarts = 0
        self._making = True
        self._start()

    def send(self, name: str, *arguments: Any) -> None:
        """Start a call of the subprocess's engine."""
        self._call: Call = (name, arguments)
        self._send(self._call)

    def receive(self) -> Any:
        """Return the reply to the call, after as many restarts as it takes."""
        for attempt in range(1, TRIES + 1):
            try:
                if attempt > 1:
                    self._restart()
                if self._making:
                    self._receive()
                    self._making = False
                answer = self._receive()
                break
            except _FaultError as fault:
                self._handle_fault(fault, attempt)
        if self._call[0] != "snapshots":
            self._calls_since.append(self._call)
            if len(self._calls_since) >= SNAPSHOT_EVERY and not self._no_snapshot_reason:
                self._refresh_snapshot()
        return answer

    def snapshots(self) -> list[Snapshot]:
        """Return snapshots of its environments; later restarts begin with them."""
        self.send("snapshots")
        self._snapshot, self._calls_since = self.receive(), []
        return self._snapshot

    def kill(self) -> None:
        """Kill the subprocess, whatever it is doing."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def _refresh_snapshot(self) -> None:
        try:
            self.snapshots()
        except NoSnapshotError as reason:
            self._no_snapshot_reason = str(reason)
            self._calls_since = []

    def _handle_fault(self, fault: _FaultError, attempt: int) -> None:
        """Kill the subprocess and log a warning; raise EnvStepError after too many faults, or without a snapshot."""
        self.kill()
        self._restarts += 1
        stop_reason = f"they have no snapshot ({self._no_snapshot_reason})" if self._no_snapshot_reason else ""
        if attempt == TRIES or self._restarts == RESTARTS:
            stop_reason = f"this was fault {self._restarts}"
        if stop_reason:
            raise EnvStepError(
                f"{self._name}: {fault} As {stop_reason}, the run is stopped. Its last checkpoint is unchanged, and "
                "--resume continues from it."
            )
        logger.warning(
            "%s: %s A new process replaces it, from a snapshot %d steps ago: the run continues as if nothing had "
            "happened.",
            self._name,
            fault,
            len(self._calls_since),
        )

    def _restart(self) -> None:
        """Start a subprocess, bring it to the state of the old one, and send it the current call again."""
        self._start()
        self._receive()
        self._making = False
        restore: list[Call] = [("restore", (self._snapshot, slice(None)))] if self._snapshot else []
        for call in restore + self._calls_since:
            self._send(call)
            self._receive()
        self._send(self._call)

    def _start(self) -> None:
        """Start the subprocess and ask it to make its environments."""
        ours, theirs = socket.socketpair()
        command = [*PYTHON, "-m", "minerva.envs.engines.worker", str(theirs.fileno()), str(os.getpid())]
        command += [""] * ("" in sys.path)
        # a new session: Ctrl-C in the terminal and signals to the process group reach the parent alone
        handles = [theirs.fileno()]
        self._process = subprocess.Popen(command, pass_fds=handles, env=search_path(), start_new_session=True)
        theirs.close()
        self._making = True  # until it replies that its environments are made
        self._connection = Connection(ours.detach())
        self._connection.send_bytes(self._make)

    def _send(self, call: Call) -> None:
        with contextlib.suppress(OSError):  # it is dead: detected when it does not reply
            self._connection.send_bytes(pickle.dumps(call))

    def _receive(self) -> Any:
        """Return the next reply; raise _FaultError if the subprocess raised, died or did not reply."""
        timeout = START_TIMEOUT if self._making else TIMEOUT
        try:
            if not self._connection.poll(timeout):
                raise _FaultError(f"the process gave no answer for {timeout:g} s.")
            kind, content = self._connection.recv()
        except (EOFError, OSError):
            self._process.kill()
            raise _FaultError(f"the process died ({_exit_status(self._process.wait())}).") from None
        if kind == "raised":
            raise _FaultError(f"an environment raised:\n{content}")
        if kind == "no snapshot":
            raise NoSnapshotError(content)
        return content


def _exit_status(code: int) -> str:
    """Describe a process's exit code, or the signal that killed it."""
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
