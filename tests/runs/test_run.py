"""A run's schedule and its ends, with a trainer that learns nothing and evaluations that are written beforehand."""

import itertools
import json
import logging
import math
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from tiny_runs import evaluation_steps, snapshot, training_steps

from minerva.envs.engine import Episode
from minerva.errors import CheckpointError, ConfigError, RunError, TrainingError
from minerva.evaluation import Evaluation
from minerva.runs.callbacks import Callback
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.metrics import read_rows
from minerva.runs.run import Run
from minerva.runs.settings import Result, RunSettings
from minerva.runs.status import RunStatus
from minerva.spec import ActionSpec, ObservationSpec


class Script:
    """Evaluations that give the returns it was told, one after another; the last one again and again."""

    def __init__(self, means: Iterable[float]) -> None:
        self.means = list(means)
        self.calls = self.closed = 0

    def __call__(self, act: Any, interrupted: Any = None) -> Evaluation:
        self.calls += 1
        mean = self.means[min(self.calls, len(self.means)) - 1]
        return Evaluation([mean - 1, mean + 1], [10, 20])

    def random(self, seed: int, interrupted: Any = None) -> Evaluation:
        return Evaluation([-7.0], [10])

    def close(self) -> None:
        self.closed += 1


class Idle:
    """A trainer whose state is the number of its updates."""

    algo = "ppo"
    resumes_exactly = True
    inexact_reason = ""
    metrics = ()
    origin = None

    def __init__(self, means: Iterable[float] = (0.0,), seed: int = 0) -> None:
        self.script, self.seed, self.updates = Script(means), seed, 0

    def trained(self, checkpoint: Path, step: int) -> None:
        self.last = checkpoint, step

    def describe(self) -> dict[str, Any]:
        return {"algo": "ppo", "env": "Idle-v0", "seed": self.seed, "hyperparameters": {"gamma": 0.9}}

    def specs(self) -> dict[str, Any]:
        action = ActionSpec.continuous([-1.0], [1.0])
        return {"observation": ObservationSpec((1,)).to_dict(), "action": action.to_dict()}

    def make_evaluator(self, episodes: int, longest: int | None = None) -> Any:
        return self.script

    def greedy(self, obs: np.ndarray) -> np.ndarray:
        return obs

    changeable = ()

    def change(self, **settings: float) -> None:
        raise NotImplementedError

    def take_logged(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"updates": torch.tensor(self.updates)}

    def load_state_dict(self, state: dict[str, Any]) -> str:
        self.updates = int(state["updates"])
        return ""

    def start(self, step: int) -> None:
        self.started = step

    @property
    def rows(self) -> None:
        return None

    def status(self, train: float | None, evaluations: list[float], reports: Any) -> RunStatus:
        return RunStatus(f"seed {self.seed}", train, evaluations, [], [])

    def train(
        self,
        total: int,
        folder: Path,
        by: int = 10,
        losses: Iterable[float] = (),
        episodes: Sequence[Episode] = (),
        **settings: Any,
    ) -> Result:
        """The shape of every trainer's loop."""
        upcoming = itertools.chain(losses, itertools.repeat(1.0))
        with Run(self, total, folder, RunSettings(quiet=True, **settings)) as run:
            if not run.already_finished:
                for step in run.steps(by):
                    self.updates += 1
                    run.report(step, {"losses/value_loss": next(upcoming)}, episodes)
        return run.result()


def stop_at(step: int) -> Any:
    return lambda now, metrics, trainer: now >= step


class AtCheckpoint(Callback):
    """Notes the step of a checkpoint file each time one is written."""

    def __init__(self, noted: list[int | None], path: Path) -> None:
        self.noted, self.path = noted, path

    def on_checkpoint(self, step: int, metrics: Any, trainer: Any) -> None:
        self.noted.append(step_of(self.path) if self.path.exists() else None)


def step_of(path: Path) -> int:
    return int(load_checkpoint(path).about["step"])


