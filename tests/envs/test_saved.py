"""What a run saves of its environment: enough to make the same task again, or the reason why nobody can."""

import functools
import importlib
import json
import linecache
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
import yaml
from gymnasium.wrappers import RescaleAction, TimeLimit
from probe_envs import Endless, Lottery

from minerva.envs.engines.registry import engine_class, make_engine
from minerva.envs.ids import EnvLike, Task
from minerva.envs.saved import made_again, saved
from minerva.errors import EnvError


class Tall(Endless):
    """Takes an argument that can be anything."""

    def __init__(self, height: Any = 1, render_mode: str | None = None) -> None:
        super().__init__(3)
        self.height, self.render_mode = height, render_mode


class Hasty(TimeLimit):
    """Looks to gymnasium like the limit that it adds itself."""

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, 100.0, *rest


def make_tall() -> gym.Env[Any, Any]:
    """A function that a module knows by this name."""
    return Tall()


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = gym.envs.registration.EnvSpec("Tall-v0", entry_point=Tall, kwargs={"height": [2, 3]})
    monkeypatch.setitem(gym.registry, spec.id, spec)


def through_files(about: dict[str, Any]) -> dict[str, Any]:
    """What config.yaml and a checkpoint give back, which must agree."""
    read: dict[str, Any] = yaml.safe_load(yaml.safe_dump(about))
    assert read == json.loads(json.dumps(about))
    return read


def rewards(env: EnvLike, steps: int = 250) -> list[tuple[float, bool]]:
    """Rewards and ends of an episode, and of what follows, under a constant torque."""
    envs = make_engine(env, 1, "gymnasium")
    envs.reset([3])
    acted = [envs.step(torch.full((1, envs.action.size), 0.3)) for _ in range(steps)]
    envs.close()
    return [(float(step.rewards[0]), bool(step.truncated[0])) for step in acted]


# --- the same task again ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "kwargs"),
    [
        (lambda: gym.make("Pendulum-v1"), {}),
        (lambda: gym.make("Pendulum-v1", render_mode="rgb_array"), {}),
        (lambda: gym.make("Pendulum-v1", g=1.0), {"g": 1.0}),
        (lambda: gym.make("Pendulum-v1", g=np.float64(2.5)), {"g": 2.5}),
        (lambda: gym.make("Pendulum-v1", g=1.0, max_episode_steps=7), {"g": 1.0, "max_episode_steps": 7}),
        (lambda: gym.make("Pendulum-v1", max_episode_steps=-1), {"max_episode_steps": -1}),
        (lambda: TimeLimit(gym.make("Pendulum-v1"), 20), {"max_episode_steps": 20}),
        (lambda: TimeLimit(gym.make("Pendulum-v1"), 230), {}),
        (lambda: Task("Pendulum-v1", {"g": 3.0}), {"g": 3.0}),
    ],
)
def test_what_is_saved_makes_the_same_task(env: Any, kwargs: dict[str, Any]) -> None:
    about = through_files(saved(env()))
    assert (about["env"], about.get("env_kwargs", {})) == ("Pendulum-v1", kwargs)
    assert rewards(made_again(about)) == rewards(env())


def test_arguments_of_the_registration_are_not_the_persons() -> None:
    assert saved(gym.make("Tall-v0")) == {"env": "Tall-v0"}
    assert saved(gym.make("Tall-v0", height=[2, 3])) == {"env": "Tall-v0"}
    assert saved(gym.make("Tall-v0", height=None)) == {"env": "Tall-v0", "env_kwargs": {"height": None}}


def test_arguments_may_have_the_names_of_our_own_parameters() -> None:
    for name in ("env", "env_id", "written", "task"):
        with pytest.raises(EnvError, match=rf"Pendulum-v1 \({name}=1\) could not be made: .*unexpected keyword"):
            make_engine(Task("Pendulum-v1", {name: 1}), 1)


def test_engines_that_do_not_know_the_arguments_are_not_chosen() -> None:
    heavy = Task("Pendulum-v1", {"g": 20.0})
    assert make_engine(heavy, 1, "auto").name == "gymnasium"
    for name in ("envpool", "torch"):
        assert "argument" in str(engine_class(name).unavailable_reason(heavy))
        with pytest.raises(EnvError, match="argument"):
            make_engine(heavy, 1, name)
    assert rewards(heavy) != rewards("Pendulum-v1")


