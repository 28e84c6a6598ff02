"""Environments in processes of their own: one that raises, hangs or dies is replaced, and the run cannot tell.

Each process is asked for a snapshot now and then, and what it was told since is kept. After a fault a new one gets the
snapshot and is told the same again: then it is where the old one was.
"""

import contextlib
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import numpy as np
import torch

from minerva.envs.engines.host import Arrays, HostEngine
from minerva.envs.ids import EnvLike, env_name, factory
from minerva.envs.mujoco_log import route_warnings
from minerva.envs.snapshot import NoSnapshotError, Snapshot
from minerva.envs.spaces import prepared, specs
from minerva.errors import EnvError, EnvStepError
from minerva.spec import Array

logger = logging.getLogger("minerva")

Call = tuple[str, tuple[Any, ...]]

TIMEOUT = 60.0
"""Seconds without an answer after which a process counts as hung."""
START_TIMEOUT = 300.0
"""The same while it starts and makes its environments."""
SNAPSHOT_EVERY = 500
"""Steps between snapshots: what has to be repeated at most."""
TRIES = 3
"""Faults in one call after which the run is stopped."""
RESTARTS = 20
"""Faults of one process, over the whole run, after which it is stopped."""


class _FaultError(Exception):
    """A process that raised, died or did not answer; the message says which."""


