"""Weights & Biases working, broken, without a run and absent: training goes on in any case, and it is said once."""

import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_runs import BATCH, PPO, SETTINGS, training_steps

from minerva.loop.population import Population
from minerva.runs import loggers
from minerva.runs.metrics import read_rows
from minerva.trainers.ppo.trainer import PPOTrainer
from minerva.utils import wandb_utils
from minerva.utils.wandb_utils import log_wandb


class FakeRun(SimpleNamespace):
    """A run, that notes what it is given."""

    def __init__(self, fails: str = "", **options: Any) -> None:
        super().__init__(fails=fails, options=options, logged=[], finished=0)

    def log(self, metrics: Any, step: int | None = None) -> None:
        if self.fails == "log":
            raise RuntimeError("the server is down")
        self.logged.append((metrics, step))

    def finish(self) -> None:
        if self.fails == "finish":
            raise TimeoutError("not everything could be sent")
        self.finished += 1


class FakeWandb(SimpleNamespace):
    """A module of that name, with or without an active run."""

    def __init__(self, run: FakeRun | None = None, fails: str = "") -> None:
        super().__init__(run=run, fails=fails, started=[])

    def init(self, **options: Any) -> FakeRun:
        if self.fails == "init":
            raise ConnectionError("no network")
        if self.fails == "exits":
            raise SystemExit("no key, and nobody to ask for one")
        self.started.append(FakeRun(self.fails, **options))
        return self.started[-1]  # type: ignore[no-any-return]

    def log(self, metrics: Any, step: int | None = None) -> None:
        self.run.log(metrics, step)


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(wandb_utils, "_warned", False)
    loggers._warn_once.cache_clear()
    caplog.set_level(logging.WARNING, "minerva")


def rows_of(folder: Path) -> list[tuple[dict[str, Any], int]]:
    """What a run's own log says: metrics and step of each row."""
    rows = read_rows(folder / "metrics.jsonl")
    return [({name: row[name] for name in row if name != "step"}, row["step"]) for row in rows]


def install(monkeypatch: pytest.MonkeyPatch, module: FakeWandb | None) -> None:
    """Make `module` what `import wandb` gives; None: the package is not installed."""
    monkeypatch.setitem(sys.modules, "wandb", module)


BROKEN = {
    "absent": (None, "import of wandb halted"),
    "raises": (FakeWandb(FakeRun(fails="log")), "the server is down"),
    "no run": (FakeWandb(), "call wandb.init"),
}


def test_metrics_are_handed_over_with_their_step(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    active, other = FakeRun(), FakeRun()
    install(monkeypatch, FakeWandb(active))
    assert log_wandb({"losses/x": 1.0}, step=7)
    assert log_wandb({"losses/x": 2.0})
    assert log_wandb({"losses/x": 3.0}, run=other)
    assert active.logged == [({"losses/x": 1.0}, 7), ({"losses/x": 2.0}, None)]
    assert other.logged == [({"losses/x": 3.0}, None)]
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


@pytest.mark.parametrize(
    ("module", "complaints"),
    [
        (FakeWandb(), 0),
        (FakeWandb(fails="init"), 1),
        (FakeWandb(fails="exits"), 1),
        (FakeWandb(fails="log"), 1),
        (FakeWandb(fails="finish"), 1),
    ],
    ids=["works", "cannot start", "exits", "breaks later", "breaks at the end"],
)
def test_training_goes_on_whatever_it_does(
    module: FakeWandb,
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
    if not complaints:
        (run,) = module.started
        assert run.logged == rows_of(tmp_path)
        assert (run.options["project"], run.options["name"]) == ("project", tmp_path.name)
        assert run.options["config"]["algo"] == "ppo"
        assert run.finished == 1


@pytest.mark.parametrize(("folder", "group"), [("lr/seed", "lr"), ("ppo_Paced-v0_seed", "ppo_Paced-v0")])
def test_seeds_trained_together_have_a_run_each_in_one_group(
    folder: str, group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = FakeWandb()
    install(monkeypatch, module)
    folders = [tmp_path / f"{folder}{seed}" for seed in (3, 4)]
    trainers = [PPOTrainer("Pendulum-v1", seed, **PPO) for seed in (3, 4)]
    Population(trainers).train(2 * BATCH, folders, **SETTINGS, wandb="project")
    assert [run.logged for run in module.started] == [rows_of(folder) for folder in folders]
    assert [run.options["config"]["seed"] for run in module.started] == [3, 4]
    assert {(run.options["group"], run.options["reinit"]) for run in module.started} == {(group, "create_new")}
    assert [run.finished for run in module.started] == [1, 1]
