"""Which spaces are accepted, and how observations become one row."""

import json
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from needs import all_but_first_slow
from probe_envs import Env, Shaped, StepResult, vector_space

from minerva.envs.engine import Engine
from minerva.envs.engines.registry import EngineName, make_engine
from minerva.envs.spaces import action_spec
from minerva.errors import EnvError
from minerva.spec import ActionSpec


def box(*shape: int, dtype: Any = np.float32) -> spaces.Box:
    return spaces.Box(0, 1, shape, dtype)


def bounded(low: list[float], high: list[float]) -> spaces.Box:
    return spaces.Box(np.array(low, np.float32), np.array(high, np.float32))


class Heard(Env):
    """Observes the action it was given, as numbers, and how many axes it had; refuses one that is not in its space."""

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self.action_space = action_space
        self.size = len(self._numbers(action_space.sample()))
        self.observation_space = vector_space(self.size + 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(self.size + 1), {}

    def step(self, action: Any) -> StepResult:
        if action not in self.action_space:
            raise ValueError(f"{action!r} is not in {self.action_space}")
        axes = 0 if isinstance(self.action_space, spaces.Dict) else np.ndim(action)
        return np.append(self._numbers(action), axes), 0.0, False, False, {}

    def _numbers(self, action: Any) -> Any:
        """A structure as gymnasium flattens it, all else as it is."""
        if isinstance(self.action_space, spaces.Dict):
            return spaces.flatten(self.action_space, action)
        return np.ravel(action)


def shown_by(space: spaces.Space[Any], *observations: Any) -> Engine:
    envs = make_engine(lambda: Shaped(space, shown=observations), 1)
    envs.reset([0])
    return envs


# --- actions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        (spaces.Text(3), "Text.*takes Box, Discrete, MultiDiscrete.*TransformAction"),
        (spaces.Sequence(box(1)), "Sequence.*takes Box, Discrete, MultiDiscrete.*TransformAction"),
        (spaces.Dict(), "Dict.*takes Box, Discrete, MultiDiscrete.*TransformAction"),
        (spaces.Tuple((box(1), spaces.Tuple(()))), r"Tuple\(\): Minerva takes Box, Discrete, MultiDiscrete"),
        (spaces.Dict(a=box(1), b=spaces.Text(3)), "Text.*takes Box, Discrete, MultiDiscrete.*TransformAction"),
        (spaces.Dict(a=spaces.Tuple((spaces.Box(-np.inf, np.inf, (2,)),))), "unbounded.*TransformAction"),
        (spaces.Box(0, 9, (2,), np.int64), "int64.*has to be of floats.*MultiDiscrete.*TransformAction"),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), r"shape \(2, 2\).*vector"),
        (spaces.MultiBinary((2, 2)), r"shape \(2, 2\).*vector.*TransformAction"),
        (spaces.Box(-np.inf, np.inf, (2,)), "unbounded.*TransformAction"),
        (bounded([-1, -np.inf], [1, 1]), "unbounded"),
        (bounded([-1, -1], [1, np.inf]), "unbounded"),
        (spaces.Box(-1.7e308, 1.7e308, (2,), np.float64), r"unbounded.*3\.4e\+38.*TransformAction"),
        (spaces.Box(0.0, 3.5e38, (2,), np.float64), "unbounded"),
        (box(2, 2), r"shape \(2, 2\).*vector"),
        (box(), r"shape \(\).*vector"),
        (box(0), r"shape \(0,\).*vector"),
        (bounded([-1, 1], [1, 1]), "lower bound is not below"),
    ],
)
def test_actions_that_are_no_bounded_vector_and_no_choices_are_refused(space: spaces.Space[Any], reason: str) -> None:
    with pytest.raises(EnvError, match=f"^mine .*{reason}"):
        make_engine(_named("mine", Shaped(action_space=space)), 1)


