"""Training and evaluating from Python, in one call each."""

import copy
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
import yaml
from probe_envs import Lottery
from tiny_runs import BATCH, EPISODES, PPO, SETTINGS, STEPS, FinishedRun, learned, same

import minerva
from minerva.errors import CheckpointError, ConfigError, EnvError, RunError
from minerva.presets import presets
from minerva.runs.metrics import read_rows

QUICK: dict[str, Any] = {**PPO, "total_steps": BATCH, "settings": {**SETTINGS, "eval_every": STEPS}}


def saved(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((folder / "config.yaml").read_text())
    return config


# --- train ----------------------------------------------------------------------------------------------------


def test_train_does_what_the_command_line_does(finished_run: FinishedRun, tmp_path: Path) -> None:
    result = minerva.train("ppo", "Pendulum-v1", total_steps=STEPS, run_dir=tmp_path / "run", settings=SETTINGS, **PPO)
    assert (result.folder, result.step, result.finished) == (tmp_path / "run", STEPS, True)
    assert same(learned(result.folder), learned(finished_run.folder))


@pytest.mark.parametrize("together", [False, True])
def test_torch_has_one_thread_while_it_trains_and_as_many_as_before_afterwards(together: bool, tmp_path: Path) -> None:
    seen: list[int] = []
    how = {**QUICK, "run_dir": tmp_path, "callbacks": [lambda *_: seen.append(torch.get_num_threads())]}
    torch.set_num_threads(2)
    try:
        folder = tmp_path
        if together:
            folder = minerva.train_seeds("ppo", "Pendulum-v1", [0, 1], **how)[0].folder
        else:
            minerva.train("ppo", "Pendulum-v1", **how)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert set(seen) == {1}
    assert saved(folder)["versions"]["torch_threads"] == 1


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"total_steps": "2048"}, "total_steps is '2048': it must be a whole number."),
        ({"total_steps": 2048.5}, "total_steps is 2048.5: it must be a whole number."),
        ({"seed": None}, "seed is None: it must be a whole number."),
        ({"settings": {"eval_evry": 4}}, "eval_evry is not a setting of a run. Did you mean eval_every"),
        ({"settings": {"eval_every": "4"}}, "eval_every is '4': it must be a whole number."),
        ({"eval_every": 4}, "eval_every is a setting of the run: write settings={'eval_every': ...}."),
        ({"verbose": 1}, "verbose is a setting of the run, called quiet here: write settings={'quiet': ...}."),
        ({"policy_lr": lambda left: 3e-4 * left}, "policy_lr is a function: give a number, and change it during"),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_what_is_wrong_among_the_arguments_is_answered_in_a_sentence(
    given: dict[str, Any], sentence: str, together: bool, tmp_path: Path
) -> None:
    how = {**QUICK, "run_dir": tmp_path / "run", **given}
    seeds = [how.pop("seed", 0)]
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        minerva.train_seeds("ppo", "Pendulum-v1", seeds, **how) if together else minerva.train(
            "ppo", "Pendulum-v1", seed=seeds[0], **how
        )
    assert not (tmp_path / "run").exists()


def test_whole_numbers_may_be_numpys_or_written_as_floats(tmp_path: Path) -> None:
    how: dict[str, Any] = {**QUICK, "total_steps": float(BATCH), "seed": np.int64(3), "run_dir": tmp_path}
    minerva.train("ppo", "Pendulum-v1", **how)
    assert [type(saved(tmp_path)[name]) for name in ("total_steps", "seed")] == [int, int]


def test_each_run_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    result = minerva.train("ppo", "Pendulum-v1", seed=4, out_dir=tmp_path, **QUICK)
    assert result.folder.parent == tmp_path
    assert result.folder.name.startswith("ppo_Pendulum-v1_seed4_")


def test_hyperparameters_go_before_the_preset_and_the_preset_before_defaults(tmp_path: Path) -> None:
    tuned = presets("ppo")["Pendulum-v1"].values
    result = minerva.train("ppo", "Pendulum-v1", run_dir=tmp_path / "run", preset="auto", gae_lambda=0.7, **QUICK)
    hyperparameters = saved(result.folder)["hyperparameters"]
    assert (hyperparameters["gae_lambda"], hyperparameters["gamma"]) == (0.7, tuned["gamma"])
    assert hyperparameters["vf_coef"] == 0.5


