"""A trained policy outside of training: the checkpoint alone, no simulator, actions in the environment's units."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from probe_envs import Listener, Makes
from tiny_runs import PPO, FinishedRun

import minerva
from minerva.envs.engines.registry import make_engine
from minerva.errors import CheckpointError, MinervaError, RunError
from minerva.policy import Policy, load_policy
from minerva.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from minerva.spec import ActionSpec
from minerva.trainers.ppo.trainer import PPOTrainer

EPS = np.finfo(np.float32).eps
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
    trainer.load_state_dict(load_checkpoint(folder / "checkpoints" / f"ppo_{which}.pt").state["trainer"])
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


def test_best_and_last_are_two_policies(finished_run: FinishedRun) -> None:
    best, last = (load_policy(finished_run.folder, which) for which in ("best", "last"))
    assert best.about["step"] != last.about["step"]
    assert not np.array_equal(best.act(OBSERVATIONS), last.act(OBSERVATIONS))


def test_a_file_is_as_good_as_its_run(finished_run: FinishedRun, policy: Policy) -> None:
    alone = load_policy(str(finished_run.folder / "checkpoints" / "ppo_best.pt"))
    np.testing.assert_array_equal(alone.act(OBSERVATIONS), policy.act(OBSERVATIONS))


def test_a_checkpoint_alone_is_enough_and_no_simulator_is_imported(
    finished_run: FinishedRun, policy: Policy, tmp_path: Path
) -> None:
    moved = tmp_path / "policy.pt"
    moved.write_bytes((finished_run.folder / "checkpoints" / "ppo_best.pt").read_bytes())
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


def test_sampled_actions_vary_and_stay_within_the_bounds(policy: Policy) -> None:
    actions = np.concatenate([policy.act(OBSERVATIONS, deterministic=False) for _ in range(50)])
    assert actions.std() > 0.5
    assert np.abs(actions).max() <= 2.0


def test_bounds_that_are_not_symmetric_are_met_at_their_ends(finished_run: FinishedRun, tmp_path: Path) -> None:
    about, state = load_checkpoint(finished_run.folder / "checkpoints" / "ppo_best.pt")
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


def test_a_checkpoint_whose_networks_contradict_its_config_is_refused(
    finished_run: FinishedRun, tmp_path: Path
) -> None:
    about, state = load_checkpoint(finished_run.folder / "checkpoints" / "ppo_best.pt")
    del state["trainer"]["agent"]["network"]["actor_logstd"]
    save_checkpoint(tmp_path / "a.pt", Checkpoint(about, state))
    with pytest.raises(CheckpointError, match=r"a\.pt does not fit its own config"):
        load_policy(tmp_path / "a.pt")


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
