"""Which engine steps an environment, and that a run keeps it."""

import importlib.metadata
import importlib.util
import logging
import os
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import tiny_runs
import yaml
from probe_envs import Endless

import minerva
from minerva.cli.main import main
from minerva.envs.engines import envpool as engine
from minerva.envs.engines.registry import make_engine
from minerva.errors import ConfigError, EnvError, RunError
from minerva.runs.checkpoint import load_checkpoint
from minerva.trainers.mpo.trainer import MPOTrainer
from minerva.trainers.ppo.trainer import PPOTrainer
from minerva.trainers.vmpo.trainer import VMPOTrainer

needs_envpool = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="EnvPool is not installed")


@pytest.fixture
def without_envpool(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were not installed."""
    monkeypatch.setitem(sys.modules, "envpool", None)


# --- choosing -----------------------------------------------------------------------------------------------------


@needs_envpool
@pytest.mark.parametrize("env_id", ["Pendulum-v1", "HalfCheetah-v5", "dm_control/ball_in_cup/catch"])
def test_auto_is_envpool_where_it_has_the_task(env_id: str) -> None:
    assert make_engine(env_id, 2).name == "envpool"


@pytest.mark.usefixtures("without_envpool")
@pytest.mark.parametrize("env_id", ["Pendulum-v1", "HalfCheetah-v5"])
def test_auto_is_gymnasium_without_envpool(env_id: str) -> None:
    assert make_engine(env_id, 2).name == "gymnasium"


@pytest.mark.parametrize(
    "env",
    [Endless, gym.make("Pendulum-v1"), "tiny_runs:Paced-v0", "dm_control/lqr/lqr_2_1"],
    ids=["callable", "instance", "own id", "another task of the same name"],
)
def test_auto_is_gymnasium_for_what_envpool_does_not_have(env: Any) -> None:
    assert make_engine(env, 2).name == "gymnasium"


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        (Endless, "EnvPool steps what is given by id, and Endless is given as an object"),
        ("tiny_runs:Paced-v0", "EnvPool does not have tiny_runs:Paced-v0"),
        ("HalfCheetah-v4", "EnvPool does not have HalfCheetah-v4"),
        ("dm_control/cheetah/fly", "EnvPool does not have dm_control/cheetah/fly"),
        ("dm_control/cartpole/two_poles", "EnvPool does not have dm_control/cartpole/two_poles"),
    ],
)
def test_asking_for_envpool_where_it_cannot_be_is_refused(env: Any, reason: str) -> None:
    if isinstance(env, str) and env == "dm_control/cheetah/fly":
        pytest.importorskip("envpool")
    with pytest.raises(EnvError, match=f"{reason}. The engine gymnasium steps everything"):
        make_engine(env, 1, "envpool")


@pytest.mark.usefixtures("without_envpool")
def test_asking_for_envpool_without_it_says_how_to_install_it() -> None:
    with pytest.raises(EnvError, match=r"EnvPool is not installed: pip install "):
        PPOTrainer("Pendulum-v1", engine="envpool")


@needs_envpool
def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ImportError("libEGL.so.1: cannot open shared object file")

    monkeypatch.setattr(engine, "_envpool", fail)
    assert make_engine("Pendulum-v1", 1).name == "gymnasium"
    with pytest.raises(EnvError, match=r"cannot be loaded \(libEGL.so.1.*\): on Debian, apt-get install libegl1"):
        make_engine("Pendulum-v1", 1, "envpool")


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match="engine is 'brax': it must be one of auto, gymnasium, envpool"):
        make_engine("Pendulum-v1", 1, "brax")  # type: ignore[arg-type]


def test_importing_envpool_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its import would make matplotlib draw into files, and keep its settings in a folder under /tmp."""
    monkeypatch.delenv("MPLBACKEND", raising=False)
    monkeypatch.setattr(importlib, "import_module", lambda name: os.environ.update(MPLBACKEND="Agg"))
    engine._envpool()
    assert "MPLBACKEND" not in os.environ


# --- a run's engine -----------------------------------------------------------------------------------------------


TINY = {**tiny_runs.PPO, "seed": 0}


@needs_envpool
@pytest.mark.parametrize("trainer", [PPOTrainer, VMPOTrainer, MPOTrainer])
@pytest.mark.parametrize("name", ["gymnasium", "envpool"])
def test_every_trainer_takes_an_engine_for_training_and_evaluation(trainer: Any, name: Any) -> None:
    made = trainer("Pendulum-v1", engine=name)
    assert (made.envs.name, made.make_evaluator(2).envs.name, made.describe()["engine"]) == (name, name, name)


@needs_envpool
def test_a_run_on_envpool_says_so_trains_and_is_evaluated_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(tiny_runs.train_command(tmp_path, engine="auto")) == 0
    printed = capsys.readouterr().out
    assert "stepped by envpool" in printed.splitlines()[0]
    assert printed.count("if this run is resumed, it begins new episodes") == 1
    saved = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert saved["engine"] == "envpool"
    assert saved["versions"]["envpool"] == importlib.metadata.version("envpool")
    about = load_checkpoint(tmp_path / "checkpoints" / "ppo_last.safetensors").about
    assert about["engine"] == "envpool"
    again = minerva.evaluate(tmp_path, which="last", episodes=tiny_runs.EPISODES)
    assert again.mean == about["return"], "the same engine has the same episodes"
    assert minerva.evaluate(tmp_path, which="last", episodes=2, engine="gymnasium").mean != about["return"]


def interrupted(folder: Path, name: Any) -> None:
    """A run that a callback ended after its first update."""
    settings = {**tiny_runs.SETTINGS, "callbacks": [lambda *_: True]}
    PPOTrainer("Pendulum-v1", engine=name, **TINY).train(tiny_runs.STEPS, folder, **settings)


@needs_envpool
def test_a_run_goes_on_with_its_engine_and_other_episodes(tmp_path: Path) -> None:
    interrupted(tmp_path, "envpool")
    trainer = PPOTrainer("Pendulum-v1", engine="envpool", **TINY)
    first = trainer.envs.reset([0, 1]).clone()
    seen: list[np.ndarray] = []
    reset = trainer.envs.reset
    trainer.envs.reset = lambda seeds: seen.append(reset(seeds)) or seen[0]  # type: ignore[method-assign, func-returns-value]
    assert trainer.train(tiny_runs.STEPS, tmp_path, **tiny_runs.SETTINGS).finished
    assert not np.array_equal(seen[0], first)


@needs_envpool
def test_resuming_takes_the_runs_own_engine(tmp_path: Path) -> None:
    interrupted(tmp_path, "gymnasium")
    assert main(["train", "ppo", "--resume", str(tmp_path)]) == 0
    assert load_checkpoint(tmp_path / "checkpoints" / "ppo_last.safetensors").about["engine"] == "gymnasium"


@needs_envpool
@pytest.mark.parametrize(("before", "now"), [("envpool", "gymnasium"), ("gymnasium", "envpool")])
def test_going_on_with_another_engine_is_refused(tmp_path: Path, before: str, now: Any) -> None:
    interrupted(tmp_path, before)
    with pytest.raises(RunError, match=f"a run on the engine {before}, .* {now}: resume it with --engine {before}"):
        PPOTrainer("Pendulum-v1", engine=now, **TINY).train(tiny_runs.STEPS, tmp_path, **tiny_runs.SETTINGS)


@needs_envpool
def test_a_run_whose_engine_is_gone_can_be_evaluated_but_not_resumed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    interrupted(tmp_path, "envpool")
    monkeypatch.setitem(sys.modules, "envpool", None)
    assert main(["train", "ppo", "--resume", str(tmp_path)]) == 2
    assert "EnvPool is not installed: pip install " in " ".join(capsys.readouterr().err.split())
    with caplog.at_level(logging.WARNING, "minerva"):
        assert len(minerva.evaluate(tmp_path, episodes=2).returns) == 2
    assert "Trained with envpool and evaluated with gymnasium" in caplog.text
