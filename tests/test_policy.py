"""A trained policy outside of training: the checkpoint alone, no simulator, actions in the environment's units."""

import json
import math
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from probe_envs import Listener, Makes
from tiny_runs import PPO, SETTINGS, FinishedRun

import minerva
from minerva.envs.engines.registry import make_engine
from minerva.errors import CheckpointError, EnvStepError, MinervaError, RunError
from minerva.policy import Policy, load_policy
from minerva.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from minerva.spec import LARGEST, ActionSpec
from minerva.trainers.ppo.trainer import PPOTrainer

EPS = np.finfo(np.float32).eps
OLD = Path(__file__).parent / "vectors" / "format_2"
OBSERVATIONS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32) * 3

WITHOUT_SIMULATORS = """
import json, sys
blocked = ["gymnasium", "mujoco", "dm_control", "shimmy", "matplotlib", "tensorboard", "rich", "tyro", "wandb"]
sys.modules.update(dict.fromkeys(blocked))  # importing one of them now raises ImportError
import minerva
policy = minerva.load_policy(sys.argv[1])
observations = json.loads(sys.argv[2])
print(json.dumps([policy.act(observations).tolist(), policy.act(observations[0]).tolist()]))
"""


@pytest.fixture(scope="module")
def policy(finished_run: FinishedRun) -> Policy:
    return load_policy(finished_run.folder)


def greedy(folder: Path, which: str) -> np.ndarray[Any, Any]:
    """What a trainer with that checkpoint's state does, in [-1, 1]."""
    trainer = PPOTrainer("Pendulum-v1", seed=5, **PPO)
    trainer.load_state_dict(load_checkpoint(folder / "checkpoints" / f"ppo_{which}.safetensors").state["trainer"])
    return trainer.greedy(OBSERVATIONS)


@pytest.mark.parametrize("which", ["best", "last"])
def test_actions_are_the_trainers_greedy_ones_scaled_to_the_bounds(which: str, finished_run: FinishedRun) -> None:
    actions, scaled = greedy(finished_run.folder, which), load_policy(finished_run.folder, which).act(OBSERVATIONS)
    assert actions.std() > 0
    np.testing.assert_allclose(scaled, 2.0 * actions, atol=2 * EPS)  # Pendulum's torque is in [-2, 2]
    makes = Makes(lambda number: Listener(Box(-2.0, 2.0, (1,))))
    envs = make_engine(makes, len(actions))
    envs.reset(range(len(actions)))
    envs.step(actions)  # an environment in training hears the very same
    np.testing.assert_array_equal(scaled, np.stack([env.heard[0] for env in makes.made]))


class Formed(gym.Env[Any, Any]):
    """Gives noise of a space, and ends after eight steps."""

    action_space = Box(-2.0, 2.0, (1,))

    def __init__(self, space: Any) -> None:
        self.observation_space = space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.observation_space.sample(), 0.0, False, self.steps == 8, {}


NESTED = spaces.Dict(
    {
        "b": Box(-1.0, 1.0, (2, 2)),
        "a": spaces.Dict({"z": Box(-1.0, 1.0, (3,), np.float64), "y": Box(0, 9, (1,), np.int64)}),
    }
)


@pytest.mark.parametrize(
    "space", [Box(-1.0, 1.0, (3, 4)), NESTED, Box(-1.0, 1.0, (3,), np.float64), Box(-1.0, 1.0, ())], ids=str
)
def test_a_policy_acts_on_what_its_environment_gives(space: Any, tmp_path: Path) -> None:
    minerva.train("ppo", lambda: Formed(space), total_steps=128, run_dir=tmp_path, settings=SETTINGS, **PPO)
    policy = load_policy(tmp_path)
    space.seed(0)
    given = [space.sample() for _ in range(5)]
    flat = np.stack([spaces.flatten(space, one) for one in given])
    expected = policy.act(flat)
    assert expected.shape == (5, 1)
    assert expected.std() > 0
    alone = np.stack([policy.act(one) for one in given])
    batched = policy.act(gym.vector.utils.concatenate(space, given, gym.vector.utils.create_empty_array(space, 5)))
    np.testing.assert_allclose(alone, expected, atol=1e-6)
    np.testing.assert_array_equal(batched, expected)
    if isinstance(space, spaces.Dict):
        with pytest.raises(CheckpointError, match="it holds b, not the entries"):
            policy.act({"b": given[0]["b"]})
        with pytest.raises(CheckpointError, match=r"its b has the shape \(3,\)"):
            policy.act({**given[0], "b": np.zeros(3)})
        with pytest.raises(EnvStepError, match=r"holds nan at b\[0\]: "):
            policy.act({**given[0], "b": np.full((2, 2), np.nan)})
    else:
        with pytest.raises(CheckpointError, match="does not fit"):
            policy.act({"observation": given[0]})


