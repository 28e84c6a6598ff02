"""A snapshot holds all that an environment's future depends on: whatever is left out, the future shows it."""

import ctypes
import json
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from collecting import drawn
from probe_envs import UNIT_ACTIONS, Lottery, StepResult, vector_space

from minerva.envs.engines.registry import make_engine
from minerva.envs.ids import factory
from minerva.envs.simulator import Simulation
from minerva.envs.snapshot import NoSnapshotError, Snapshot, Snapshots, _Decoder
from minerva.envs.spaces import prepared

SIX = (
    "Ant-v5",
    "Humanoid-v5",
    "Pendulum-v1",
    "dm_control/cheetah/run",
    "dm_control/reacher/easy",
    "dm_control/manipulator/bring_ball",
)
ELEVEN = (
    *("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5", "InvertedDoublePendulum-v5"),
    *("InvertedPendulum-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5", "Walker2d-v5"),
)


def dm_control_tasks() -> list[str]:
    """All of the suite but quadruped/escape, whose terrain can only be made with OpenGL."""
    suite = pytest.importorskip("dm_control.suite")
    return [
        f"dm_control/{domain}/{task}" for domain, task in suite.ALL_TASKS if (domain, task) != ("quadruped", "escape")
    ]


def make(name: Any) -> tuple[gym.Env[Any, Any], Snapshots]:
    env = prepared(factory(name)(), str(name))
    return env, Snapshots(env)


def future(env: gym.Env[Any, Any], steps: int, seed: int = 2) -> list[Any]:
    """Observation, reward and flags, bit for bit, of random actions, through the ends of episodes."""
    source, seen = np.random.default_rng(seed), list[Any]()
    low, high = env.action_space.low, env.action_space.high  # type: ignore[attr-defined]
    for _ in range(steps):
        try:
            obs, reward, terminated, truncated, _ = env.step(source.uniform(low, high).astype(env.action_space.dtype))
        except RuntimeError as error:  # lqr has no time limit, and random actions blow it up
            return [*seen, str(error)]
        seen.append((obs.tobytes(), float(reward), terminated, truncated))
        if terminated or truncated:
            seen.append(env.reset()[0].tobytes())
    return seen


def taken(name: Any, before: int = 130, after: int = 1000) -> tuple[Snapshot, list[Any]]:
    """A snapshot amid an episode, and what happened from there on."""
    env, snapshots = make(name)
    env.reset(seed=3)
    future(env, before, seed=1)
    return snapshots.take(), future(env, after)


def resumed(name: Any, snapshot: Snapshot, after: int = 1000) -> list[Any]:
    """What happens from a snapshot on in an environment that has a past of its own."""
    env, snapshots = make(name)
    env.reset(seed=99)
    future(env, 17, seed=5)
    snapshots.restore(snapshot)
    return future(env, after)


# --- whole --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIX)
def test_a_thousand_steps_are_the_same_from_a_snapshot(name: str) -> None:
    snapshot, expected = taken(name)
    assert resumed(name, snapshot) == expected
    assert snapshot.data.nbytes + len(snapshot.values) < 60_000


MOMENTS = {0: 1000, 1: 100, 999: 100}
"""Steps before a snapshot, and after it: once through a whole episode and its end; right after a start and right
before an end what is missing shows in the next steps."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ELEVEN, "MountainCarContinuous-v0", *dm_control_tasks()])
def test_every_task_goes_on_from_a_snapshot(name: str) -> None:
    (env, snapshots), (other, others) = make(name), make(name)
    for before, after in MOMENTS.items():
        env.reset(seed=3)
        future(env, min(before, 60) if "lqr_6_2" in name else before, seed=1)  # random actions blow it up at step 90
        snapshot, expected = snapshots.take(), future(env, after)
        other.reset(seed=99)
        future(other, 17, seed=5)
        others.restore(snapshot)
        assert future(other, after) == expected, f"after {before} steps"


def test_a_snapshot_is_taken_without_a_trace_and_can_be_used_again() -> None:
    env, snapshots = make("Hopper-v5")
    env.reset(seed=0)
    snapshot = snapshots.take()
    first = future(env, 50)
    for _ in range(2):
        snapshots.restore(snapshot)
        assert future(env, 50) == first


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Ant-v5"])  # with one leg or none on the ground
def test_a_snapshot_of_what_was_restored_is_the_snapshot(name: str) -> None:
    (env, snapshots), (other, others) = make(name), make(name)
    env.reset(seed=0)
    other.reset(seed=1)
    for step in range(60):
        future(env, 1, seed=step)
        taken = snapshots.take()
        others.restore(taken)
        assert same_snapshot(others.take(), taken)


def same_snapshot(one: Snapshot, other: Snapshot) -> bool:
    return one.values == other.values and one.data.tobytes() == other.data.tobytes()


def test_a_snapshot_is_json_and_bytes() -> None:
    snapshot, _ = taken("Reacher-v5", after=1)
    assert isinstance(json.loads(snapshot.values), dict)
    assert snapshot.data.dtype == np.uint8


# --- with one part left out, a difference is seen -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "part"),
    [("Ant-v5", "data"), ("Humanoid-v5", "data"), ("Hopper-v5", "integration"), ("dm_control/reacher/easy", "model")],
)
def test_every_part_of_a_simulation_counts(name: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, expected = taken(name, after=100)
    restore = Simulation.restore

    def incomplete(self: Simulation, numbers: dict[str, Any]) -> None:
        if part == "data":
            monkeypatch.setattr(self, "_fixed", [])
        mine = self.take()
        restore(self, {**numbers, part: {} if part == "model" else mine[part]} if part != "data" else numbers)

    monkeypatch.setattr(Simulation, "restore", incomplete)
    if part == "integration":  # the arrays repeat it
        monkeypatch.setattr(Simulation, "restore", lambda self, numbers: None)
    assert resumed(name, snapshot, 100) != expected


@pytest.mark.parametrize(("name", "kind"), [("Hopper-v5", "generator"), ("dm_control/walker/run", "random state")])
def test_random_generators_count(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, expected = taken(name)
    made = _Decoder._decoded

    def incomplete(self: _Decoder, this: str, content: Any, old: Any) -> Any:
        value = made(self, this, content, old)
        return old if this == kind else value

    monkeypatch.setattr(_Decoder, "_decoded", incomplete)
    assert resumed(name, snapshot) != expected


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("HalfCheetah-v5", "_elapsed_steps"),  # a wrapper's counter
        ("dm_control/cheetah/run", "_step_count"),  # the task's clock
        ("dm_control/stacker/stack_2", "_reset_next_step"),
        (Lottery, "prize"),  # any attribute
    ],
)
def test_counters_and_attributes_count(name: Any, attribute: str) -> None:
    snapshot, expected = taken(name, before=1000 if attribute == "_reset_next_step" else 130)
    wrong = re.sub(rf'("{attribute}": )(-?[\d.e-]+|true|false)', lambda found: found[1] + "7", snapshot.values)
    assert wrong != snapshot.values
    assert resumed(name, snapshot._replace(values=wrong)) != expected


# --- environments that cannot be seen through -----------------------------------------------------------------------


class Odd(gym.Env[Any, Any]):
    """Holds whatever it is given."""

    action_space, observation_space = UNIT_ACTIONS, vector_space(1)

    def __init__(self, **held: Any) -> None:
        vars(self).update(held)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action: Any) -> StepResult:
        return np.zeros(1), 0.0, False, False, {}


class Nameless(type):
    """Kind of a type without `__module__`, such as those of Box2D's bindings."""

    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise AttributeError("__module__")


