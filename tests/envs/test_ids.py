"""What the user may write as an environment, and what is said when it is none."""

import functools
import importlib.util
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from collecting import drawn
from probe_envs import Counter, Ending, Endless, Listener, Lottery, Makes, Shaped

from minerva.envs.engines.registry import make_engine
from minerva.envs.ids import check_id, env_name, factory, is_dm_control, known_ids
from minerva.errors import EnvError

REGISTERING_MODULE = """
import gymnasium as gym
from probe_envs import Endless

gym.register("Imported-v3", entry_point=Endless, max_episode_steps=7)
"""


def walk(env: Any, seed: int = 5, steps: int = 30) -> np.ndarray:
    """Observations of two copies under fixed random actions, episodes' ends included."""
    envs = make_engine(env, 2, "gymnasium")
    seen = [envs.reset([seed, seed + 1])]
    draw = np.random.default_rng(0)
    for _ in range(steps):
        step = envs.step(drawn(draw, envs))
        seen += [step.next_obs, envs.obs]
    envs.close()
    return np.stack(seen)


# --- ids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "obs_dim", "act_dim"),
    [
        ("Pendulum-v1", 3, 1),
        ("HalfCheetah-v5", 17, 6),
        ("dm_control/cheetah/run", 17, 6),
        ("dm_control/ball_in_cup/catch", 8, 2),
    ],
)
def test_an_id_names_its_environment(env_id: str, obs_dim: int, act_dim: int) -> None:
    envs = make_engine(env_id, 2)
    assert (envs.env_name, envs.num_envs, envs.observation.size, envs.action.size) == (env_id, 2, obs_dim, act_dim)
    envs.close()


@pytest.mark.parametrize(
    "env_id",
    [
        "dm_control/cheetah",
        "dm_control/cheetah/run/fast",
        "dm_control/cheetah-run-v0",
        "dm_control//run",
        "dm_control/",
    ],
)
def test_a_dm_control_id_has_three_parts(env_id: str) -> None:
    with pytest.raises(EnvError, match=r"write dm_control/<domain>/<task>\. Did you mean dm_control/\w+/\w+"):
        make_engine(env_id, 1)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("HalfCheeta-v5", "HalfCheetah-v5"),
        ("halfcheetah-v5", "HalfCheetah-v5"),
        ("HalfCheetah-v99", "HalfCheetah-v5"),
        ("Half Cheetah", "HalfCheetah-v5"),
        ("Pendulum/v1", "Pendulum-v1"),
        ("Pendulum-v1:", "Pendulum-v1"),
        ("some::Pendulum-v1", "Pendulum-v1"),
        ("dm_control/chetah/run", "dm_control/cheetah/run"),
        ("dm_control/cheetah/rnu", "dm_control/cheetah/run"),
        ("dm_control/cheetah-run-v0", "dm_control/cheetah/run"),
        ("dmcontrol/cheetah/run", "dm_control/cheetah/run"),
    ],
)
def test_a_wrong_id_is_refused_with_the_nearest_name(written: str, meant: str) -> None:
    with pytest.raises(EnvError, match=f"Did you mean .*{meant}"):
        make_engine(written, 1)


def test_an_id_like_no_other_is_refused_with_some_names_and_their_number() -> None:
    with pytest.raises(EnvError, match=rf"Known: \S+, .*\({len(known_ids())} in all\)"):
        make_engine("qqqqqqqq", 1)


def test_names_that_are_offered_can_be_made() -> None:
    offered = known_ids()
    assert {"Pendulum-v1", "HalfCheetah-v5", "dm_control/humanoid/walk"} <= set(offered)
    assert not {"HalfCheetah-v2", "HalfCheetah-v3"} & set(offered), "gymnasium registers these only to refuse them"
    assert all(name.count("/") == 2 for name in offered if name.startswith("dm_control"))


def test_of_two_versions_the_newer_is_offered_whichever_came_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in (3, 11, 9):
        spec = gym.envs.registration.EnvSpec(f"Versioned-v{version}", entry_point=Endless)
        monkeypatch.setitem(gym.registry, spec.id, spec)
    assert [name for name in known_ids() if name.startswith("Versioned")] == ["Versioned-v11"]


def test_an_outdated_id_is_refused_with_the_newer_one() -> None:
    with pytest.warns(DeprecationWarning, match="out of date"), pytest.raises(EnvError, match="Pendulum-v1"):
        make_engine("Pendulum-v0", 1)


def test_dm_control_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvError, match=r"pip install "):
        make_engine("dm_control/cheetah/run", 1)


@pytest.mark.parametrize("task", ["lqr/lqr_2_1", "cheetah/run"])
def test_copies_of_a_dm_control_task_are_the_same_task(task: str) -> None:
    """lqr draws its springs when it is made."""
    np.testing.assert_array_equal(walk(f"dm_control/{task}"), walk(f"dm_control/{task}"))


# --- ids with a module ------------------------------------------------------------------------------------------


