"""Environments in processes of their own do what they would do here, also when a process raises, dies or hangs."""

import logging
import os
import random
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
import torch
from collecting import drawn
from probe_envs import Endless, vector_space

import minerva
from minerva.compute.python import PYTHON, search_path
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
    "fault",
    ["none", "is killed", *(pytest.param(name, marks=pytest.mark.slow) for name in ("raises", "exits", "hangs"))],
)
def test_a_fault_leaves_no_trace_in_what_is_seen(
    fault: str,
    expected: list[Any],
    engine: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if fault == "hangs":  # the others answer, however busy the machine
        monkeypatch.setattr(processes, "TIMEOUT", 3.0)
    if fault != "none":
        monkeypatch.setenv("FAULT", fault)
        monkeypatch.setenv("FAULT_MARK", str(tmp_path / "happened"))
    monkeypatch.setattr(processes, "SNAPSHOT_EVERY", 12)
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


class Gambler(Endless):
    """Draws from the generators of its process, when it is made and in every step, and shows the draws."""

    observation_space = vector_space(4)

    def __init__(self) -> None:
        super().__init__()
        self.made = random.random()

    def draws(self) -> Any:
        return np.array([self.made, random.random(), np.random.random(), float(torch.rand(()))])  # noqa: NPY002

    def reset(self, **options: Any) -> Any:
        super().reset(**options)
        return self.draws(), {}

    def step(self, action: Any) -> Any:
        return self.draws(), 0.0, False, False, {}


def test_a_seed_seeds_the_generators_of_every_process(engine: Any) -> None:
    def draws(envs: Engine, seed: int) -> np.ndarray:
        first = envs.reset([seed, seed + 1]).numpy()
        return np.stack([first, *(envs.step(torch.zeros(2, 1)).next_obs.numpy() for _ in range(3))])

    envs = engine(Gambler, 2)  # in two processes
    first, other, again = draws(envs, 3), draws(envs, 8), draws(envs, 3)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, draws(engine(Gambler, 2), 3))
    assert not np.isin(first[..., 1:], other[..., 1:]).any(), "another seed, other draws"
    assert not np.isin(first[:, 0], first[:, 1]).any(), "another process, other draws"


def test_a_wrong_environment_is_refused_with_its_own_message(engine: Any) -> None:
    with pytest.raises(EnvError, match="Did you mean"):
        engine("Pendulun-v1")
    lock = threading.Lock()
    with pytest.raises(EnvError, match="cannot be sent to another process"):
        engine(lambda: (lock, gym.make("Pendulum-v1"))[1])


def test_no_process_is_left_after_the_parent_was_killed() -> None:
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
    deadline = time.monotonic() + 60  # soon, or never
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
    assert process.communicate(timeout=600)[1] == ""
    assert process.returncode == 0


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("imports_from_here", [False, True])
def test_a_worker_imports_its_parents_packages_and_none_that_lie_in_the_folder(
    imports_from_here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = "import os\nos.mkdir('imported_' + __name__)\nraise ImportError(__name__)\n"
    for name in ("minerva", "torch", "numpy", "json", "sitecustomize", "usercustomize"):
        (tmp_path / f"{name}.py").write_text(planted)
    (tmp_path / "minerva").mkdir()
    (tmp_path / "minerva" / "__init__.py").write_text(planted)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ([""] if imports_from_here else []) + [path for path in sys.path if path])
    engine = SubprocessEngine("Pendulum-v1", 1)
    try:
        engine.reset([0])
        engine.step(torch.zeros(1, 1))
    finally:
        engine.close()
    assert list(tmp_path.glob("imported_*")) == []


def test_a_worker_finds_what_its_parent_finds_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_task.py").write_text(
        "import gymnasium\ngymnasium.register('Mine-v0', 'gymnasium.envs.classic_control:PendulumEnv')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    engine = SubprocessEngine("my_own_task:Mine-v0", 1)
    try:
        engine.reset([0])
    finally:
        engine.close()


def test_the_search_path_finds_this_package_before_another_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "minerva").mkdir()
    (tmp_path / "minerva" / "__init__.py").write_text("raise ImportError")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    shown = subprocess.run(
        [*PYTHON, "-c", "import minerva; print(minerva.__file__)"], env=search_path(), capture_output=True, text=True
    )
    assert shown.stdout.strip() == minerva.__file__