# --- what nobody can make again ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        (lambda: RescaleAction(gym.make("Pendulum-v1"), -1, 1), "RescaleAction"),
        (lambda: Hasty(gym.make("Pendulum-v1"), 20), "Hasty"),
        (lambda: gym.make("Tall-v0", height=np.ones(2)), "argument height is a ndarray"),
        (lambda: gym.make("Tall-v0", height={"of": [print]}), "argument height is a builtin"),
        (lambda: gym.make(gym.envs.registration.EnvSpec("Pendulum-v1", Lottery)), "class Lottery"),
        (lambda: Lottery(), "class Lottery"),
        (lambda: make_tall, "test_saved.make_tall"),
        (lambda: Lottery, "probe_envs.Lottery"),
        (lambda: functools.partial(Tall, 3), "without a name"),
        (lambda: lambda: Tall(3), "without a name"),
    ],
)
def test_the_reason_is_saved_and_the_person_asked(env: Any, reason: str) -> None:
    about = through_files(saved(env()))
    with pytest.raises(
        EnvError, match=rf"cannot be made again .*{reason}.*: give it again, in Python as env="
    ) as refused:
        made_again(about, trust=True)
    assert "\n" not in str(refused.value)
    assert made_again(about, Lottery) is Lottery


def test_what_has_no_name_is_never_equal() -> None:
    makers: list[Any] = [lambda: Tall(5), lambda: Tall(10), functools.partial(Tall, 5), Lottery(), Lottery()]
    records = [json.dumps(saved(make)) for make in [*makers, RescaleAction(gym.make("Pendulum-v1"), -1, 1)] * 2]
    assert len(set(records)) == len(records)


def test_a_named_function_is_known_again_by_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    records = []
    for length in (5, 5, 10):
        (tmp_path / "maker.py").write_text(
            f"from probe_envs import Endless\n\ndef make():\n    return Endless({length})\n"
        )
        sys.modules.pop("maker", None)
        linecache.checkcache()
        records.append(saved(importlib.import_module("maker").make))
    sys.modules.pop("maker")
    assert records[0] == records[1] != records[2]
    assert records[0]["env"] == records[2]["env"] == "make"


# --- code that a file names -------------------------------------------------------------------------------------

NAMED_IN_A_FILE: list[dict[str, Any]] = [
    {"env": "planted:Thing-v0"},
    {"env": "Pendulum-v1", "env_kwargs": {"env_id": "planted:Thing-v0"}},
    {"env": "Pendulum-v1", "env_kwargs": {"deep": [{"planted:Thing-v0": 1}]}},
]


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that leaves a trace when it is imported; the path of the trace."""
    (tmp_path / "planted.py").write_text(
        "from pathlib import Path\nimport gymnasium as gym\nfrom probe_envs import Endless\n"
        "Path(__file__).with_name('trace').touch()\ngym.register('Thing-v0', Endless)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "planted", raising=False)
    return tmp_path / "trace"


@pytest.mark.parametrize("about", NAMED_IN_A_FILE)
def test_a_file_does_not_decide_what_is_imported(about: dict[str, Any], planted: Path) -> None:
    with pytest.raises(EnvError, match=r"would import and run the module 'planted'.*--trust-env"):
        made_again(about)
    assert not planted.exists()
    assert made_again(about, trust=True) == made_again(about, about["env"])


def test_the_person_may_name_it_and_then_it_is_imported(planted: Path) -> None:
    envs = make_engine(made_again(NAMED_IN_A_FILE[0], "planted:Thing-v0"), 1)
    envs.close()
    assert planted.exists()
    made_again(NAMED_IN_A_FILE[0])  # it is imported already: nothing new is run
    gym.registry.pop("Thing-v0")


@pytest.mark.parametrize(
    "about", [{"env": 3}, {"env": "Pendulum-v1", "env_kwargs": [1]}, {"env": "a", "env_kwargs": {1: 2}}]
)
def test_a_damaged_record_is_refused(about: dict[str, Any]) -> None:
    with pytest.raises(EnvError, match="cannot be made: give another"):
        made_again(about)


@pytest.mark.parametrize("env", ["subprocess:check_call", "gymnasium:make", "tiny_runs:Paced"])
def test_a_file_names_no_function_to_be_called(env: str) -> None:
    module = env.partition(":")[0]
    importlib.import_module(module)  # what is imported already could be called without importing anything
    for about in ({"env": env}, {"env": env, "env_kwargs": {"args": ["touch", "trace"]}}):
        with pytest.raises(EnvError, match=rf"would import and run the module '{module}'.*--env {env}"):
            made_again(about)
    assert made_again({"env": env}, given=env) == env


def test_a_given_id_without_its_version_is_the_saved_one_with_its_arguments() -> None:
    about = {"env": "Pendulum-v1", "env_kwargs": {"g": 1.0}}
    assert made_again(about, given="Pendulum") == made_again(about)