def test_an_image_of_another_form_is_refused_with_both() -> None:
    trainer = PPOTrainer(lambda: Formed(Box(0, 255, (4, 6, 6), np.uint8)), 0, **PPO)
    about = {
        "observation": trainer.envs.observation.to_dict(),
        "action": trainer.envs.action.to_dict(),
        "env": "Formed",
    }
    policy, image = Policy(trainer.agent, about), np.full((4, 6, 6), 200, np.uint8)
    np.testing.assert_allclose(policy.act(image), policy.act(image.ravel()), atol=1e-6)
    with pytest.raises(
        CheckpointError, match=r"shape \(6, 6, 4\), and the environment gives it in the shape \(4, 6, 6\)"
    ):
        policy.act(np.moveaxis(image, 0, 2))
    for wrong in (image / 255, image.ravel() / 255, "a picture", None):
        with pytest.raises(CheckpointError, match="does not fit Formed"):
            policy.act(wrong)


def test_best_and_last_are_two_policies(finished_run: FinishedRun) -> None:
    best, last = (load_policy(finished_run.folder, which) for which in ("best", "last"))
    assert best.about["step"] != last.about["step"]
    assert not np.array_equal(best.act(OBSERVATIONS), last.act(OBSERVATIONS))


def test_a_file_is_as_good_as_its_run(finished_run: FinishedRun, policy: Policy) -> None:
    alone = load_policy(str(finished_run.folder / "checkpoints" / "ppo_best.safetensors"))
    np.testing.assert_array_equal(alone.act(OBSERVATIONS), policy.act(OBSERVATIONS))


def test_a_checkpoint_alone_is_enough_and_no_simulator_is_imported(
    finished_run: FinishedRun, policy: Policy, tmp_path: Path
) -> None:
    moved = tmp_path / "policy.pt"
    moved.write_bytes((finished_run.folder / "checkpoints" / "ppo_best.safetensors").read_bytes())
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT_SIMULATORS, str(moved), json.dumps(OBSERVATIONS.tolist())],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    batch, single = json.loads(process.stdout)
    np.testing.assert_allclose(batch, policy.act(OBSERVATIONS), rtol=1e-6)
    np.testing.assert_allclose(single, policy.act(OBSERVATIONS[0]), rtol=1e-6)


def test_one_observation_gives_one_action_and_a_batch_gives_a_batch(policy: Policy) -> None:
    batch = policy.act(OBSERVATIONS)
    assert (batch.shape, batch.dtype) == ((6, 1), np.float32)
    for observation, action in zip(OBSERVATIONS, batch, strict=True):
        single = policy.act(observation)
        assert single.shape == (1,)
        np.testing.assert_allclose(single, action, rtol=1e-5)
    assert policy.act(OBSERVATIONS.reshape(2, 3, 3)).shape == (2, 3, 1)
    assert policy.act(OBSERVATIONS[:0]).shape == (0, 1)


def test_lists_and_other_number_types_are_taken_too(policy: Policy) -> None:
    np.testing.assert_array_equal(policy.act([1, 0, 0]), policy.act(np.array([1.0, 0.0, 0.0])))  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(), (1,), (2,), (4,), (3, 1), (6, 4)], ids=str)
def test_an_observation_of_another_shape_is_refused(shape: tuple[int, ...], policy: Policy) -> None:
    with pytest.raises(CheckpointError, match=r"trained on Pendulum-v1, whose observations have 3 numbers"):
        policy.act(np.zeros(shape))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39, None])
def test_an_observation_that_is_not_finite_is_named_as_the_cause(bad: Any, policy: Policy) -> None:
    batch: Any = [[0.1, 0.2, 0.3], [0.1, bad, 0.3]]
    for observation in (batch[1], batch):
        with pytest.raises(EnvStepError, match=r"The observation holds (nan|-?inf) at \[1\]: fix the environment"):
            policy.act(observation)