# --- the schedule ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("total", "by"), [(400, 1), (400, 7), (2003, 7), (4119, 7), (100_000, 2048)])
def test_a_run_is_evaluated_twenty_times_and_once_before_it(total: int, by: int, tmp_path: Path) -> None:
    trainer = Idle()
    trainer.train(total, tmp_path, by=by)
    steps = evaluation_steps(tmp_path)
    assert steps[0] == 0
    assert len(steps) == 1 + 20
    assert steps[-1] == total // by * by
    assert trainer.script.calls == 21


@pytest.mark.parametrize(
    ("every", "expected"),
    [(20, [0, 20, 40, 60, 80, 100]), (25, [0, 30, 50, 80, 100]), (1, [*range(0, 101, 10)]), (1000, [0, 100])],
)
def test_eval_every_is_kept_at_the_first_report_past_it(every: int, expected: list[int], tmp_path: Path) -> None:
    Idle().train(100, tmp_path, eval_every=every)
    assert evaluation_steps(tmp_path) == expected


def test_what_remains_after_the_last_whole_batch_is_not_run(tmp_path: Path) -> None:
    result = Idle().train(109, tmp_path)
    assert (result.step, result.finished) == (100, True)
    assert training_steps(tmp_path) == [*range(10, 101, 10)]


def test_every_report_is_one_row_with_the_means_of_its_episodes(tmp_path: Path) -> None:
    Idle().train(20, tmp_path, episodes=[Episode(0, 4.0, 10), Episode(1, 8.0, 30)], eval_every=100)
    rows = [row for row in read_rows(tmp_path / "metrics.jsonl") if "losses/value_loss" in row]
    assert [(row["step"], row["train/episode_return"], row["train/episode_length"]) for row in rows] == [
        (10, 6.0, 20.0),
        (20, 6.0, 20.0),
    ]


# --- best and last --------------------------------------------------------------------------------------------


def test_best_is_replaced_only_by_a_strictly_higher_return(tmp_path: Path) -> None:
    best: list[int | None] = []
    path = tmp_path / "checkpoints" / "ppo_best.safetensors"
    means = [1.0, 0.5, 3.0, 3.0, 2.0, 3.5]
    result = Idle(means).train(50, tmp_path, eval_every=10, callbacks=[AtCheckpoint(best, path)])
    assert best == [None, 0, 0, 20, 20, 20, 50, 50]
    assert (result.before, result.after, result.best, result.random) == (1.0, 3.5, 3.5, -7.0)


def test_last_is_the_state_at_the_last_evaluation_and_at_the_end(tmp_path: Path) -> None:
    last: list[int | None] = []
    path = tmp_path / "checkpoints" / "ppo_last.safetensors"
    Idle().train(50, tmp_path, eval_every=20, callbacks=[AtCheckpoint(last, path)])
    assert last == [0, 0, 20, 40, 50]
    assert load_checkpoint(path).state["trainer"]["updates"] == 5


def test_each_evaluation_is_kept_episode_by_episode(tmp_path: Path) -> None:
    Idle([2.0, 5.0]).train(10, tmp_path)
    assert read_rows(tmp_path / "eval" / "evaluations.jsonl") == [
        {"step": 0, "returns": [1.0, 3.0], "lengths": [10, 20]},
        {"step": 10, "returns": [4.0, 6.0], "lengths": [10, 20]},
    ]


# --- callbacks ------------------------------------------------------------------------------------------------


def test_every_callback_is_called_after_every_report(tmp_path: Path) -> None:
    heard: list[tuple[str, int, float, int]] = []

    def listener(name: str, answer: bool | None) -> Any:
        def callback(step: int, metrics: Any, trainer: Idle) -> bool | None:
            heard.append((name, step, metrics["losses/value_loss"], trainer.updates))
            return answer

        return callback

    Idle().train(20, tmp_path, losses=[3.0, 4.0], callbacks=[listener("a", None), listener("b", False)])
    assert heard == [("a", 10, 3.0, 1), ("b", 10, 3.0, 1), ("a", 20, 4.0, 2), ("b", 20, 4.0, 2)]


