"""What a finished run of PPO leaves in its folder."""

import os
import platform
import re
import subprocess
from pathlib import Path

import gymnasium
import needs
import numpy as np
import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_runs import BATCH, EPISODES, PPO, STEPS, FinishedRun, evaluation_steps, training_steps

from minerva.errors import RunError
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.folder import RunFolder, differences, find_checkpoint, new_folder_name, read_config
from minerva.runs.metrics import read_rows

REPOSITORY = Path(__file__).parents[2]

TRAINING_METRICS = {
    "charts/learning_rate",
    "charts/SPS",
    "losses/value_loss",
    "losses/policy_loss",
    "losses/entropy",
    "losses/old_approx_kl",
    "losses/approx_kl",
    "losses/clipfrac",
    "losses/explained_variance",
}
EPISODE_METRICS = {"train/episode_return", "train/episode_length"}
EVALUATION_METRICS = {
    "eval/return_mean",
    "eval/return_std",
    "eval/return_min",
    "eval/return_max",
    "eval/return_median",
    "eval/length_mean",
}


@pytest.fixture
def folder(finished_run: FinishedRun) -> Path:
    return finished_run.folder


def test_the_folder_holds_what_the_specification_says_and_no_leftovers(folder: Path) -> None:
    files = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    events = {name for name in files if name.startswith("tensorboard/events.out.tfevents.")}
    assert len(events) == 1
    assert files - events == {
        "config.yaml",
        "metrics.jsonl",
        "learning_curve.png",
        "tensorboard",
        "checkpoints",
        "checkpoints/ppo_last.safetensors",
        "checkpoints/ppo_best.safetensors",
        "checkpoints/ppo_previous.safetensors",
        "eval",
        "eval/evaluations.jsonl",
        "videos",
    }


def test_config_yaml_is_resolved_with_versions_and_commit(folder: Path) -> None:
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert (config["algo"], config["env"], config["seed"], config["total_steps"]) == ("ppo", "Pendulum-v1", 0, STEPS)
    assert (config["eval_every"], config["eval_episodes"]) == (BATCH, EPISODES)
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in PPO.items()}
    assert given.items() <= config["hyperparameters"].items()
    versions = config["versions"]
    assert {"minerva", "torch", "numpy", "gymnasium", "mujoco", "dm-control", "envpool"} < set(versions)
    assert versions["python"] == platform.python_version()
    assert versions["gymnasium"] == gymnasium.__version__
    assert versions["torch_threads"] == 1
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", config["started"])


@needs.git
@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="an installed copy has no commit")
def test_the_commit_is_the_checkouts(folder: Path) -> None:
    recorded = yaml.safe_load((folder / "config.yaml").read_text())["commit"].removesuffix("-dirty")
    command = ["git", "-C", str(REPOSITORY), "rev-parse", "HEAD", f"{recorded}^{{commit}}"]
    head, commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert commit == head


def test_metrics_have_the_names_of_the_specification(folder: Path) -> None:
    rows = read_rows(folder / "metrics.jsonl")
    training = [row for row in rows if "charts/SPS" in row]
    evaluations = [row for row in rows if "eval/return_mean" in row]
    assert all(row.keys() >= TRAINING_METRICS for row in training)
    assert any(row.keys() >= EPISODE_METRICS for row in training)
    assert all(EVALUATION_METRICS | {"step"} == row.keys() for row in evaluations)
    assert training_steps(folder) == list(range(BATCH, STEPS + 1, BATCH))
    assert evaluation_steps(folder) == list(range(0, STEPS + 1, BATCH))
    assert len(rows) == len(training) + len(evaluations)


def test_pendulum_episodes_are_200_steps_long_and_cost_something(folder: Path) -> None:
    for row in read_rows(folder / "metrics.jsonl"):
        assert row.get("train/episode_length", 200) == 200
        assert row.get("eval/length_mean", 200) == 200
        assert -200 * 16.3 < row.get("train/episode_return", -1) < 0


def test_tensorboard_shows_the_numbers_of_metrics_jsonl(folder: Path) -> None:
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    written: dict[str, list[tuple[int, float]]] = {}
    for row in read_rows(folder / "metrics.jsonl"):
        for name in row.keys() - {"step"}:
            written.setdefault(name, []).append((row["step"], row[name]))
    assert set(events.Tags()["scalars"]) == set(written)
    for name, points in written.items():
        shown = events.Scalars(name)
        assert [event.step for event in shown] == [step for step, _ in points]
        assert [event.value for event in shown] == pytest.approx([value for _, value in points], rel=1e-6)