BOUNDS = st.floats(-LARGEST, LARGEST)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(BOUNDS, BOUNDS, st.floats(-1, 1))
@example(0.1, 0.3, 1.0)  # float32 rounds both outwards
@example(1.0, 1.0 + 2**-40, 0.0)  # the lower bound alone is a float32 number
@example(0.1, 0.1 + 2**-50, 0.5)  # no float32 number lies between them
def test_no_rounding_to_float32_carries_an_action_out_of_its_bounds(one: float, other: float, action: float) -> None:
    low, high = min(one, other), max(one, other)
    assume(low < high)
    spec = ActionSpec.continuous([low], [high])
    exact = spec.to_environment(np.array([action]))
    rounded = spec.to_float32(exact)
    assert low <= float(rounded[0]) <= high
    if rounded.dtype == np.float32:
        spacing = max(float(np.spacing(np.abs(np.float32(exact[0])))), float(np.spacing(np.abs(rounded[0]))))
        assert abs(float(rounded[0]) - exact[0]) <= spacing
    else:
        assert high - low < float(np.spacing(np.float32(max(abs(low), abs(high)))))  # in float64, which is exact


def test_sampled_actions_vary_and_stay_within_the_bounds(policy: Policy) -> None:
    actions = np.concatenate([policy.act(OBSERVATIONS, deterministic=False) for _ in range(50)])
    assert actions.std() > 0.5
    assert np.abs(actions).max() <= 2.0


def test_bounds_that_are_not_symmetric_are_met_at_their_ends(finished_run: FinishedRun, tmp_path: Path) -> None:
    about, state = load_checkpoint(finished_run.folder / "checkpoints" / "ppo_best.safetensors")
    network = state["trainer"]["agent"]["network"]
    last_bias = max(name for name in network if name.startswith("actor_mean") and name.endswith("bias"))
    for mean, end in ((-100.0, -1.0), (100.0, 5.0)):
        network[last_bias].fill_(mean)
        action = ActionSpec.continuous([-1.0], [5.0]).to_dict()
        save_checkpoint(tmp_path / "a.pt", Checkpoint({**about, "action": action}, state))
        assert load_policy(tmp_path / "a.pt").act(OBSERVATIONS[0]) == end


def test_it_says_what_it_is(policy: Policy) -> None:
    about = policy.about
    assert (
        repr(policy)
        == f"Policy(ppo on Pendulum-v1, seed 0, step {about['step']}, evaluated return {about['return']:,.1f})"
    )


def test_a_run_that_was_killed_before_its_first_evaluation_says_so(finished_run: FinishedRun, tmp_path: Path) -> None:
    best = finished_run.folder / "checkpoints" / "ppo_best.safetensors"
    assert "not evaluated" in repr(load_policy(changed_checkpoint(best, tmp_path / "a.pt", {"return": None})))


def test_a_checkpoint_whose_networks_contradict_its_config_is_refused(
    finished_run: FinishedRun, tmp_path: Path
) -> None:
    about, state = load_checkpoint(finished_run.folder / "checkpoints" / "ppo_best.safetensors")
    del state["trainer"]["agent"]["network"]["actor_logstd"]
    save_checkpoint(tmp_path / "a.pt", Checkpoint(about, state))
    with pytest.raises(CheckpointError, match=r"a\.pt does not fit its own config"):
        load_policy(tmp_path / "a.pt")