CHOICES = [
    (spaces.Discrete(3), [[2], [0]], [np.int64(2), np.int64(0)]),
    (spaces.Discrete(4, start=-1), [[0], [3]], [np.int64(-1), np.int64(2)]),
    (
        spaces.MultiDiscrete([3, 2], start=[5, -1], dtype=np.int32),
        [[2, 0], [0, 1]],
        [np.array([7, -1], np.int32), np.array([5, 0], np.int32)],
    ),
    (spaces.MultiBinary(3), [[0, 1, 1], [1, 0, 0]], [np.array([0, 1, 1], np.int8), np.array([1, 0, 0], np.int8)]),
]


@pytest.mark.parametrize("engine", all_but_first_slow(["gymnasium", "processes"]))
@pytest.mark.parametrize(("space", "choices", "native"), CHOICES, ids=lambda value: str(value) if value else "")
def test_an_environment_hears_choices_in_its_own_numbers_and_type(
    space: spaces.Space[Any], choices: list[list[int]], native: list[Any], engine: EngineName
) -> None:
    """The listener shows what it heard, and refuses what is not in its space, so that a process can be asked too."""
    envs = make_engine(lambda: Heard(space), 2, engine)
    envs.reset([0, 1])
    shown = envs.step(torch.tensor(choices)).next_obs
    np.testing.assert_array_equal(shown, np.stack([np.append(np.ravel(one), np.ndim(one)) for one in native]))
    envs.close()


@pytest.mark.parametrize(("space", "choices", "native"), CHOICES, ids=lambda value: str(value) if value else "")
def test_a_spec_survives_a_checkpoint_and_its_random_actions_fill_the_space(
    space: spaces.Space[Any], choices: list[list[int]], native: list[Any]
) -> None:
    spec = action_spec(space)
    assert ActionSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    lowest, highest = spec.range
    drawn = spec.to_environment(spec.random(np.zeros((500, 0)), np.random.default_rng(0)))
    assert all(spec.native(row) in space for row in drawn)
    np.testing.assert_array_equal(drawn.min(0), lowest)
    np.testing.assert_array_equal(drawn.max(0), highest)
    one = spec.native(spec.to_environment(np.array(choices[0])))
    assert (type(one), one.dtype) == (type(native[0]), native[0].dtype)


STRUCTURE = spaces.Dict(
    {
        "speed": spaces.Box(np.float32([-2, 0]), np.float32([2, 1])),
        "gear": spaces.Discrete(3, start=1),
        "rest": spaces.Tuple((spaces.MultiBinary(2), spaces.Dict({"aim": spaces.Box(-1.0, 1.0, (1,), np.float64)}))),
    }
)
VECTOR = [[0.5, -1.0, 0.25, 2, 1, 0]]
"""All numbers in the order of the entries by name (aim, speed), then all choices (gear, the two of rest)."""


def test_a_structure_of_actions_is_one_vector_inside_and_itself_outside() -> None:
    spec = action_spec(STRUCTURE)
    assert (spec.size, spec.counts, len(spec.low)) == (6, (3, 2, 2), 3)
    native = spec.native(spec.to_environment(np.array(VECTOR[0])))
    assert native in STRUCTURE
    assert native["gear"] == 3
    assert type(native["gear"]) is np.int64
    np.testing.assert_array_equal(native["rest"][0], np.array([1, 0], np.int8))
    np.testing.assert_array_equal(native["rest"][1]["aim"], [0.5])
    np.testing.assert_array_equal(native["speed"], np.float32([-2.0, 0.625]))
    batch = spec.native(spec.to_environment(np.array(VECTOR * 4)))
    assert batch["gear"].tolist() == [3] * 4
    assert batch["rest"][1]["aim"].shape == (4, 1)


def test_a_structures_spec_survives_a_checkpoint_and_fits_only_its_like() -> None:
    spec = action_spec(STRUCTURE)
    assert ActionSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    drawn = spec.to_environment(spec.random(np.zeros((200, 0)), np.random.default_rng(0)))
    assert all(spec.native(row) in STRUCTURE for row in drawn)
    renamed = spaces.Dict({{"gear": "step"}.get(name, name): part for name, part in STRUCTURE.items()})
    assert not spec.fits(action_spec(renamed))
    assert not spec.fits(action_spec(spaces.Tuple(tuple(STRUCTURE.values()))))
    assert spec.fits(action_spec(spaces.Dict({**STRUCTURE, "speed": spaces.Box(-9.0, 9.0, (2,))})))


