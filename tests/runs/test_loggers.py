"""A user's logger, and MLflow itself with its store in a folder."""

import logging
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import BATCH, PACED, PPO, SETTINGS

import minerva
from minerva.cli.main import main
from minerva.errors import ConfigError
from minerva.runs import loggers
from minerva.runs.metrics import read_rows
from minerva.trainers.ppo.trainer import PPOTrainer


class Notes:
    """Notes what it is told, for each run."""

    made: list["Notes"]

    def __init__(self, run: minerva.LoggedRun) -> None:
        self.run, self.rows, self.closed = run, list[tuple[int, dict[str, float]]](), 0
        self.made.append(self)

    def log(self, step: int, metrics: Any) -> None:
        self.rows.append((step, dict(metrics)))

    def close(self) -> None:
        self.closed += 1


class Broken(Notes):
    def log(self, step: int, metrics: Any) -> None:
        raise OSError("the network is gone")


@pytest.fixture(autouse=True)
def nothing_said_yet(caplog: pytest.LogCaptureFixture) -> None:
    loggers._warn_once.cache_clear()
    caplog.set_level(logging.WARNING, "minerva")
    Notes.made = []


def rows_of(folder: Path) -> list[tuple[int, dict[str, float]]]:
    return [(row.pop("step"), row) for row in read_rows(folder / "metrics.jsonl")]


def test_each_run_has_a_logger_that_gets_what_the_run_writes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And one that fails neither stops the run nor keeps the others from it."""
    settings = {**SETTINGS, "loggers": [Broken, Notes]}
    minerva.train_seeds("ppo", PACED, [0, 1], total_steps=BATCH, run_dir=tmp_path, settings=settings, **PPO)
    noted = [one for one in Notes.made if type(one) is Notes]
    assert [one.run.config["seed"] for one in noted] == [0, 1]
    for one in noted:
        assert one.rows == rows_of(one.run.folder)
        assert (one.run.step, one.closed) == (0, 1)
        assert any("eval/return_mean" in row for _, row in one.rows)
    assert caplog.messages == ["The logger Broken is not usable (the network is gone); training continues without it"]


def test_a_resumed_run_tells_its_logger_where_it_begins(tmp_path: Path) -> None:
    PPOTrainer(PACED, **PPO).train(BATCH, tmp_path, **SETTINGS)
    settings = {**SETTINGS, "loggers": [Notes], "resume": True}
    PPOTrainer(PACED, **PPO).train(2 * BATCH, tmp_path, **settings)
    (noted,) = Notes.made
    assert noted.run.step == BATCH
    assert {step for step, _ in noted.rows} == {2 * BATCH}


@pytest.mark.parametrize(
    ("given", "words"), [(Notes, "must be a list"), (["csv"], "'csv' cannot be made for a run: give its class")]
)
def test_what_is_no_logger_is_refused(given: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        PPOTrainer(PACED, **PPO).train(BATCH, tmp_path / "run", **SETTINGS, loggers=given)
    assert not (tmp_path / "run").exists()


def test_mlflow_has_the_settings_and_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    folder = tmp_path / "run"
    words = "--num-envs 2 --rollout-steps 64 --minibatch-size 64 --policy-layer-sizes 8 --critic-layer-sizes 8"
    options = f"--eval-every {BATCH} --eval-episodes 2 --mlflow pendulum --run-dir {folder} --engine gymnasium"
    assert main(f"train ppo --env Pendulum-v1 --total-steps {BATCH} {words} {options}".split()) == 0
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("pendulum").experiment_id])
    assert (run.info.run_name, run.info.status) == ("run", "FINISHED")
    assert run.data.params["hyperparameters.rollout_steps"] == "64"
    assert run.data.params["env"] == "Pendulum-v1"
    written = [(step, row["eval/return_mean"]) for step, row in rows_of(folder) if "eval/return_mean" in row]
    kept = client.get_metric_history(run.info.run_id, "eval/return_mean")
    assert [(metric.step, metric.value) for metric in kept] == written
