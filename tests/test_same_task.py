"""A run remembers its task: whatever uses it afterwards plays that one, or says that it cannot."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml
from probe_envs import Endless
from tiny_runs import BATCH, EPISODES, PPO, SETTINGS, FinishedRun, learned, same, train_command

import minerva
from minerva.cli.main import main
from minerva.errors import EnvError, RunError
from minerva.lab.analysis.records import read_records
from minerva.lab.analysis.video import record
from minerva.lab.analysis.video_settings import VideoSettings
from minerva.lab.export import folder as export_folder
from minerva.lab.export.folder import export
from minerva.lab.export.graph import description
from minerva.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

QUICK: dict[str, Any] = {**PPO, "total_steps": BATCH, "settings": {**SETTINGS, "eval_every": BATCH}}


class Paid(Endless):
    """Pays as much as it is told, for three steps."""

    def __init__(self, reward: float) -> None:
        super().__init__(3)
        self.reward = reward

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, self.reward, *rest


@pytest.fixture(scope="module")
def light_run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run on a pendulum with a tenth of the weight, whose episodes are short."""
    folder = tmp_path_factory.mktemp("runs") / "light"
    return minerva.train("ppo", gym.make("Pendulum-v1", g=1.0, max_episode_steps=30), run_dir=folder, **QUICK)


def config(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((folder / "config.yaml").read_text())
    return read


# --- arguments ------------------------------------------------------------------------------------------------


def test_evaluation_and_video_play_the_task_of_the_training(light_run: Any, tmp_path: Path) -> None:
    again = minerva.evaluate(light_run.folder, episodes=EPISODES)
    assert (again.mean, again.lengths) == (light_run.best, [30] * EPISODES)
    assert minerva.evaluate(light_run.folder, episodes=EPISODES, env="Pendulum-v1").returns == again.returns
    film = record(light_run.folder, "best", VideoSettings(episodes=EPISODES), out=tmp_path / "a.mp4")
    assert film.returns == again.returns
    other = minerva.evaluate(light_run.folder, episodes=EPISODES, env=lambda: gym.make("Pendulum-v1"))
    assert other.lengths == [200] * EPISODES


def test_an_export_tells_and_plays_the_task_of_the_training(
    light_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_folder, "exported", lambda policy: export_folder.Exported(b"graph", 0.0))
    done = export(light_run.folder, out=tmp_path / "out", episodes=EPISODES, video=False)
    assert done.score.mean == light_run.best
    assert '    {"g": 1.0, "max_episode_steps": 30}\n' in (done.path / "README.md").read_text()
    told = description(minerva.load_policy(light_run.folder))
    made = gym.make(told["gymnasium_id"], **json.loads(told["env_kwargs"]))
    assert (made.unwrapped.g, made.spec.max_episode_steps) == (1.0, 30)  # type: ignore[attr-defined, union-attr]


def test_the_command_line_takes_arguments_and_needs_them_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    words = ["--env-kwargs", "g=1.0", "max_episode_steps=30"]
    assert main([*train_command(first, total_steps=BATCH), *words]) == 0
    assert "ppo on Pendulum-v1 (g=1.0, max_episode_steps=30)" in capsys.readouterr().out
    assert config(first)["env_kwargs"] == {"g": 1.0, "max_episode_steps": 30}
    assert config(first)["engine"] == "gymnasium"
    assert main(["evaluate", str(first), "--episodes", "2"]) == 0
    assert "length  mean 30.0" in capsys.readouterr().out
    assert main(["train", "ppo", "--config", str(first), "--run-dir", str(again)]) == 0
    assert same(learned(again), learned(first))
    assert main(["train", "ppo", "--resume", str(first)]) == 0
    assert "is a finished run" in capsys.readouterr().out
    other = tmp_path / "other"  # another id does not get the saved arguments
    changed = ["--env", "MountainCarContinuous-v0", "--engine", "gymnasium", "--run-dir", str(other)]
    assert main(["train", "ppo", "--config", str(first), *changed]) == 0
    assert "env_kwargs" not in config(other)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["g"], "env_kwargs has 'g': write each argument once, as name=value"),
        (["g=1", "g=2"], "env_kwargs has 'g=2'"),
        (["=1"], "env_kwargs has '=1'"),
        (["gravity=1"], "Pendulum-v1 (gravity=1) could not be made"),
        (["id=1"], "could not be made"),
    ],
)
def test_wrong_arguments_are_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*train_command(tmp_path / "run"), "--env-kwargs", *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_other_arguments_are_another_run(light_run: Any) -> None:
    for env in ("Pendulum-v1", gym.make("Pendulum-v1", g=2.0, max_episode_steps=30)):
        with pytest.raises(RunError, match=r"contains a run of another config .*env_kwargs"):
            minerva.train("ppo", env, run_dir=light_run.folder, engine="gymnasium", **QUICK)