@pytest.mark.parametrize("changed", [{"names": ["a"]}, {"parts": []}, {"names": [1, 2, 3]}, {"kind": "tuple"}], ids=str)
def test_entries_and_names_that_contradict_each_other_are_no_spec(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="action"):
        ActionSpec.from_dict({**action_spec(STRUCTURE).to_dict(), **changed})


@pytest.mark.parametrize("engine", ["gymnasium", "processes"])
def test_an_environment_hears_a_structure_of_actions(engine: EngineName) -> None:
    envs = make_engine(lambda: Heard(STRUCTURE), 1, engine)
    envs.reset([0])
    shown = envs.step(torch.tensor(VECTOR)).next_obs
    # flattened by gymnasium: gear one-hot, the two of rest, aim, speed
    np.testing.assert_array_equal(shown, [[0, 0, 1, 1, 0, 0.5, -2.0, 0.625, 0]])
    envs.close()


@pytest.mark.parametrize(
    "changed",
    [
        {"counts": []},
        {"counts": [2, 2]},
        {"counts": [0]},
        {"counts": [2.0]},
        {"starts": []},
        {"starts": [0.5]},
        {"starts": [10**30]},
        {"dtype": "float32"},
        {"dtype": "object"},
        {"low": [-1.0], "high": [1.0]},
        {"kind": "continuous"},
    ],
    ids=str,
)
def test_a_description_that_contradicts_itself_is_no_spec(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"action|choices"):
        ActionSpec.from_dict({**ActionSpec.discrete(3).to_dict(), **changed})


# --- observations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        (spaces.Box(0, 255, (4, 8, 8, 3), np.uint8), r"images of shape \(4, 8, 8, 3\).*StackedFrames"),
        (spaces.Sequence(box(2)), "Sequence.*takes Box, Discrete, MultiDiscrete.*TransformObservation"),
        (spaces.Graph(box(2), None), "Graph.*takes Box, Discrete, MultiDiscrete.*TransformObservation"),
        (spaces.Dict(state=box(3), others=spaces.Text(2)), "Text.*takes Box, Discrete.*TransformObservation"),
        (box(0), "empty observation"),
        (spaces.Dict(), "empty observation"),
    ],
)
def test_observations_of_no_known_form_are_refused_with_the_wrapper_that_helps(
    space: spaces.Space[Any], reason: str
) -> None:
    with pytest.raises(EnvError, match=f"^mine .*{reason}"):
        make_engine(_named("mine", Shaped(space)), 1)


def test_a_dict_is_flattened_by_name_in_whatever_order_its_entries_come() -> None:
    space = spaces.Dict({"speed": box(2), "angle": box(1), "touch": spaces.Discrete(3)})
    values = {"speed": np.array([0.1, 0.2]), "touch": 1, "angle": np.array([0.5])}
    envs = shown_by(space, values, dict(reversed(values.items())))
    expected = np.array([[0.5, 0.1, 0.2, 0.0, 1.0, 0.0]], np.float32)  # angle, speed, touch as one of three
    np.testing.assert_array_equal(envs.obs, expected)
    np.testing.assert_array_equal(envs.step(torch.zeros((1, 1))).next_obs, expected)
    assert envs.observation.size == 6


def test_an_order_that_the_environment_gave_is_kept() -> None:
    space = spaces.Dict(OrderedDict([("speed", box(2)), ("angle", box(1))]))
    envs = shown_by(space, {"angle": np.array([0.5]), "speed": np.array([0.1, 0.2])})
    np.testing.assert_array_equal(envs.obs, np.array([[0.1, 0.2, 0.5]], np.float32))