class SubprocessEngine(HostEngine):
    """As many processes as there are cores, or environments if those are fewer, each stepping its share."""

    name = "processes"
    episodes_of_gymnasium = True

    def __init__(self, env: EnvLike, num_envs: int) -> None:
        route_warnings()
        probe = prepared(factory(env)(), env_name(env))  # refused here, where the message is the user's
        super().__init__(env_name(env), num_envs, *specs(probe))
        probe.close()
        count = min(num_envs, os.cpu_count() or 1)
        shares = pairwise(num_envs * i // count for i in range(count + 1))
        self._workers = [_Worker(env, slice(first, end)) for first, end in shares]

    @classmethod
    def make(cls, env: EnvLike, num_envs: int, share: int, device: torch.device) -> "SubprocessEngine":
        """Start the processes that make `num_envs` copies of an environment."""
        return cls(env, num_envs)

    def reset_arrays(self, mask: Array, seeds: Sequence[int] | None = None) -> Array:
        """Let those processes reset environments that have some to reset."""
        called = [worker for worker in self._workers if mask[worker.share].any()]
        for worker in called:
            worker.send("reset_arrays", mask[worker.share], None if seeds is None else list(seeds[worker.share]))
        return np.concatenate([worker.receive() for worker in called])

    def send_arrays(self, actions: Array) -> None:
        """Send every process the actions of its environments."""
        for worker in self._workers:
            worker.send("step", actions[worker.share])

    def recv_arrays(self) -> Arrays:
        """Wait for all of them."""
        parts = [worker.receive() for worker in self._workers]
        obs, rewards, terminated, truncated = (np.concatenate(part) for part in zip(*parts, strict=True))
        return obs, rewards, terminated, truncated

    def snapshots(self, part: slice = slice(None)) -> list[Snapshot]:
        """Return the state of every environment of `part`, or raise NoSnapshotError."""
        return [snapshot for worker in self._workers for snapshot in worker.snapshots()][part]

    def restore(self, snapshots: Sequence[Snapshot], part: slice = slice(None)) -> None:
        """Put environments into a state that they were in."""
        wanted = dict(zip(range(self.num_envs)[part], snapshots, strict=True))
        for worker in self._workers:
            mine = [i for i in range(self.num_envs)[worker.share] if i in wanted]
            if mine:
                first, last = mine[0] - worker.share.start, mine[-1] - worker.share.start
                worker.send("restore", [wanted[i] for i in mine], slice(first, last + 1))
                worker.receive()

    def close(self) -> None:
        """End every process."""
        for worker in self._workers:
            worker.kill()


class _Worker:
    """One process, replaced when it fails. `share` are its environments."""

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
        self._snapshot: list[Snapshot] = []  # none: the environments as they are made
        self._since: list[Call] = []
        self._obstacle = ""  # why there are no snapshots, once too much has happened to be told again
        self._restarts = 0
        self._making = True
        self._start()

    def send(self, name: str, *arguments: Any) -> None:
        """Begin a call."""
        self._call: Call = (name, arguments)
        self._tell(self._call)

    def receive(self) -> Any:
        """The call's answer, after however many restarts it takes."""
        for attempt in range(1, TRIES + 1):
            try:
                if attempt > 1:
                    self._catch_up()
                if self._making:
                    self._answer()
                    self._making = False
                answer = self._answer()
                break
            except _FaultError as fault:
                self._after(fault, attempt)
        if self._call[0] != "snapshots":
            self._since.append(self._call)
            if len(self._since) >= SNAPSHOT_EVERY and not self._obstacle:
                self._refresh()
        return answer

    def snapshots(self) -> list[Snapshot]:
        """The state of its environments; a restart begins with it from now on."""
        self.send("snapshots")
        self._snapshot, self._since = self.receive(), []
        return self._snapshot

    def kill(self) -> None:
        """End the process, whatever it is doing."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def _refresh(self) -> None:
        try:
            self.snapshots()
        except NoSnapshotError as reason:
            self._obstacle = str(reason)
            self._since = []

    def _after(self, fault: _FaultError, attempt: int) -> None:
        """Get rid of the process; stop the run if that has happened too often or there is no way back."""
        self.kill()
        self._restarts += 1
        hopeless = f"they have no snapshot ({self._obstacle})" if self._obstacle else ""
        if attempt == TRIES or self._restarts == RESTARTS:
            hopeless = f"this was fault {self._restarts}"
        if hopeless:
            raise EnvStepError(
                f"{self._name}: {fault} As {hopeless}, the run is stopped. Its last checkpoint is as it was, and "
                "--resume goes on from it."
            )
        logger.warning(
            "%s: %s A new process takes its place, from a snapshot %d steps ago: the run goes on as if nothing had "
            "happened.",
            self._name,
            fault,
            len(self._since),
        )

    def _catch_up(self) -> None:
        """A new process where the old one was when it was told the call under way."""
        self._start()
        self._answer()
        self._making = False
        restore: list[Call] = [("restore", (self._snapshot, slice(None)))] if self._snapshot else []
        for call in restore + self._since:
            self._tell(call)
            self._answer()
        self._tell(self._call)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "minerva.envs.engines.worker", str(theirs.fileno()), str(os.getpid())]
        paths = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        # a session of its own: Ctrl-C in the terminal and signals to the group are for the parent alone
        handles = [theirs.fileno()]
        self._process = subprocess.Popen(command, pass_fds=handles, env=paths, start_new_session=True)
        theirs.close()
        self._making = True  # until it says that it has made its environments
        self._connection = Connection(ours.detach())
        self._connection.send_bytes(self._make)

    def _tell(self, call: Call) -> None:
        with contextlib.suppress(OSError):  # it is dead: noticed when it does not answer
            self._connection.send_bytes(pickle.dumps(call))

    def _answer(self) -> Any:
        timeout = START_TIMEOUT if self._making else TIMEOUT
        try:
            if not self._connection.poll(timeout):
                raise _FaultError(f"the process gave no answer for {timeout:g} s.")
            kind, content = self._connection.recv()
        except (EOFError, OSError):
            self._process.kill()
            raise _FaultError(f"the process died ({_ending(self._process.wait())}).") from None
        if kind == "raised":
            raise _FaultError(f"an environment raised:\n{content}")
        if kind == "no snapshot":
            raise NoSnapshotError(content)
        return content


def _ending(code: int) -> str:
    """How a process ended, for people."""
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
