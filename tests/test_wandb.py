"""Weights & Biases working, broken, without a run and absent: training goes on in any case, and it is said once."""

import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_runs import BATCH, PPO, SETTINGS, training_steps

from minerva.runs.metrics import read_rows
from minerva.trainers.ppo.trainer import PPOTrainer
from minerva.utils import wandb_utils
from minerva.utils.wandb_utils import log_wandb, start_wandb


class FakeWandb(SimpleNamespace):
    """A module of that name, that notes what it is given."""

    def __init__(self, run: Any = "a run", fails: str = "") -> None:
        super().__init__(run=run, fails=fails, logged=[], started=[], finished=0)

    def init(self, **options: Any) -> None:
        if self.fails == "init":
            raise ConnectionError("no network")
        if self.fails == "exits":
            raise SystemExit("no key, and nobody to ask for one")
        self.started.append(options)

    def log(self, metrics: Any, step: int | None = None) -> None:
        if self.fails == "log":
            raise RuntimeError("the server is down")
        self.logged.append((metrics, step))

    def finish(self) -> None:
        if self.fails == "finish":
            raise TimeoutError("not everything could be sent")
        self.finished += 1


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(wandb_utils, "_told", False)
    caplog.set_level(logging.WARNING, "minerva")


def install(monkeypatch: pytest.MonkeyPatch, module: FakeWandb | None) -> None:
    """Make `module` what `import wandb` gives; None: the package is not installed."""
    monkeypatch.setitem(sys.modules, "wandb", module)


BROKEN = {
    "absent": (None, "import of wandb halted"),
    "raises": (FakeWandb(fails="log"), "the server is down"),
    "no run": (FakeWandb(run=None), "call wandb.init"),
}


def test_metrics_are_handed_over_with_their_step(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module = FakeWandb()
    install(monkeypatch, module)
    assert log_wandb({"losses/x": 1.0}, step=7)
    assert log_wandb({"losses/x": 2.0})
    assert module.logged == [({"losses/x": 1.0}, 7), ({"losses/x": 2.0}, None)]
    assert caplog.records == []


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_wrong_is_said_once(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module, words = BROKEN[kind]
    install(monkeypatch, module)
    assert [log_wandb({"losses/x": 1.0}, step) for step in range(3)] == [False, False, False]
    assert len(caplog.records) == 1
    assert words in caplog.text


@pytest.mark.parametrize("kind", BROKEN)
def test_silent_says_nothing(kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    install(monkeypatch, BROKEN[kind][0])
    assert not log_wandb({"losses/x": 1.0}, silent=True)
    assert caplog.records == []


def test_a_run_is_started_with_its_name_and_config(monkeypatch: pytest.MonkeyPatch) -> None:
    module = FakeWandb()
    install(monkeypatch, module)
    assert start_wandb("project", "run 1", {"seed": 0})
    assert module.started == [{"project": "project", "name": "run 1", "config": {"seed": 0}}]


@pytest.mark.parametrize(
    "module", [None, FakeWandb(fails="init"), FakeWandb(fails="exits")], ids=["absent", "raises", "exits"]
)
def test_a_run_that_cannot_start_is_said_once(
    module: FakeWandb | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(monkeypatch, module)
    assert not start_wandb("project", "run 1", {})
    assert not start_wandb("project", "run 2", {})
    assert len(caplog.records) == 1
    assert "training goes on without it" in caplog.text


@pytest.mark.parametrize(
    ("module", "complaints"),
    [
        (FakeWandb(), 0),
        (FakeWandb(fails="init"), 1),
        (FakeWandb(fails="exits"), 1),
        (FakeWandb(fails="log"), 1),
        (FakeWandb(fails="finish"), 1),
        (FakeWandb(run=None), 1),
        (None, 1),
    ],
    ids=["works", "cannot start", "exits", "breaks later", "breaks at the end", "no run", "absent"],
)
def test_training_goes_on_whatever_it_does(
    module: FakeWandb | None,
    complaints: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    install(monkeypatch, module)
    result = PPOTrainer("Pendulum-v1", **PPO).train(2 * BATCH, tmp_path, **SETTINGS, wandb="project")
    assert result.finished
    assert training_steps(tmp_path) == [BATCH, 2 * BATCH]
    assert len(caplog.records) == complaints
    if module is not None and not complaints:
        rows = [
            ({k: v for k, v in row.items() if k != "step"}, row["step"])
            for row in read_rows(tmp_path / "metrics.jsonl")
        ]
        assert module.logged == rows
        assert module.started[0]["project"] == "project"
        assert module.finished == 1
