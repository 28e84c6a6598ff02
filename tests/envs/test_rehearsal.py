"""A resume is rehearsed before it is called exact: state that no snapshot sees shows, and the run does not notice."""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from probe_envs import UNIT_ACTIONS, Makes, StepResult, vector_space

from minerva.envs import rehearsal
from minerva.envs.engines.gymnasium import GymnasiumEngine
from minerva.envs.engines.subprocesses import SubprocessEngine
from minerva.trainers.ppo.trainer import PPOTrainer

SOURCE = np.random.default_rng(5)


class Walk(gym.Env[Any, Any]):
    """Observes a sum of what `draw` returns; a subclass keeps the state of its draws somewhere."""

    action_space, observation_space = UNIT_ACTIONS, vector_space(1)

    def __init__(self) -> None:
        self.place, self.steps = 0.0, 0

    def draw(self) -> float:
        """The honest one: its own generator, which a snapshot holds."""
        return float(self.np_random.normal())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.steps = self.draw(), 0
        return np.array([self.place]), {}

    def step(self, action: Any) -> StepResult:
        self.place += self.draw() + 0.1 * float(action[0])
        self.steps += 1
        return np.array([self.place]), self.place, False, self.steps == 50, {}


class InSlot(Walk):
    __slots__ = ("hidden",)

    def draw(self) -> float:
        self.hidden = getattr(self, "hidden", 0) + 1
        return float(self.hidden)


class InInheritedSlot(InSlot):
    pass


class InClass(Walk):
    count: ClassVar[list[int]] = [0]

    def draw(self) -> float:
        InClass.count[0] += 1
        return float(InClass.count[0])


class InDefault(Walk):
    def draw(self, drawn: list[int] = []) -> float:  # noqa: B006  the mistake that it is about
        drawn.append(1)
        return float(len(drawn))


def numbered() -> float:
    numbered.count = getattr(numbered, "count", 0) + 1  # type: ignore[attr-defined]
    return float(numbered.count)  # type: ignore[attr-defined]


class InFunction(Walk):
    def draw(self) -> float:
        return numbered()


class InModule(Walk):
    def draw(self) -> float:
        return float(SOURCE.normal())


class OnlyAtReset(Walk):
    """Draws from the module's generator when an episode starts, as many do."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = float(SOURCE.normal())
        return np.array([self.place]), {}


class ByTheClock(Walk):
    def draw(self) -> float:
        return time.perf_counter()


class Global(Walk):
    def draw(self) -> float:
        return float(np.random.normal()) + random.random()  # noqa: NPY002  environments do


HIDDEN = [InSlot, InInheritedSlot, InClass, InDefault, InFunction, InModule, OnlyAtReset, ByTheClock]


def reason(env: Any, num_envs: int = 2) -> str:
    envs = GymnasiumEngine(env, num_envs)
    envs.reset(range(num_envs))
    return str(envs.state_dict()["unavailable_reason"])


@pytest.mark.parametrize("env", HIDDEN)
def test_state_that_no_snapshot_holds_is_found_by_name(env: Callable[[], Any]) -> None:
    said = "cannot be read" if "Slot" in env.__name__ else "environment 0 restored from a snapshot took other steps"
    assert said in reason(env)


@pytest.mark.parametrize("env", [Walk, Global, "Pendulum-v1", "CartPole-v1", "Hopper-v5", "dm_control/reacher/easy"])
def test_what_a_snapshot_holds_passes(env: Any) -> None:
    assert reason(env, 1) == ""


class Sometimes(Walk):
    """Hides state if it is the third that was made."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def draw(self) -> float:
        return float(SOURCE.normal()) if self.number == 2 else super().draw()


def test_the_environment_that_differs_is_named() -> None:
    assert "environment 2 restored" in reason(Makes(Sometimes), 4)


def test_nothing_that_it_writes_comes_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "log").open("w") as log:

        class Talking(Walk):
            def step(self, action: Any) -> StepResult:
                for out in (log, sys.stdout, sys.stderr):
                    print("a step", file=out, flush=True)
                return super().step(action)

        assert reason(Talking) == ""
    assert (tmp_path / "log").read_text() == ""
    assert capfd.readouterr() == ("", "")