def test_a_report_keeps_tasks_apart_that_share_an_id(light_run: Any, finished_run: FinishedRun) -> None:
    records = read_records([light_run.folder, finished_run.folder])
    assert {record.env for record in records} == {"Pendulum-v1 (g=1.0, max_episode_steps=30)", "Pendulum-v1"}


# --- what cannot be made again ----------------------------------------------------------------------------------


def test_a_wrapped_environment_is_never_replaced_by_the_one_inside(tmp_path: Path) -> None:
    env = gym.wrappers.RescaleAction(gym.make("Pendulum-v1"), -1, 1)
    minerva.train("ppo", env, run_dir=tmp_path, **QUICK)
    for use in (minerva.evaluate, record):
        with pytest.raises(EnvError, match=r"Pendulum-v1 cannot be made again.*RescaleAction.*env="):
            use(tmp_path)
    assert minerva.evaluate(tmp_path, env=env, episodes=1).lengths == [200]
    assert main(["train", "ppo", "--config", str(tmp_path), "--run-dir", str(tmp_path / "again")]) == 2


def test_one_lambda_never_returns_the_result_of_another(tmp_path: Path) -> None:
    assert minerva.train("ppo", lambda: Paid(5.0), run_dir=tmp_path, **QUICK).after == 15.0
    with pytest.raises(RunError, match=r"contains a run of another config .*env_made_by"):
        minerva.train("ppo", lambda: Paid(10.0), run_dir=tmp_path, **QUICK)


def test_runs_that_begin_in_one_second_have_folders_of_their_own(tmp_path: Path) -> None:
    paid = [minerva.train("ppo", lambda n=n: Paid(n), out_dir=tmp_path, **QUICK) for n in (1.0, 2.0, 3.0)]
    assert [result.after for result in paid] == [3.0, 6.0, 9.0]
    assert len({result.folder for result in paid}) == 3


# --- code that a run names ------------------------------------------------------------------------------------


@pytest.fixture
def sent_run(light_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that somebody sent: its id names a module of theirs, which lies in the working directory."""
    folder = tmp_path / "sent"
    shutil.copytree(light_run.folder, folder)
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace("env: Pendulum-v1", "env: theirs:Pendulum-v1"))
    for file in (folder / "checkpoints").glob("ppo_*.safetensors"):
        about, state = load_checkpoint(file)
        save_checkpoint(file, Checkpoint({**about, "env": "theirs:Pendulum-v1"}, state))
    (tmp_path / "theirs.py").write_text("open('trace', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "theirs", raising=False)
    return folder


@pytest.mark.parametrize("verb", ["evaluate sent --episodes 2", "train ppo --resume sent", "video sent --seconds 0.1"])
@pytest.mark.parametrize("consent", ["--trust-env", "--env theirs:Pendulum-v1"])
def test_a_module_named_by_a_run_is_imported_only_when_the_person_says_so(
    verb: str, consent: str, sent_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(verb.split()) == 2
    refused = capsys.readouterr().err
    assert "would import and run the module 'theirs'" in refused
    assert "--trust-env" in refused
    assert not Path("trace").exists()
    assert main([*verb.split(), *consent.split()]) == 0
    assert Path("trace").exists()
    sys.modules.pop("theirs")


def test_reading_a_policy_reporting_and_exporting_need_no_trust(
    sent_run: Path, light_run: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(export_folder, "exported", lambda policy: export_folder.Exported(b"graph", 0.0))
    assert np.isfinite(minerva.load_policy(sent_run).act(np.zeros(3))).all()
    assert main(["report", "sent", "--out", "report.html"]) == 0
    assert export(sent_run, episodes=EPISODES).score.mean == light_run.best
    alone = export(sent_run / "checkpoints" / "ppo_best.safetensors", out="alone", video=False)
    assert alone.score.mean == light_run.best
    assert "would import and run the module 'theirs'" in caplog.text
    assert not Path("trace").exists()
    assert "theirs" not in sys.modules