def test_nested_parts_and_matrices_are_flattened_in_place() -> None:
    space = spaces.Dict({"b": spaces.Tuple((box(), box(2, 2))), "a": spaces.Dict({"y": box(1), "x": box(1)})})
    matrix = np.array([[4.0, 5.0], [6.0, 7.0]])
    part = {"a": {"y": np.array([2.0]), "x": np.array([1.0])}, "b": (np.float32(3.0), matrix)}
    np.testing.assert_array_equal(shown_by(space, part).obs, np.arange(1.0, 8.0, dtype=np.float32)[None])


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8, np.bool_])
def test_every_number_arrives_as_float32(dtype: Any) -> None:
    envs = shown_by(spaces.Box(0, 1, (2,), dtype), np.array([0, 1], dtype))
    assert envs.obs.dtype == torch.float32
    np.testing.assert_array_equal(envs.obs, [[0, 1]])


class Sensors(Env):
    """Gives what it is told to give in its second observation."""

    action_space = spaces.Box(-1, 1, (1,))
    observation_space = spaces.Dict(
        {
            "gripper": spaces.Discrete(3),
            "joint": spaces.Box(-4, 4, (2,)),
            "velocity": spaces.Tuple([spaces.Box(-np.inf, np.inf, (2,))]),
        }
    )
    good: dict[str, Any] = {"gripper": 1, "joint": np.zeros(2), "velocity": (np.zeros(2),)}  # noqa: RUF012

    def __init__(self, **given: Any) -> None:
        self.given = given

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.good, {}

    def step(self, action: Any) -> StepResult:
        return {**self.good, **self.given}, 0.0, False, False, {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"velocity": (np.array([0, np.nan]),)}, r"non-finite observation .* episode: nan at velocity\.0\[1\] \("),
        ({"joint": np.zeros(3)}, r"gave an odd observation in step of environment 0: its joint has the shape \(3,\)"),
        ({"joint": ["a", "b"]}, "gave an odd observation in step of environment 0: its joint holds <U1, and not num"),
        ({"gripper": 3}, "gave an odd observation in step of environment 0: its gripper is 3, and not among"),
        ({"gripper": 0.5}, "gave an odd observation in step of environment 0: its gripper is 0.5, and not among"),
        ({"velocity": ()}, "gave an odd observation in step of environment 0: its velocity holds 0 entries, not a tup"),
    ],
)
@pytest.mark.parametrize("engine", all_but_first_slow(["gymnasium", "processes"]))
def test_the_entry_of_an_odd_observation_is_named(given: dict[str, Any], words: str, engine: EngineName) -> None:
    envs = make_engine(lambda: Sensors(**given), 1, engine)
    envs.reset([0])
    with pytest.raises(EnvError, match=words):
        envs.step(torch.zeros((1, 1)))
    envs.close()


def test_an_environment_without_a_space_is_told_which() -> None:
    class Spaceless(Env):
        action_space = spaces.Box(-1, 1, (1,))

    with pytest.raises(EnvError, match="Spaceless has no observation_space: set it in its __init__"):
        make_engine(Spaceless, 1)


@pytest.mark.parametrize("task", ["cheetah/run", "humanoid/walk", "finger/spin", "swimmer/swimmer6", "fish/swim"])
def test_a_dm_control_observation_is_the_tasks_own_entries_sorted_by_name(task: str) -> None:
    suite = pytest.importorskip("dm_control.suite")
    direct = suite.load(*task.split("/"), task_kwargs={"random": 11})
    envs = make_engine(f"dm_control/{task}", 1, "gymnasium")
    envs.reset([11])
    timestep = direct.reset()
    draw = np.random.default_rng(3)
    for _ in range(6):
        entries = timestep.observation
        joined = np.concatenate([np.ravel(entries[name]) for name in sorted(entries)])
        np.testing.assert_array_equal(envs.obs[0], joined.astype(np.float32))
        action = draw.uniform(-1, 1, envs.action.size)
        timestep = direct.step(action)
        step = envs.step(torch.from_numpy(action[None]))
        assert float(step.rewards[0]) == pytest.approx(timestep.reward, rel=1e-9, abs=1e-12)
    envs.close()


def _named(name: str, env: Shaped) -> Any:
    def make() -> Shaped:
        return env

    make.__name__ = name
    return make
