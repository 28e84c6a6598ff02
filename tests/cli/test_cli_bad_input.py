"""Whatever is wrong with a command: exit code 2, one sentence that names the fix, and nothing is written."""

import pickle
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import yaml
from safetensors.torch import save_file
from tiny_runs import LAYERS, FinishedRun, flags, snapshot

from minerva.cli.main import main
from minerva.runs import checkpoint as checkpoints
from minerva.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

LIKE_THE_RUN = shlex.join(flags(**LAYERS))


class Refused(NamedTuple):
    """A command, and words that its refusal must contain: what is wrong, and how to put it right.

    {name} is a path of the fixture `paths`.
    """

    command: str
    words: tuple[str, ...]


REFUSED = [
    # the command itself
    Refused("tarin ppo", ("tarin", "train, evaluate")),
    Refused("train", ("ppo, mpo, vmpo",)),
    Refused("train pppo", ("pppo stands where the algorithm is expected", "ppo, mpo, vmpo")),
    Refused("train --env Pendulum-v1", ("--env stands where the algorithm is expected", "ppo, mpo, vmpo")),
    Refused("train", ("Expected one of {{ppo, mpo, vmpo, sac}}", "run minerva train --help")),
    Refused("train ppo --gama 0.9", ("--gama", "Perhaps you meant", "--gamma")),
    Refused("train ppo --rollout-step 64", ("--rollout-step", "Perhaps you meant", "--rollout-steps")),
    Refused("train ppo --env", ("Missing value", "--env")),
    Refused("train ppo --gamma", ("Missing value", "--gamma")),
    # the environment
    Refused("train ppo --env Pendulun-v1", ("Pendulun-v1 is not a known environment", "Did you mean Pendulum-v1")),
    Refused("train ppo --env Pendulum-v7", ("Pendulum-v7", "Pendulum-v1")),
    Refused("train ppo --env ''", ("'' is not an environment id", "write one such as Pendulum-v1")),
    Refused("train ppo --env '[/red]'", ("'[/red]' is not an environment id",)),
    Refused("train ppo --env no_such_module:Env-v0", ("no_such_module:Env-v0", "can be imported")),
    Refused("train ppo --env dm_control/cheetah", ("dm_control/<domain>/<task>", "dm_control/cheetah/run")),
    Refused("train ppo --env dm_control/cheetah-run-v0", ("dm_control/<domain>/<task>", "dm_control/cheetah/run")),
    Refused("train ppo --env dm_control/cheetah/walk", ("not a task", "Did you mean dm_control/cheetah/run")),
    Refused(
        "train sac --env CartPole-v1",
        ("actions are discrete", "SACAgent takes continuous", "PPO or V-MPO, which take all, or with MPO"),
    ),
    # hyperparameters
    Refused("train ppo --gamma 1.5", ("gamma is 1.5: it must be in [0, 1]",)),
    Refused("train ppo --gamma -0.1", ("gamma is -0.1: it must be in [0, 1]",)),
    Refused("train ppo --policy-lr -1e-3", ("policy_lr is -0.001: it must be in (0, inf)",)),
    Refused("train ppo --policy-lr nan", ("policy_lr is nan: it must be in (0, inf)",)),
    Refused("train ppo --policy-lr inf", ("policy_lr is inf: it must be in (0, inf)",)),
    Refused("train ppo --initial-log-std inf", ("initial_log_std is inf: it must be in (-inf, inf)",)),
    Refused("train ppo --update-epochs 0", ("update_epochs is 0: it must be in [1, inf)",)),
    Refused("train ppo --clip-ratio 0", ("clip_ratio is 0.0: it must be in (0, inf)",)),
    Refused("train ppo --num-envs 0", ("num_envs is 0: it must be in [1, inf)",)),
    Refused("train ppo --policy-layer-sizes", ("policy_layer_sizes is []", "for example 64 64")),
    Refused("train ppo --critic-layer-sizes 64 0", ("critic_layer_sizes is [64, 0]", "positive layer width")),
    Refused("train ppo --gamma high", ("--gamma", "'high'", "FLOAT")),
    Refused("train ppo --update-epochs 1.5", ("--update-epochs", "'1.5'", "INT")),
    Refused("train ppo --optimizer-type rmsprop", ("'rmsprop'", "--optimizer-type", "'adam', 'sgd'")),
    Refused("train ppo --advantage-estimator td", ("'td'", "--advantage-estimator", "'gae', 'returns'")),
    Refused("train ppo --num-envs 2 --rollout-steps 8", ("16 rows", "raise rollout_steps or lower minibatch_size")),
    Refused("train mpo --replay-size 10", ("replay_size 10 is smaller than batch_size", "raise replay_size")),
    Refused("train mpo --use-retrace --n-step 2", ("use_retrace and n_step", "set n_step to 1")),
    Refused("train mpo --action-samples 0", ("action_samples is 0: it must be in [1, inf)",)),
    Refused("train mpo --critic wide", ("'wide'", "--critic", "'scalar', 'categorical'")),
    Refused("train vmpo --topk-fraction 0", ("topk_fraction is 0.0: it must be in (0, 1]",)),
    Refused("train vmpo --preset source --num-envs 1 --rollout-steps 1", ("of 1 rows selects nothing", "raise it")),
    Refused("train vmpo --epsilon-mu -0.1", ("epsilon_mu is -0.1: it must be in (0, inf)",)),
    Refused("train vmpo --advantage-estimator td", ("'td'", "--advantage-estimator", "'returns', 'gae', 'dae'")),
    # the run
    Refused("train ppo --total-steps 10", ("total_steps is 10", "less than one rollout", "raise it")),
    Refused("train ppo --total-steps -1", ("total_steps is -1", "raise it")),
    Refused("train ppo --total-steps many", ("--total-steps", "'many'", "INT")),
    Refused("train ppo --seed -1", ("seed is -1: it must be 0 or more",)),
    Refused("train ppo --seed one", ("--seed", "'one'", "INT")),
    Refused("train ppo --device cuda", ("no CUDA GPU is usable here", "use --device cpu")),
    Refused("train ppo --device gpu", ("device is 'gpu'", "use cpu, cuda or cuda:0")),
    Refused("train ppo --device mps", ("device is 'mps'", "cpu and cuda")),
    Refused("train ppo --threads 0", ("threads is 0: it must be at least 1",)),
    Refused("train ppo --eval-every 0", ("eval_every is 0: it must be at least 1",)),
    Refused("train ppo --eval-episodes 0", ("eval_episodes is 0: it must be at least 1",)),
    Refused("train ppo --engine wrap", ("'wrap'", "--engine", "'gymnasium'")),
    Refused("train ppo --compile maybe", ("'maybe'", "--compile", "'auto', 'off'")),
    Refused("train ppo --preset Pendulum", ("Pendulum is not a preset of ppo", "Did you mean Pendulum-v1")),
    # folders
    Refused("train ppo --run-dir {run}", ("another config (eval_episodes: 2 -> 15; ", "give another folder")),
    Refused("train ppo --run-dir {foreign}", ("contains other files and no run", "give an empty or new folder")),
    Refused("train ppo --run-dir {text}", ("is a file", "give an empty or new folder")),
    Refused("train ppo --out-dir {text}", ("cannot be written to", "Give another --out-dir")),
    Refused("train ppo --resume {missing}", ("{missing}/config.yaml does not exist", "give the folder of a run")),
    Refused("train ppo --resume {foreign}", ("{foreign}/config.yaml does not exist", "give the folder of a run")),
    Refused(
        "train ppo --resume {no_checkpoint}", ("no checkpoint to resume from", "start the run again with --run-dir")
    ),
    Refused("train mpo --resume {run}", ("is the config of ppo, not of mpo", "use minerva train ppo")),
    Refused("train ppo --resume {run} --gamma 0.5", ("hyperparameters.gamma: ", "-> 0.5", "give larger --total-steps")),
    Refused("train ppo --resume {run} --total-steps 1024 --num-envs 4", ("num_envs: 2 -> 4", "the same config")),
    Refused("train ppo --resume {run} --total-steps 128", ("is at step 512 and finished", "give larger --total-steps")),
    Refused("train ppo --seeds 0:2 --actors 2", ("--actors serves a single learner", "without --actors")),
    Refused("train ppo --resume", ("--resume needs a run", "give its folder")),
    Refused("train --resume {run} {missing}", ("{missing}/config.yaml does not exist", "give the folder of a run")),
    Refused("train --resume {run} {no_checkpoint}", ("{no_checkpoint} has no checkpoint to resume from",)),
    Refused("train --resume {run} {run}", ("two of them would be the same run",)),
    Refused(
        "train --resume {run} --seeds 0:2", ("saved seeds and settings of the runs", "leave out --seeds and --vary")
    ),
    # config files
    Refused("train ppo --config {missing}", ("{missing} does not exist", "or a config.yaml")),
    Refused("train ppo --config {text}", ("{text} is not the config of a run", "that Minerva wrote")),
    Refused("train ppo --config {broken_yaml}", ("cannot be read as YAML", "that Minerva wrote")),
    Refused("train ppo --config {pickled}", ("cannot be read as YAML", "that Minerva wrote")),
    Refused("train mpo --config {run}/config.yaml", ("is the config of ppo, not of mpo", "use minerva train ppo")),
    Refused("train ppo --config {unknown_setting}", ("gama is not a setting of PPOConfig", "Did you mean gamma")),
    Refused("train ppo --config {unknown_option}", ("sed is not a setting", "Did you mean seed")),
    Refused("train ppo --config {text_for_number}", ("gamma is 'high': it must be a number",)),
    Refused("train ppo --config {text_for_seed}", ("seed is 'one': it must be a whole number",)),
    Refused("train ppo --config {no_hyperparameters}", ("hyperparameters is 3", "mapping of names to values")),
    # videos
    Refused("video {missing}", ("{missing} contains no run", "give a run's folder or a checkpoint file")),
    Refused("video {run} --best --last", ("--best and --last exclude each other", "give one")),
    Refused("video {run} --episodes 0", ("episodes is 0: it must be at least 1",)),
    Refused("video {run} --episodes 1000", ("1000 episodes of Pendulum-v1", "fewer --episodes")),
    Refused("video {run} --width 100000", ("width is 100000: it must be between 64 and 1920",)),
    Refused("video {run} --format avi", ("'avi'", "--format", "'mp4', 'gif'")),
    Refused("video {run} --out film.avi", ("film.avi does not end in .mp4", "another name")),
    Refused("video {run} --env HalfCheetah-v5 --seed -1", ("seed is -1: it must be 0 or more",)),
    Refused("video {run} --env MountainCarContinuous-v0", ("has other observations or actions", "like the one")),
    # exports
    Refused("export {missing}", ("{missing} contains no run", "give a run's folder or a checkpoint file")),
    Refused("export {run} --episodes 0", ("episodes is 0: it must be at least 1",)),
    Refused("export {run} --out {foreign}", ("contains other files and no export", "give an empty or new folder")),
    Refused("export {run} --out {text}", ("{text} is a file", "give a new folder")),
    Refused("export {run} --best --last", ("--best and --last exclude each other", "give one")),
    Refused("export {truncated} --out new", ("{truncated} is cut off", "give a checkpoint from a run's folder")),
    # checkpoints
    Refused(
        "train ppo --init-from {missing}", ("{missing} contains no run", "give a run's folder or a checkpoint file")
    ),
    Refused("train ppo --init-from {truncated}", ("{truncated} is cut off", "give a checkpoint from a run's folder")),
    Refused(f"train ppo --init-from {{other_algorithm}} {LIKE_THE_RUN}", ("made with algo mpo", "same algorithm")),
    Refused(
        f"train ppo --init-from {{run}} --env MountainCarContinuous-v0 {LIKE_THE_RUN}", ("env Pendulum-v1", "same")
    ),
    Refused("train ppo --init-from {run}", ("policy_layer_sizes: [8] -> [64, 64]", "settings that it was made with")),
    Refused("evaluate", ("Missing from minerva evaluate",)),
    Refused("evaluate {missing}", ("{missing} contains no run", "give a run's folder or a checkpoint file")),
    Refused("evaluate {foreign}", ("{foreign} contains no run", "give a run's folder or a checkpoint file")),
    Refused("evaluate {truncated}", ("{truncated} is cut off", "give a checkpoint from a run's folder")),
    Refused("evaluate {empty}", ("{empty} is cut off", "give a checkpoint from a run's folder")),
    Refused("evaluate {damaged}", ("{damaged} is damaged", "Use the run's other checkpoint")),
    Refused("evaluate {pickled}", ("{pickled} is cut off, or not a checkpoint", "give a checkpoint")),
    Refused("evaluate {torch_file}", ("{torch_file} is cut off, or not a checkpoint", "give a checkpoint")),
    Refused("evaluate {safetensors}", ("{safetensors} was not written by Minerva", "give a checkpoint")),
    Refused("evaluate {newer}", ("{newer} has checkpoint format 99", "update Minerva")),
    Refused("evaluate {run} --episodes 0", ("episodes is 0: it must be at least 1",)),
    Refused("evaluate {run} --episodes few", ("--episodes", "'few'", "INT")),
    Refused("evaluate {run} --seed -1", ("seed is -1: it must be 0 or more",)),
    Refused("evaluate {run} --env Pendulun-v1", ("Pendulun-v1", "Did you mean Pendulum-v1")),
    Refused(
        "evaluate {run} --env MountainCarContinuous-v0", ("was trained on Pendulum-v1", "give an environment like")
    ),
    # presets
    Refused("presets Pendulun-v1", ("Pendulun-v1 has no preset", "Did you mean Pendulum-v1")),
    Refused("presets --algo dqn", ("'dqn'", "'ppo', 'mpo', 'vmpo'")),
]