def test_evaluations_hold_every_episode_behind_the_means(folder: Path) -> None:
    episodes = {row["step"]: row["returns"] for row in read_rows(folder / "eval" / "evaluations.jsonl")}
    rows = [row for row in read_rows(folder / "metrics.jsonl") if "eval/return_mean" in row]
    assert [row["step"] for row in rows] == list(episodes)
    for row in rows:
        returns = episodes[row["step"]]
        assert len(returns) == EPISODES
        assert row["eval/return_mean"] == pytest.approx(np.mean(returns))
        assert (row["eval/return_min"], row["eval/return_max"]) == (min(returns), max(returns))


def test_checkpoints_say_what_they_are(folder: Path) -> None:
    rows = [row for row in read_rows(folder / "metrics.jsonl") if "eval/return_mean" in row]
    best = load_checkpoint(folder / "checkpoints" / "ppo_best.safetensors").about
    last = load_checkpoint(folder / "checkpoints" / "ppo_last.safetensors").about
    highest = max(rows, key=lambda row: row["eval/return_mean"])
    assert (best["step"], best["return"]) == (highest["step"], highest["eval/return_mean"])
    assert (last["step"], last["return"]) == (STEPS, rows[-1]["eval/return_mean"])
    assert last["finished"]
    for about in (best, last):
        assert about["observation"] == {"shape": [3], "dtype": "float32"}
        assert (about["action"]["low"], about["action"]["high"]) == ([-2.0], [2.0])


# --- paths ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("Pendulum-v1", "ppo_Pendulum-v1_seed7_"),
        ("dm_control/cheetah/run", "ppo_dm-control-cheetah-run_seed7_"),
        ("my.module:Env-v0", "ppo_my.module-Env-v0_seed7_"),
        ("../../etc", "ppo_..-..-etc_seed7_"),
    ],
)
def test_a_folder_name_is_one_path_component(env: str, expected: str, tmp_path: Path) -> None:
    name = new_folder_name("ppo", env, 7)
    assert re.fullmatch(re.escape(expected) + r"\d{8}-\d{6}-[0-9a-f]{8}", name)
    assert (tmp_path / name).parent == tmp_path


def test_differences_ignore_where_a_run_was_made() -> None:
    old = {"seed": 0, "hyperparameters": {"gamma": 0.9, "layers": [64]}, "commit": "a", "versions": {"torch": "1"}}
    new = {"seed": 1, "hyperparameters": {"gamma": 0.9, "layers": [32], "new": 1}, "commit": "b", "started": "now"}
    old["device"], new["device"] = "cuda", "cpu"
    assert differences(old, new) == [
        "hyperparameters.layers: [64] -> [32]",
        "hyperparameters.new: None -> 1",
        "seed: 0 -> 1",
    ]


def test_a_run_stands_for_its_best_checkpoint_or_its_last(folder: Path, tmp_path: Path) -> None:
    assert find_checkpoint(folder) == folder / "checkpoints" / "ppo_best.safetensors"
    assert find_checkpoint(folder, "last") == folder / "checkpoints" / "ppo_last.safetensors"
    only_last = RunFolder(tmp_path, "ppo").last
    only_last.parent.mkdir()
    only_last.touch()
    assert find_checkpoint(tmp_path) == only_last
    assert find_checkpoint(only_last, "best") == only_last


def test_a_folder_of_runs_is_answered_with_the_latest(tmp_path: Path) -> None:
    for n, name in enumerate(("second", "first")):
        file = RunFolder(tmp_path / name, "ppo").last
        file.parent.mkdir(parents=True)
        os.utime(file.parent, (n, n))
    with pytest.raises(RunError, match=r"It contains runs; the latest is .*first"):
        find_checkpoint(tmp_path)


def test_another_checkpoint_than_best_and_last_is_refused(folder: Path) -> None:
    with pytest.raises(RunError, match="ask for best or last"):
        find_checkpoint(folder, "worst")


def test_a_config_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("- 1\n- 2\n")
    with pytest.raises(RunError, match="is not the config of a run"):
        read_config(tmp_path / "config.yaml")


def test_a_read_only_place_is_refused_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(RunError, match=r"run cannot be written to: Permission denied\. Give another --out-dir"):
        RunFolder(tmp_path / "run", "ppo").make()