@pytest.mark.parametrize("env", [Lottery, Lottery()], ids=["a function", "an instance"])
def test_an_environment_may_be_given_as(env: Any, tmp_path: Path) -> None:
    result = minerva.train("ppo", env, run_dir=tmp_path, **QUICK)
    assert saved(tmp_path)["env"] == "Lottery"
    again = minerva.evaluate(tmp_path, env=env, episodes=EPISODES)
    assert again.mean == result.best
    with pytest.raises(EnvError):  # its name alone is no id
        minerva.evaluate(tmp_path)


def test_a_run_of_one_environment_is_refused_as_start_of_another(finished_run: FinishedRun, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"\(env Pendulum-v1\), and this run has .*\(env Lottery\).*same spaces"):
        minerva.train("ppo", Lottery, run_dir=tmp_path / "run", init_from=finished_run.folder, **QUICK)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("optimizer", [False, True])
def test_weights_go_into_another_environment_of_the_same_spaces(
    optimizer: bool, finished_run: FinishedRun, tmp_path: Path
) -> None:
    heavy = gym.make("Pendulum-v1", g=20.0)
    begun: list[Any] = []

    class Keep(minerva.Callback):
        def on_start(self, step: int, metrics: Any, trainer: Any) -> None:
            begun.append(copy.deepcopy(trainer.state_dict()["agent"]))

    how = {**QUICK, "init_from": finished_run.folder / "checkpoints" / "ppo_last.safetensors", "callbacks": [Keep()]}
    minerva.train("ppo", heavy, run_dir=tmp_path / "run", init_optimizer=optimizer, **how)
    before = learned(finished_run.folder)["agent"]
    assert same(begun[0]["network"], before["network"])
    assert same(begun[0]["moments"], before["moments"]) is optimizer


@pytest.mark.parametrize(
    ("algo", "options", "message"),
    [
        ("dqn", {}, "dqn is not an algorithm of Minerva"),
        ("ppo", {"gama": 0.9}, "gama is not a setting of PPOConfig. Did you mean gamma"),
        ("ppo", {"seed": -1}, "seed is -1"),
        ("ppo", {"total_steps": 3}, "less than one rollout"),
        ("ppo", {"preset": "nothing-like-it"}, "nothing-like-it is not a preset of ppo"),
        ("ppo", {"device": "tpu"}, "device is 'tpu'"),
    ],
)
def test_wrong_input_is_refused_before_anything_is_written(
    algo: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        minerva.train(algo, "Pendulum-v1", out_dir=tmp_path, **{**QUICK, **options})
    assert list(tmp_path.iterdir()) == []


# --- evaluate -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["best", "last"])
def test_evaluate_plays_the_runs_own_evaluation_episodes(which: str, finished_run: FinishedRun) -> None:
    recorded = read_rows(finished_run.folder / "eval" / "evaluations.jsonl")
    wanted = max(recorded, key=lambda row: np.mean(row["returns"])) if which == "best" else recorded[-1]
    evaluation = minerva.evaluate(finished_run.folder, episodes=EPISODES, which=which)
    assert evaluation.returns == wanted["returns"]


def test_more_episodes_begin_with_the_same_ones(finished_run: FinishedRun) -> None:
    few, many = (minerva.evaluate(finished_run.folder, episodes=n) for n in (2, 23))
    assert len(many.returns) == 23
    assert many.returns[:2] == pytest.approx(few.returns)


def test_the_first_episodes_seed_can_be_chosen(finished_run: FinishedRun) -> None:
    shifted = minerva.evaluate(finished_run.folder, episodes=2, seed=1)
    own = minerva.evaluate(finished_run.folder, episodes=3, seed=0)
    assert shifted.returns == pytest.approx(own.returns[1:])


def test_a_policy_is_evaluated_on_an_environment_like_its_own(finished_run: FinishedRun) -> None:
    def short() -> gym.Env[Any, Any]:
        return gym.make("Pendulum-v1", max_episode_steps=50)

    assert minerva.evaluate(finished_run.folder, episodes=2, env=short).lengths == [50, 50]
    with pytest.raises(CheckpointError, match=r"trained on Pendulum-v1, and .* has other observations or actions"):
        minerva.evaluate(finished_run.folder, episodes=2, env="MountainCarContinuous-v0")


@pytest.mark.parametrize(("options", "message"), [({"episodes": 0}, "episodes is 0"), ({"seed": -1}, "seed is -1")])
def test_evaluate_refuses_wrong_numbers(options: dict[str, Any], message: str, finished_run: FinishedRun) -> None:
    with pytest.raises(ConfigError, match=message):
        minerva.evaluate(finished_run.folder, **options)


def test_evaluate_refuses_another_checkpoint_than_best_and_last(finished_run: FinishedRun) -> None:
    with pytest.raises(RunError, match="ask for best or last"):
        minerva.evaluate(finished_run.folder, which="newest")