def test_a_callback_ends_the_run_and_a_later_one_still_hears_of_it(tmp_path: Path) -> None:
    heard: list[int] = []
    result = Idle().train(100, tmp_path, callbacks=[stop_at(30), lambda step, *_: heard.append(step)])
    assert (result.step, result.finished) == (30, False)
    assert heard == [10, 20, 30]
    assert step_of(tmp_path / "checkpoints" / "ppo_last.safetensors") == 30


# --- going on -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [10, 40, 50, 70, 100])
def test_a_stopped_run_goes_on_to_the_same_rows_as_one_that_was_not(stop: int, tmp_path: Path) -> None:
    whole, parts = Idle(), tmp_path / "parts"
    whole.train(100, tmp_path / "whole", eval_every=40)
    assert not Idle().train(100, parts, eval_every=40, callbacks=[stop_at(stop)]).finished
    again = Idle()
    assert again.train(100, parts, eval_every=40).finished
    assert again.updates == whole.updates
    assert training_steps(parts) == training_steps(tmp_path / "whole") == [*range(10, 101, 10)]
    assert evaluation_steps(parts) == evaluation_steps(tmp_path / "whole") == [0, 40, 80, 100]


def test_a_simulator_that_does_not_repeat_itself_is_named_when_a_run_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Idle, "inexact_reason", "it adds in no fixed order")
    Idle().train(20, tmp_path, callbacks=[stop_at(10)])
    with Run(Idle(), 20, tmp_path, RunSettings()):
        pass
    assert "but not bit for bit as the uninterrupted run: it adds in no fixed order." in capsys.readouterr().out


def test_rows_that_the_checkpoint_does_not_know_are_forgotten(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):  # as if killed at step 70, after the checkpoint of step 40
        Idle().train(100, tmp_path, eval_every=40, callbacks=[lambda step, *_: 1 // (step - 70) and None])
    assert training_steps(tmp_path)[-1] == 70
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 80, "losses/va')  # a line that was cut off
    again = Idle()
    again.train(100, tmp_path, eval_every=40)
    assert training_steps(tmp_path) == [*range(10, 101, 10)]
    assert evaluation_steps(tmp_path) == [0, 40, 80, 100]
    assert again.updates == 10


def test_a_run_that_died_before_its_first_checkpoint_begins_anew(tmp_path: Path) -> None:
    trainer = Idle()
    trainer.state_dict = lambda: 1 // 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        trainer.train(20, tmp_path)
    assert (tmp_path / "config.yaml").exists()
    assert Idle().train(20, tmp_path).finished
    assert evaluation_steps(tmp_path) == [0, 10, 20]
    assert [row["step"] for row in read_rows(tmp_path / "eval" / "evaluations.jsonl")] == [0, 10, 20]


@pytest.mark.parametrize("stopped", [True, False], ids=["unfinished", "without a checkpoint"])
def test_a_folder_with_a_run_of_another_config_is_refused_and_left_alone(stopped: bool, tmp_path: Path) -> None:
    Idle(seed=0).train(20, tmp_path, callbacks=[stop_at(10)])
    if not stopped:
        (tmp_path / "checkpoints" / "ppo_last.safetensors").unlink()
    before = snapshot(tmp_path)
    with pytest.raises(RunError, match=r"another config \(seed: 0 -> 1\): give another folder"):
        Idle(seed=1).train(20, tmp_path)
    assert snapshot(tmp_path) == before


def test_a_finished_run_is_not_touched(tmp_path: Path) -> None:
    first = Idle([1.0, 2.0]).train(20, tmp_path)
    before = snapshot(tmp_path)
    again = Idle([9.0])
    assert again.train(20, tmp_path) == first
    assert again.script.calls == 0
    assert snapshot(tmp_path) == before


def test_a_damaged_last_checkpoint_falls_back_to_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Idle([1.0, 5.0, 3.0, 2.0]).train(100, tmp_path, eval_every=10, callbacks=[stop_at(30)])
    last = tmp_path / "checkpoints" / "ppo_last.safetensors"
    last.write_bytes(last.read_bytes()[:-8])
    with caplog.at_level(logging.WARNING, "minerva"):
        result = Idle([0.0]).train(100, tmp_path, eval_every=10)
    assert "ppo_last.safetensors is cut off" in caplog.text
    assert "ppo_previous.safetensors instead" in caplog.text
    assert result.finished
    assert (result.before, result.best, result.after) == (1.0, 5.0, 0.0)
    assert training_steps(tmp_path) == [*range(10, 101, 10)]
    assert step_of(tmp_path / "checkpoints" / "ppo_best.safetensors") == 10


def test_if_both_checkpoints_are_damaged_the_run_is_refused(tmp_path: Path) -> None:
    Idle().train(20, tmp_path, callbacks=[stop_at(10)])
    for path in (tmp_path / "checkpoints").iterdir():
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"ppo_last\.safetensors is cut off"):
        Idle().train(20, tmp_path)


# --- failures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_non_finite_loss_stops_the_run_by_name_and_keeps_the_last_good_checkpoint(
    value: float, tmp_path: Path
) -> None:
    with pytest.raises(
        TrainingError, match=r"losses/value_loss became -?(nan|inf) at step 50.*ppo_last.safetensors.*learning rate"
    ):
        Idle().train(100, tmp_path, eval_every=20, losses=[1, 1, 1, 1, value])
    assert step_of(tmp_path / "checkpoints" / "ppo_last.safetensors") == 40
    assert training_steps(tmp_path) == [10, 20, 30, 40]