def test_an_id_with_a_module_imports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "registering_module.py").write_text(REGISTERING_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    envs = make_engine("registering_module:Imported-v3", 1)
    envs.reset([0])
    truncated = [bool(envs.step(torch.zeros((1, 1))).truncated[0]) for _ in range(7)]
    assert truncated == [False] * 6 + [True], "the registered time limit applies"
    gym.registry.pop("Imported-v3")


@pytest.mark.parametrize(
    ("env_id", "reason"),
    [
        ("no_such_module:Thing-v0", "of the module 'no_such_module', and none of that name can be imported"),
        ("probe_envs:Pendulm-v1", "Did you mean Pendulum-v1"),
    ],
)
def test_a_module_or_name_that_is_not_there_is_named(env_id: str, reason: str) -> None:
    with pytest.raises(EnvError, match=reason):
        make_engine(env_id, 1)


# --- functions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [Lottery, lambda: Lottery(), functools.partial(Lottery), Makes(lambda number: Lottery())]
)
def test_a_function_makes_every_copy(make: Any) -> None:
    np.testing.assert_array_equal(walk(make), walk(Lottery()))


@pytest.mark.parametrize("junk", [None, 3, "Pendulum-v1", Lottery, (Lottery(),)])
def test_a_function_that_returns_something_else_is_refused(junk: Any) -> None:
    with pytest.raises(EnvError, match=rf"returned a {type(junk).__name__}: it must return a gymnasium\.Env"):
        make_engine(lambda: junk, 1)


def test_a_function_that_returns_one_environment_twice_is_refused() -> None:
    shared = Endless()
    with pytest.raises(EnvError, match="returned the same Endless twice: it must make a new one"):
        make_engine(lambda: shared, 2)


def test_training_and_evaluation_cannot_share_an_environment_in_a_wrapper() -> None:
    shared = Endless()
    kept = make_engine(lambda: gym.wrappers.TimeLimit(shared, 3), 1)
    with pytest.raises(EnvError, match="twice"):
        make_engine(lambda: gym.wrappers.TimeLimit(shared, 3), 1)
    kept.close()


def test_what_a_function_raises_is_not_hidden() -> None:
    def make() -> gym.Env[Any, Any]:
        raise ZeroDivisionError("of the user's own")

    with pytest.raises(ZeroDivisionError, match="of the user's own"):
        make_engine(make, 1)


# --- instances --------------------------------------------------------------------------------------------------


def test_an_instance_is_copied_and_left_alone() -> None:
    original = Counter(0, [Ending(2, True, False)])
    envs = make_engine(original, 2)
    envs.reset([0, 1])
    envs.step(torch.zeros((2, 1)))
    assert (original.episode, original.steps_taken) == (-1, 0)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "HalfCheetah-v5", "dm_control/cheetah/run"])
def test_copies_of_a_used_instance_act_like_new_ones(env_id: str) -> None:
    instance = factory(env_id)()
    instance.reset(seed=77)
    instance.step(instance.action_space.sample())
    np.testing.assert_array_equal(walk(instance), walk(env_id))


def test_an_instance_that_cannot_be_copied_is_refused_with_the_way_out() -> None:
    instance = Endless()
    instance.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(EnvError, match=r"Endless cannot be copied \(.*lock.*\).*give a function that makes it"):
        make_engine(instance, 1)


@pytest.mark.parametrize("junk", [None, 3, ["Pendulum-v1"], {"env": "Pendulum-v1"}])
def test_anything_else_is_no_environment(junk: Any) -> None:
    with pytest.raises(EnvError, match=f"is a {type(junk).__name__}: give an id"):
        make_engine(junk, 1)


# --- names ------------------------------------------------------------------------------------------------------


def test_names_for_folders_and_messages() -> None:
    assert env_name("dm_control/cheetah/run") == "dm_control/cheetah/run"
    assert env_name(Listener) == "Listener"
    assert env_name(gym.wrappers.TimeLimit(Shaped(), 3)) == "Shaped"
    assert env_name(gym.make("Pendulum-v1")) == "Pendulum-v1"
    assert env_name(functools.partial(Listener)) == "partial"


def test_only_ids_are_known_to_be_dm_control() -> None:
    assert is_dm_control("dm_control/cheetah/run")
    assert not is_dm_control("HalfCheetah-v5")
    assert not is_dm_control(Lottery)


# --- without making one ---------------------------------------------------------------------------------------


def test_an_id_is_checked_without_making_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "registers_on_import.py").write_text(REGISTERING_MODULE.replace("Imported-v3", "Checked-v3"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(gym, "make", lambda *arguments, **options: pytest.fail("an environment was made"))
    for known in ("Pendulum-v1", "dm_control/ball_in_cup/catch", "registers_on_import:Checked-v3"):
        check_id(known)
    for unknown, nearest in (
        ("Pendulum", "Pendulum-v1"),
        ("Hoper-v5", "Hopper-v5"),
        ("HalfCheetah-v9", "HalfCheetah-v5"),
    ):
        with pytest.raises(EnvError, match=f"{unknown} is not a known environment. Did you mean .*{nearest}"):
            check_id(unknown)
    with pytest.raises(EnvError, match="no_such_module"):
        check_id("no_such_module:Env-v0")
