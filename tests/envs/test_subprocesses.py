"""Environments in processes of their own do what they would do here, also when a process raises, dies or hangs."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from collecting import drawn

from minerva.envs.engine import Engine
from minerva.envs.engines import subprocesses as processes
from minerva.envs.engines.gymnasium import GymnasiumEngine
from minerva.envs.engines.subprocesses import SubprocessEngine
from minerva.errors import EnvError, EnvStepError

FAULTY = "fault_envs:FaultyHopper-v0"


def trajectory(envs: Engine, steps: int, seed: int = 0) -> list[Any]:
    source = np.random.default_rng(seed)
    seen = []
    for _ in range(steps):
        step = envs.step(drawn(source, envs))
        shown = (values.numpy().tobytes() for values in (envs.obs, step.next_obs, step.rewards))
        seen.append((*shown, envs.take_episodes()))
    return seen


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    envs = GymnasiumEngine(FAULTY, 3)
    envs.reset([5, 6, 7])
    return trajectory(envs, 100)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes an engine of two processes, and closes it."""
    made = []
    monkeypatch.setattr(processes.os, "cpu_count", lambda: 2)

    def make(env: Any = FAULTY, num_envs: int = 3) -> SubprocessEngine:
        made.append(SubprocessEngine(env, num_envs))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(
    "fault", ["none", "raises", pytest.param("exits", marks=pytest.mark.slow), "is killed", "hangs"]
)
def test_a_fault_leaves_no_trace_in_what_is_seen(
    fault: str,
    expected: list[Any],
    engine: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if fault != "none":
        monkeypatch.setenv("FAULT", fault)
        monkeypatch.setenv("FAULT_MARK", str(tmp_path / "happened"))
    monkeypatch.setattr(processes, "SNAPSHOT_EVERY", 12)
    monkeypatch.setattr(processes, "TIMEOUT", 3.0)
    envs = engine()
    envs.reset([5, 6, 7])
    with caplog.at_level(logging.WARNING, "minerva"):
        assert trajectory(envs, 100) == expected
    said = {"none": "", "raises": "cable came loose", "hangs": "no answer for"}.get(fault, "the process died")
    assert said in caplog.text
    assert bool(caplog.text) == (tmp_path / "happened").exists() == (fault != "none")


def test_after_repeated_faults_the_run_is_stopped_by_name(
    engine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FAULT", "raises")
    envs = engine(num_envs=1)
    envs.reset([5])
    with pytest.raises(EnvStepError, match=r"(?s)FaultyHopper-v0, environment 0: .*a cable came loose.*--resume"):
        trajectory(envs, 40)
    assert caplog.text.count("A new process replaces it") == processes.TRIES - 1


def test_snapshots_are_those_of_the_environments_here(expected: list[Any], engine: Any) -> None:
    here, there = GymnasiumEngine(FAULTY, 3), engine()
    here.reset([1, 2, 3])
    trajectory(here, 25, seed=9)
    assert there.load_state_dict(here.state_dict()) == ""
    assert trajectory(there, 60) == trajectory(here, 60)
    assert here.load_state_dict(there.state_dict()) == ""
    assert trajectory(there, 30) == trajectory(here, 30)


def test_a_wrong_environment_is_refused_with_its_own_message(engine: Any) -> None:
    with pytest.raises(EnvError, match="Did you mean"):
        engine("Pendulun-v1")
    lock = threading.Lock()
    with pytest.raises(EnvError, match="cannot be sent to another process"):
        engine(lambda: (lock, gym.make("Pendulum-v1"))[1])


def test_no_process_is_left_two_seconds_after_the_parent_was_killed() -> None:
    text = (
        "import os, time, numpy as np\n"
        "from minerva.envs.engines.subprocesses import SubprocessEngine\n"
        f"engine = SubprocessEngine({FAULTY!r}, 4)\n"
        "engine.reset([0, 1, 2, 3])\n"
        "print(*(worker._process.pid for worker in engine._workers), flush=True)\n"
        "os.environ['FAULT'] = 'hangs'\n"
        "time.sleep(100)\n"
    )
    paths = os.pathsep.join(filter(None, sys.path))
    command, environment = [sys.executable, "-c", text], {**os.environ, "PYTHONPATH": paths}
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert parent.stdout is not None
        workers = [int(word) for word in parent.stdout.readline().split()]
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert len(workers) >= 1
    deadline = time.monotonic() + 2
    while any(_alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in workers)


def test_a_process_whose_parent_wants_nothing_any_more_leaves_without_a_word() -> None:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "minerva.envs.engines.worker", str(theirs.fileno()), str(os.getpid())]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
    theirs.close()
    connection = Connection(ours.detach())
    connection.send(("make", ("Pendulum-v1", 1, 0)))
    connection.close()  # it cannot even say that it has made them
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