class Handle(metaclass=Nameless):
    """A type of no module."""

    __slots__ = ()


def shared() -> dict[str, Any]:
    whole = np.zeros(4)
    return {"whole": whole[:], "part": whole[2:]}


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        ({"handle": ctypes.c_int(3)}, r"env\.handle is a ctypes\.c_int, which cannot be read"),
        ({"handle": Handle()}, r"env\.handle is a Handle, which cannot be read"),
        ({"stream": (number for number in range(9))}, r"env\.stream is a builtins\.generator"),
        ({"nested": {"deep": [ctypes.c_int(3)]}}, r"env\.nested\['deep'\]\[0\] is a"),
        ({"objects": np.array([object()])}, r"env\.objects is an array of object"),
        (shared(), r"env\.part shares its memory with another array"),
    ],
)
def test_what_cannot_be_read_is_named(held: dict[str, Any], reason: str) -> None:
    snapshots = Snapshots(Odd(**held))
    with pytest.raises(NoSnapshotError, match=reason):
        snapshots.take()


def test_what_is_shared_stays_shared() -> None:
    def made() -> Odd:
        weights, source = np.zeros(3), np.random.default_rng(1)
        return Odd(one=weights, two={"again": weights}, source=source, helper=Odd(source=source))

    env, other = made(), made()
    snapshots, others = Snapshots(env), Snapshots(other)
    env.one += 4
    env.source.normal()
    others.restore(snapshots.take())
    other.one += 1
    np.testing.assert_array_equal(other.two["again"], [5, 5, 5])
    assert other.helper.source is other.source
    assert other.source.normal() == env.source.normal()


def test_a_snapshot_cannot_change_what_is_called() -> None:
    env, snapshots = make("Pendulum-v1")
    env.reset(seed=0)
    snapshot = snapshots.take()
    for wrong in ('"step": 3, "_elapsed_steps"', '"reset": {"same": 0}, "_elapsed_steps"'):
        values = snapshot.values.replace('"_elapsed_steps"', wrong)
        with pytest.raises(NoSnapshotError, match="does not change what an environment calls"):
            snapshots.restore(snapshot._replace(values=values))


def test_a_snapshot_of_another_environment_is_refused() -> None:
    snapshot, _ = taken("Hopper-v5", after=1)
    for other in ("Walker2d-v5", "Pendulum-v1"):
        with pytest.raises(NoSnapshotError, match="of another environment"):
            make(other)[1].restore(snapshot)


# --- many at once -------------------------------------------------------------------------------------------------


def test_a_vector_of_environments_goes_on_amid_its_episodes() -> None:
    def run(envs: Any, steps: int, seed: int) -> list[Any]:
        source, seen = np.random.default_rng(seed), list[Any]()
        for _ in range(steps):
            step = envs.step(drawn(source, envs))
            shown = (values.numpy().tobytes() for values in (envs.obs, step.next_obs, step.rewards))
            seen.append((*shown, envs.take_episodes()))
        return seen

    envs, other = (make_engine("Hopper-v5", 3, "gymnasium") for _ in range(2))
    envs.reset([4, 5, 6])
    run(envs, 70, seed=1)
    state = envs.state_dict()
    expected = run(envs, 300, seed=2)
    assert other.load_state_dict(state) == ""
    assert run(other, 300, seed=2) == expected
    assert any(step[-1] for step in expected)


def test_a_vector_without_snapshots_says_why() -> None:
    envs = make_engine(lambda: Odd(handle=ctypes.c_int(3)), 2)
    envs.reset([0, 1])
    state = envs.state_dict()
    assert "handle is a ctypes.c_int" in state["unavailable_reason"]
    assert "handle is a ctypes.c_int" in envs.load_state_dict(state)