def peak_memory() -> int:
    """Bytes of memory that this process has ever had at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def changed_checkpoint(source: Path, target: Path, about: dict[str, Any], **hyperparameters: Any) -> Path:
    """Write a checkpoint with another description and the same tensors."""
    kept, state = load_checkpoint(source)
    settings = {**kept["hyperparameters"], **hyperparameters}
    save_checkpoint(target, Checkpoint({**kept, "hyperparameters": settings, **about}, state))
    return target


@pytest.mark.parametrize(
    ("algo", "about", "hyperparameters"),
    [
        ("ppo", {"observation": {"shape": [20_000_000], "dtype": "float32"}}, {}),
        ("ppo", {"observation": {"shape": [20_000_000], "dtype": "float32"}, "hyperparameters": {}}, {}),
        ("ppo", {"action": ActionSpec.continuous([-1.0] * 200_000, [1.0] * 200_000).to_dict()}, {}),
        ("ppo", {}, {"policy_layer_sizes": [1] * 30_000}),
        ("ppo", {}, {"critic_layer_sizes": [1_000_000, 1_000_000]}),
        ("mpo", {}, {"critic": "categorical", "critic_atoms": 1_000_000_000, "critics": 1}),
        ("mpo", {}, {"critic": "hl_gauss", "critic_atoms": 1_000_000_000}),
    ],
    ids=["observation", "no settings", "action", "layers", "width", "atoms", "bins"],
)
def test_sizes_that_the_tensors_contradict_are_refused_before_memory_is_taken(
    algo: str, about: dict[str, Any], hyperparameters: dict[str, Any], tmp_path: Path
) -> None:
    file = changed_checkpoint(OLD / f"{algo}.pt", tmp_path / "a.pt", about, **hyperparameters)
    before, start = peak_memory(), time.process_time()
    with pytest.raises(MinervaError, match=r"a\.pt does not fit its own config|at most 100 are possible"):
        load_policy(file)
    assert peak_memory() - before < 300_000_000
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ([math.nan], [1.0]),
        ([-1.0], [math.nan]),
        ([-math.inf], [1.0]),
        ([-1.0], [math.inf]),
        ([1.0], [-1.0]),
        ([1.0], [1.0]),
        ([-1.0], [1.0, 1.0]),
        ([-1.0, -1.0], [1.0, 1.0]),
        ([], []),
        (["-1"], ["1"]),
        ([None], [1.0]),
        ([False], [True]),
        ([-(10**400)], [1.0]),
        (-1.0, 1.0),
    ],
    ids=str,
)
def test_bounds_that_no_action_has_are_refused(low: Any, high: Any, finished_run: FinishedRun, tmp_path: Path) -> None:
    action = {"kind": "continuous", "low": low, "high": high, "counts": []}
    best = finished_run.folder / "checkpoints" / "ppo_best.safetensors"
    with pytest.raises(CheckpointError, match=r"a\.pt.* (does not fit its own config|is not as Minerva writes it)"):
        load_policy(changed_checkpoint(best, tmp_path / "a.pt", {"action": action}))


@pytest.mark.parametrize(
    "about",
    [
        {"env": 3},
        {"env": ["Pendulum-v1"]},
        {"seed": "0"},
        {"seed": -1},
        {"step": None},
        {"total_steps": "1"},
        {"engine": None},
        {"versions": []},
        {"return": [1.0]},
        {"return": math.inf},
        {"env": "\x1b[2J"},
        {"step": 1.5},
        {"algo": ["ppo"]},
        {"hyperparameters": None},
        {"hyperparameters": []},
        {"observation": {"shape": [math.inf], "dtype": "float32"}},
        {"observation": {"shape": [], "dtype": "float32"}},
        {"observation": {"shape": [-1, -3], "dtype": "float32"}},
        {"observation": {"shape": [10**400], "dtype": "float32"}},
        {"observation": 3},
        {"action": {"kind": "other", "low": [-2.0], "high": [2.0], "counts": []}},
        {"action": {"kind": "discrete", "low": [], "high": [], "counts": [2]}},
    ],
    ids=str,
)
def test_a_description_that_is_none_is_refused_as_wrong_input(
    about: dict[str, Any], finished_run: FinishedRun, tmp_path: Path
) -> None:
    best = finished_run.folder / "checkpoints" / "ppo_best.safetensors"
    with pytest.raises(MinervaError):
        load_policy(changed_checkpoint(best, tmp_path / "a.pt", about))


@pytest.mark.parametrize("path", ["nowhere", ""])
def test_a_path_without_a_policy_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="give a run's folder or a checkpoint file"):
        load_policy(tmp_path / path)


def test_it_is_among_the_public_names() -> None:
    assert minerva.load_policy is load_policy
    assert issubclass(CheckpointError, MinervaError)
    assert {"train", "evaluate", "load_policy", "PPOTrainer", "PPOConfig", "PPOAgent"} <= set(minerva.__all__)
    for name in minerva.__all__:
        assert getattr(minerva, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        minerva.nonsense  # type: ignore[attr-defined]  # noqa: B018