@pytest.fixture(scope="module")
def paths(finished_run: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run, and things that are not what a command expects."""
    folder = tmp_path_factory.mktemp("wrong")
    run, last = finished_run.folder, finished_run.folder / "checkpoints" / "ppo_last.safetensors"
    names = "text truncated empty damaged pickled torch_file safetensors newer other_algorithm broken_yaml missing"
    made = {name: folder / name for name in names.split()} | {"run": run, "foreign": folder / "foreign"}
    made["foreign"].mkdir()
    (made["foreign"] / "notes.txt").write_text("mine")
    made["text"].write_text("nothing\n")
    made["broken_yaml"].write_text("[a: {")
    whole = last.read_bytes()
    made["truncated"].write_bytes(whole[: len(whole) // 2])
    made["empty"].touch()
    made["damaged"].write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    made["pickled"].write_bytes(pickle.dumps({"a": 1}))
    torch.save({"a": torch.ones(2)}, made["torch_file"])
    save_file({"a": torch.ones(2)}, made["safetensors"])
    about, state = load_checkpoint(last)
    save_checkpoint(made["other_algorithm"], Checkpoint({**about, "algo": "mpo"}, state))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "FORMAT", 99)
        save_checkpoint(made["newer"], Checkpoint(about, state))
    made["no_checkpoint"] = folder / "no_checkpoint"
    shutil.copytree(run, made["no_checkpoint"], ignore=shutil.ignore_patterns("*.safetensors"))
    return made | wrong_configs(run / "config.yaml", folder)


def wrong_configs(right: Path, folder: Path) -> dict[str, Path]:
    """Config files with one thing wrong in each."""
    config = yaml.safe_load(right.read_text())
    hyperparameters = config["hyperparameters"]
    changed = {
        "unknown_setting": {**config, "hyperparameters": {**hyperparameters, "gama": 0.9}},
        "unknown_option": {**config, "sed": 3},
        "text_for_number": {**config, "hyperparameters": {**hyperparameters, "gamma": "high"}},
        "text_for_seed": {**config, "seed": "one"},
        "no_hyperparameters": {**config, "hyperparameters": 3},
    }
    for name, content in changed.items():
        (folder / name).write_text(yaml.safe_dump(content))
    return {name: folder / name for name in changed}


def one_line(text: str) -> str:
    """Without line breaks and without the frame that tyro draws."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("refused", REFUSED, ids=[refused.command for refused in REFUSED])
def test_wrong_input_gets_one_sentence_with_the_fix_and_writes_nothing(
    refused: Refused,
    paths: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    folders = (paths["run"], paths["foreign"].parent)
    before = [snapshot(folder) for folder in folders]
    named = {name: str(path) for name, path in paths.items()}

    code = main(shlex.split(refused.command.format(**named)))

    out, err = capsys.readouterr()
    assert code == 2
    for words in refused.words:
        assert words.format(**named) in one_line(err)
    assert (err.startswith("error: ") and err.count("\n") == 1) or err.count("For full helptext") == 1
    assert "Traceback" not in out + err
    assert list(tmp_path.iterdir()) == []
    assert [snapshot(folder) for folder in folders] == before


@pytest.mark.parametrize(
    ("command", "words"),
    [("train ppo --env Pendulun-v1", "Did you mean Pendulum-v1"), ("train ppo --gama 0.9", "--gamma")],
)
def test_the_process_exits_with_2_and_without_a_traceback(command: str, words: str, tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "minerva", *command.split()], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert process.returncode == 2
    assert words in process.stderr
    assert "Traceback" not in process.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_that_is_not_there_is_refused_by_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert main(["train", "ppo", "--device", "cuda:2"]) == 2
    assert "device is cuda:2, and this machine has 2 GPU(s), from cuda:0" in capsys.readouterr().err
