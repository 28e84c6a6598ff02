"""The exported folder: whole, honest about the return, and usable where there is no torch."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnx
import onnxruntime
import pytest
import yaml
from tiny_runs import PPO, SETTINGS, FinishedRun, Paced, snapshot

import minerva
from minerva.cli.main import main
from minerva.errors import RunError, TrainingError
from minerva.lab.analysis.statistics import interquartile_mean, iqm_interval
from minerva.lab.analysis.video import record
from minerva.lab.export import folder
from minerva.lab.export.card import model_card
from minerva.lab.export.folder import EXAMPLE_SOURCE, Export, export

FILES = ["README.md", "config.yaml", "policy.onnx", "ppo_best.safetensors", "run_policy.py"]


class Unregistered(Paced):
    """An environment without an id."""


@pytest.fixture(scope="module")
def shared(finished_run: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> Export:
    return export(finished_run.folder, out=tmp_path_factory.mktemp("out") / "shared", episodes=6, video=False)


def front_matter(card: Path) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(card.read_text().split("---\n")[1])
    return read


def test_everything_is_there_and_nothing_else(shared: Export) -> None:
    assert shared.files == FILES
    assert sorted(path.name for path in shared.path.iterdir()) == FILES
    assert [path.name for path in shared.path.parent.iterdir()] == ["shared"]


def test_the_card_holds_the_return_of_an_evaluation_with_its_interval(
    shared: Export, finished_run: FinishedRun
) -> None:
    again = minerva.evaluate(finished_run.folder, episodes=6)
    assert shared.score.returns == again.returns
    low, high = iqm_interval(again.returns)
    header = front_matter(shared.path / "README.md")
    (result,) = header["model-index"][0]["results"]
    assert header["library_name"] == "minerva"
    assert result["task"]["type"] == "reinforcement-learning"
    assert result["dataset"]["name"] == "Pendulum-v1"
    shown = [metric["value"] for metric in result["metrics"]]
    assert shown == [
        f"{again.mean:.2f} +/- {np.std(again.returns):.2f}",
        f"{interquartile_mean(again.returns):.2f} [{low:.2f}, {high:.2f}]",
    ]
    text = (shared.path / "README.md").read_text()
    assert f"{again.mean:,.1f} ± {np.std(again.returns):,.1f}" in text
    assert "6 episodes, from the seeds 10,000 and up" in text


def test_the_checkpoint_and_the_config_in_it_work_by_themselves(shared: Export, finished_run: FinishedRun) -> None:
    observation = np.array([0.3, -0.9, 1.0])
    here, there = (minerva.load_policy(path) for path in (shared.path / "ppo_best.safetensors", finished_run.folder))
    assert np.array_equal(here.act(observation), there.act(observation))
    assert (shared.path / "config.yaml").read_text() == (finished_run.folder / "config.yaml").read_text()


def test_the_example_plays_an_episode_where_importing_torch_fails(shared: Export, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch here')")
    (tmp_path / "minerva.py").write_text("raise ImportError('there is no minerva here')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, str(shared.path / "run_policy.py")]
    refused = subprocess.run([sys.executable, "-c", "import torch"], env=environment, capture_output=True, text=True)
    assert "there is no torch here" in refused.stderr
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    name, _, total = done.stdout.partition(": return ")
    assert name == "ppo on Pendulum-v1"
    assert float(total.replace(",", "")) == pytest.approx(played(shared.path / "ppo_best.safetensors"), rel=1e-3)


def played(checkpoint: Path) -> float:
    """The return of an episode from seed 0, by the policy itself."""
    policy, env = minerva.load_policy(checkpoint), gym.make("Pendulum-v1")
    observation, _ = env.reset(seed=0)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
        total, over = total + float(reward), terminated or truncated
    return total


def test_the_example_is_short_and_knows_nothing_of_minerva() -> None:
    lines = [line for line in EXAMPLE_SOURCE.read_text().splitlines() if line.strip()]
    assert len(lines) <= 34
    assert not any("minerva" in line or "torch" in line for line in lines)


@pytest.mark.parametrize("named", [{"gymnasium_id": "spy:Pendulum-v1"}, {"env_kwargs": '{"of": ["spy\\u003aX"]}'}])
def test_the_example_imports_the_module_of_an_id_only_if_a_person_writes_the_id(
    named: dict[str, str], shared: Export, tmp_path: Path
) -> None:
    shutil.copytree(shared.path, tmp_path / "sent")
    graph = onnx.load(tmp_path / "sent" / "policy.onnx")
    about = {prop.key: prop.value for prop in graph.metadata_props} | named
    onnx.helper.set_model_props(graph, about)
    onnx.save(graph, tmp_path / "sent" / "policy.onnx")
    (tmp_path / "sent" / "spy.py").write_text("open('imported', 'w').close()")
    for arguments in ([], ["Pendulum-v1x"], [about["gymnasium_id"]]):
        command = [sys.executable, "run_policy.py", *arguments]
        done = subprocess.run(command, cwd=tmp_path / "sent", capture_output=True, text=True)
        trusted = arguments == [about["gymnasium_id"]]
        assert ("if you trust it, add its id as argument" in done.stderr) is not trusted
        assert (tmp_path / "sent" / "imported").exists() is (trusted and "gymnasium_id" in named)


@pytest.mark.parametrize("name", ["Half", "half"])
def test_the_example_plays_an_environment_of_the_persons_own_module(name: str, shared: Export, tmp_path: Path) -> None:
    """By its class or by a function, as `--env module:name` takes it; the module lies in the working directory."""
    (tmp_path / "mine.py").write_text(
        "from gymnasium.envs.classic_control import PendulumEnv\n"
        "class Half(PendulumEnv):\n    def step(self, action):\n"
        "        obs, reward, *ends = super().step(action)\n        return obs, reward / 2, *ends\n"
        "def half(g):\n    return Half(g=g)\n"
    )
    graph = onnx.load(shared.path / "policy.onnx")
    about = {prop.key: prop.value for prop in graph.metadata_props}
    kwargs = '{"g": 10.0, "max_episode_steps": 200}'
    onnx.helper.set_model_props(graph, {**about, "gymnasium_id": f"mine:{name}", "env_kwargs": kwargs})
    (tmp_path / "sent").mkdir()
    onnx.save(graph, tmp_path / "sent" / "policy.onnx")
    shutil.copy(shared.path / "run_policy.py", tmp_path / "sent")
    command = [sys.executable, "sent/run_policy.py", f"mine:{name}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    total = float(done.stdout.partition(": return ")[2].replace(",", ""))
    assert total == pytest.approx(played(shared.path / "ppo_best.safetensors") / 2, rel=1e-3)


def test_the_card_tells_which_id_a_person_has_to_write(shared: Export, finished_run: FinishedRun) -> None:
    about = minerva.load_policy(finished_run.folder).about
    for env, command in (
        ("Pendulum-v1", "python run_policy.py\n"),
        ("spy.envs:Pendulum-v1", "python run_policy.py spy.envs:Pendulum-v1  # imports the module"),
        ("spy:X; rm -r .", "python run_policy.py ID  # imports the module"),
    ):
        assert command in model_card({**about, "env": env}, "ppo_best.safetensors", shared.score, 0.0, None)


# --- the video ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "shown"), [("mp4", '<video src="replay.mp4"'), ("gif", "![an episode](replay.gif)")])
def test_the_runs_own_video_is_taken(
    form: str, shown: str, finished_run: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "exported", lambda policy: folder.Exported(b"graph", 0.0))
    film = finished_run.folder / "videos" / f"best.{form}"
    film.write_bytes(b"film")
    try:
        done = export(finished_run.folder, out=tmp_path / "out", episodes=1)
    finally:
        film.unlink()
    assert (done.path / f"replay.{form}").read_bytes() == b"film"
    assert shown in (done.path / "README.md").read_text()


def test_a_video_is_made_where_there_is_none_or_the_reason_is_told(
    finished_run: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(folder, "exported", lambda policy: folder.Exported(b"graph", 0.0))
    monkeypatch.setattr(folder, "VIDEO_SECONDS", 0.2)
    (tmp_path / "minerva").mkdir()
    (tmp_path / "minerva" / "__init__.py").write_text("raise ImportError('the package of the working directory')")
    monkeypatch.chdir(tmp_path)
    done = export(finished_run.folder, "last", out=tmp_path / "out", episodes=1)
    assert "replay.mp4" in done.files
    monkeypatch.setattr(folder, "VIDEO_SECONDS", -1)  # which is refused
    again = export(finished_run.folder, "last", out=tmp_path / "out", episodes=1)
    assert "There is no video in the folder: error: seconds is -1" in caplog.text
    assert "replay.mp4" not in again.files
    assert not (tmp_path / "out" / "replay.mp4").exists()  # of another export


# --- what cannot be ---------------------------------------------------------------------------------------------


def test_an_environment_that_only_the_training_script_knows_shows_the_runs_own_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(folder, "exported", lambda policy: folder.Exported(b"graph", 0.0))
    minerva.PPOTrainer(Unregistered, seed=0, **PPO).train(128, tmp_path / "run", **SETTINGS)
    done = export(tmp_path / "run", "last", video=False)
    assert done.path == tmp_path / "run" / "export"
    assert "2 episodes of the evaluation during training" in (done.path / "README.md").read_text()
    assert "no other can be made" in caplog.text


def test_a_graph_that_fails_its_check_leaves_nothing(
    finished_run: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(policy: Any) -> Any:
        raise TrainingError("acts differently")

    monkeypatch.setattr(folder, "exported", fail)
    with pytest.raises(TrainingError):
        export(finished_run.folder, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else_is_left_alone(finished_run: FinishedRun, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="contains other files and no export: give an empty or new folder"):
        export(finished_run.folder, out=tmp_path)
    with pytest.raises(RunError, match="is a file: give a new folder"):
        export(finished_run.folder, out=tmp_path / "mine.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


INJECTED = "Pendulum-v1\n\n```\npip install evil\n```\n<script>[a](http://evil)|"


def test_the_card_shows_what_a_checkpoint_says_as_text(shared: Export, finished_run: FinishedRun) -> None:
    about = minerva.load_policy(finished_run.folder).about
    hostile = {
        **about,
        **dict.fromkeys(("env", "engine", "device"), INJECTED),
        "versions": dict.fromkeys(about["versions"], "1.0\npip install evil"),
    }
    card, plain = (model_card(each, "ppo_best.safetensors", shared.score, 0.0, None) for each in (hostile, about))
    body, wanted = (text.split("---\n", 2)[2].splitlines() for text in (card, plain))
    assert len(body) == len(wanted)  # no line is added, so none is a command
    assert not [line for line in body if line.startswith("pip install") and "evil" in line]
    assert all("\\<script\\>" in line for line in body if "script" in line)
    assert "pip install numpy onnxruntime gymnasium mujoco" in body


def test_a_checkpoint_whose_name_is_markup_is_not_exported(finished_run: FinishedRun, tmp_path: Path) -> None:
    odd = tmp_path / "a`$(id)`_best.safetensors"
    shutil.copy(finished_run.folder / "checkpoints" / "ppo_best.safetensors", odd)
    with pytest.raises(RunError, match="has an unusual name"):
        export(odd, out=tmp_path / "out", episodes=1, video=False)


@pytest.mark.parametrize("inside", ["config.yaml", "videos", "videos/best.mp4", "videos/best.gif", "eval", "export"])
def test_a_link_in_a_run_leads_nothing_out_of_another_folder_or_into_it(
    inside: str, finished_run: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "exported", lambda policy: folder.Exported(b"graph", 0.0))
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    shutil.copytree(finished_run.folder, run)
    elsewhere.mkdir()
    (elsewhere / "secret").write_text("secret: 1")
    link = run / inside
    shutil.rmtree(link, ignore_errors=True)
    link.unlink(missing_ok=True)
    link.symlink_to(elsewhere / "secret" if link.suffix else elsewhere)
    if inside == "export":
        (elsewhere / "secret").unlink()
    before = snapshot(tmp_path)
    for out in (None, tmp_path / "out") if inside != "export" else (None, link):
        with pytest.raises(RunError, match=rf"{link} is a link"):
            export(run, out=out, episodes=1)
    if inside == "videos":
        with pytest.raises(RunError, match=rf"{link} is a link"):
            record(run)
    assert snapshot(tmp_path) == before


def test_the_command_states_tolerance_difference_and_folder(
    finished_run: FinishedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["export", str(finished_run.folder), "--out", str(out), "--episodes", "2", "--no-video"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"export: {out}"
    assert lines[0].startswith("checked on 1,000 observations: actions differ by ")
    assert "(tolerance 1e-05)" in lines[0]
    assert onnxruntime.InferenceSession(out / "policy.onnx").get_modelmeta().producer_name == "minerva"