def test_there_is_a_good_checkpoint_from_the_start(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="at step 10"):
        Idle().train(100, tmp_path, losses=[math.nan])
    assert step_of(tmp_path / "checkpoints" / "ppo_last.safetensors") == 0
    assert Idle().train(100, tmp_path).finished


def test_a_number_that_json_does_not_have_is_written_as_null(tmp_path: Path) -> None:
    with Run(Idle(), 10, tmp_path, RunSettings(quiet=True)) as run:
        for step in run.steps(10):
            run.report(step, {"losses/value_loss": 1.0, "value/explained_var": math.nan}, [])
    text = (tmp_path / "metrics.jsonl").read_text()
    rows = [json.loads(line, parse_constant=lambda name: pytest.fail(name)) for line in text.splitlines()]
    assert [row["value/explained_var"] for row in rows if "value/explained_var" in row] == [None]


@pytest.mark.parametrize("when", ["while starting", "while training"])
def test_whatever_happens_the_environments_are_closed_and_signals_are_as_before(when: str, tmp_path: Path) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    trainer = Idle()
    if when == "while starting":
        trainer.script.random = lambda **_: 1 // 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        trainer.train(20, tmp_path, callbacks=[lambda *_: 1 // 0])
    assert trainer.script.closed == 1
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


@pytest.mark.parametrize("name", ["eval_every", "eval_episodes"])
def test_settings_below_one_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 0: it must be at least 1"):
        RunSettings(**{name: 0})  # type: ignore[arg-type]


def test_the_config_says_all_that_makes_two_runs_the_same(tmp_path: Path) -> None:
    Idle().train(40, tmp_path, eval_episodes=3)
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    provenance = {name: config.pop(name) for name in ("versions", "commit", "started")}
    assert config == {
        "algo": "ppo",
        "env": "Idle-v0",
        "seed": 0,
        "total_steps": 40,
        "eval_every": 2,
        "eval_episodes": 3,
        "compile": "auto",
        "matmul": "highest",
        "hyperparameters": {"gamma": 0.9},
    }
    assert provenance["versions"]["torch"] == torch.__version__