def generators() -> str:
    """The state of every generator of this process that an environment here draws from."""
    numpy_state = np.random.get_state()  # noqa: NPY002
    return str([SOURCE.bit_generator.state, numpy_state, random.getstate(), torch.get_rng_state().tolist()])


def test_neither_hidden_state_nor_a_generator_moves() -> None:
    envs = GymnasiumEngine(InModule, 2)
    envs.reset([0, 1])
    InClass.count[0] = 7
    before = generators()
    shown = envs.obs.clone()
    assert "took other steps" in envs.state_dict()["unavailable_reason"]
    assert "took other steps" in reason(InClass)
    assert InClass.count[0] == 7 + 2, "the first draws of two environments"
    assert generators() == before
    assert torch.equal(envs.obs, shown)


def test_it_is_rehearsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr("minerva.envs.engines.gymnasium.rehearse", lambda *_: calls.append(1) or "")
    envs = GymnasiumEngine(Walk, 2)
    envs.reset([0, 1])
    for _ in range(3):
        envs.state_dict()
    assert len(calls) == 1


class Failing(Walk):
    """Fails in the way it is told, in the rehearsal's process only."""

    how: Callable[[], None] = staticmethod(lambda: None)
    here = None

    def step(self, action: Any) -> StepResult:
        if self.here != rehearsal.os.getpid():
            self.how()
        return super().step(action)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (lambda: 1 / 0, "environment 0 raised ZeroDivisionError in a rehearsal of a resume: division by zero"),
        (lambda: sys.exit(3), "environment 0 raised SystemExit"),
        (lambda: signal.raise_signal(signal.SIGKILL), "a rehearsal of a resume died or gave no answer"),
        (lambda: time.sleep(100), "a rehearsal of a resume died or gave no answer"),
    ],
    ids=["raises", "exits", "dies", "hangs"],
)
def test_an_environment_that_fails_in_it_is_not_called_exact(
    how: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "no answer" in said:
        monkeypatch.setattr(rehearsal, "TIMEOUT", 2.0)
    monkeypatch.setattr(Failing, "here", rehearsal.os.getpid())
    monkeypatch.setattr(Failing, "how", staticmethod(how))
    assert said in reason(Failing)


def test_a_process_of_its_own_rehearses_too_and_has_generators_that_no_checkpoint_holds() -> None:
    envs = [SubprocessEngine(env, 1) for env in (Walk, Global)]
    try:
        for one in envs:
            one.reset([0])
        reasons = [one.state_dict()["unavailable_reason"] for one in envs]
    finally:
        for one in envs:
            one.close()
    assert reasons[0] == ""
    assert "a generator that is not its own" in reasons[1]


@pytest.mark.parametrize(("env", "exact"), [(Walk, True), (InModule, False)])
def test_a_resumed_run_claims_what_held(
    env: Any, exact: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(**settings: Any) -> None:
        trainer = PPOTrainer(env, rollout_steps=8, num_envs=2, minibatch_size=8, update_epochs=1)
        trainer.train(64, tmp_path, eval_every=10**9, eval_episodes=1, compile="off", **settings)

    train(quiet=True, callbacks=[lambda *_: True])
    capsys.readouterr()
    train()
    said = " ".join(capsys.readouterr().out.split())
    assert ("bit for bit." in said) == exact
    assert ("start new episodes (environment 0 restored from a snapshot took other steps" in said) == (not exact)


def test_a_copy_whose_parent_was_killed_ends_instead_of_training_in_its_place() -> None:
    ours, theirs = os.pipe()
    os.close(ours)  # as a kill does: nobody reads the answer
    process = os.fork()
    if process == 0:
        try:
            rehearsal._answer(lambda: "", theirs)
        finally:
            os._exit(7)  # reached if the copy goes on
    os.close(theirs)
    assert os.waitpid(process, 0)[1] == 0
