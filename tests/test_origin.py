"""A run names the weights that it began with: whoever reads, repeats, resumes or compares it knows whose they are."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from probe_envs import Endless
from tiny_runs import BATCH, PPO, SETTINGS, learned, rows_without_clock, same

import minerva
from minerva.cli.main import main
from minerva.errors import EnvStepError, RunError
from minerva.lab.analysis.comparison import compare
from minerva.lab.analysis.records import read_records
from minerva.lab.analysis.report import page
from minerva.lab.export.card import Score, model_card
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.origin import Origin
from minerva.trainers.ppo.trainer import PPOTrainer

QUICK: dict[str, Any] = {**PPO, "total_steps": 2 * BATCH, "engine": "gymnasium", "preset": "none", "settings": SETTINGS}


def config(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((folder / "config.yaml").read_text())
    return read


def weights_in(checkpoint: Path) -> str:
    """SHA-256 of the networks in a checkpoint of PPO, which hold the normaliser."""
    network = load_checkpoint(checkpoint).state["trainer"]["agent"]["network"]
    sha = hashlib.sha256()
    for name in sorted(network):
        sha.update(f"network/{name} {network[name].dtype} {tuple(network[name].shape)}".encode())
        sha.update(network[name].numpy().tobytes())
    return sha.hexdigest()


def make_trainer() -> PPOTrainer:
    return PPOTrainer("Pendulum-v1", engine="gymnasium", **PPO)


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: `parent`, `child`, which `init_from` made of it, and `second`, which its trainer went on to."""
    home = tmp_path_factory.mktemp("family")
    trainer = make_trainer()
    trainer.train(2 * BATCH, home / "parent", **SETTINGS)
    trainer.train(2 * BATCH, home / "second", **SETTINGS)
    minerva.train("ppo", "Pendulum-v1", run_dir=home / "child", init_from=home / "parent", **QUICK)
    return home


@pytest.fixture
def copies(family: Path, tmp_path: Path) -> Path:
    """The family where a test may change it, with the child's parent there."""
    shutil.copytree(family, tmp_path / "copies")
    file = tmp_path / "copies" / "child" / "config.yaml"
    file.write_text(file.read_text().replace(str(family), str(tmp_path / "copies")))
    return tmp_path / "copies"


# --- the record -----------------------------------------------------------------------------------------------------


def test_config_and_checkpoint_name_the_run_the_step_and_the_weights(family: Path) -> None:
    best, last = (family / "parent" / "checkpoints" / f"ppo_{which}.safetensors" for which in ("best", "last"))
    assert "init_from" not in config(family / "parent")
    for name, file, taken in (("child", best, "policy"), ("second", last, "trainer")):
        expected = {"checkpoint": str(file), "algo": "ppo", "step": load_checkpoint(file).about["step"]}
        expected |= {"weights": weights_in(file), "taken": taken}
        assert config(family / name)["init_from"] == expected
        assert load_checkpoint(family / name / "checkpoints" / "ppo_best.safetensors").about["init_from"] == expected


def test_a_policy_and_its_card_name_the_parent(family: Path) -> None:
    child, parent = (minerva.load_policy(family / name) for name in ("child", "parent"))
    origin = config(family / "child")["init_from"]
    named = f"fine-tuned from parent at step {origin['step']} ({origin['weights'][:8]})"
    assert named in repr(child)
    assert named in model_card(child.about, "ppo_best.safetensors", Score([1.0, 2.0], "episodes"), 0.0, None)
    assert "fine-tuned" not in repr(parent)


def test_weights_that_a_program_set_are_recorded_too(family: Path, tmp_path: Path) -> None:
    trainer = make_trainer()
    trainer.agent.load_policy(
        load_checkpoint(family / "parent" / "checkpoints" / "ppo_last.safetensors").state["trainer"]["agent"]
    )
    trainer.train(BATCH, tmp_path / "run", **SETTINGS)
    origin = config(tmp_path / "run")["init_from"]
    assert (origin["checkpoint"], origin["weights"]) == ("", config(family / "second")["init_from"]["weights"])
    assert "fine-tuned from weights that a program set" in repr(minerva.load_policy(tmp_path / "run"))


def test_acting_before_training_makes_no_other_run(tmp_path: Path) -> None:
    trainer = make_trainer()
    trainer.agent.policy_action(np.zeros(3, np.float32), deterministic=False)
    trainer.train(BATCH, tmp_path, **SETTINGS)
    assert "init_from" not in config(tmp_path)


ORIGIN = {"checkpoint": "a.pt", "algo": "ppo", "step": 1, "weights": "0" * 64, "taken": "policy"}
ODD: list[Any] = [3, "parent", [], {}, {"step": 1}, *({**ORIGIN, name: None} for name in ORIGIN)]
ODD += [{**ORIGIN, "weights": ""}, {**ORIGIN, "step": -1}, {**ORIGIN, "step": True}, {**ORIGIN, "more": 1}]


@pytest.mark.parametrize("value", ODD)
def test_what_no_run_wrote_is_no_origin(value: Any) -> None:
    assert Origin.read({"init_from": ORIGIN}) == Origin("a.pt", "ppo", 1, "0" * 64)
    with pytest.raises(ValueError, match="init_from is not what Minerva writes"):
        Origin.read({"init_from": value})


def test_an_odd_origin_is_a_sentence_wherever_it_is_read(copies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copies / "child" / "config.yaml").write_text(
        yaml.safe_dump({**config(copies / "child"), "init_from": {"step": 1}})
    )
    assert main(["train", "ppo", "--config", str(copies / "child"), "--run-dir", str(copies / "again")]) == 2
    assert main(["train", "--resume", str(copies / "child")]) == 2
    unread: list[RunError] = []
    assert len(read_records([copies], unread)) == 2
    assert "init_from is not what Minerva writes" in str(unread[0])
    assert capsys.readouterr().err.count("init_from is not what Minerva writes") == 2


# --- the same again -------------------------------------------------------------------------------------------------


def test_a_config_trains_the_same_child_again(copies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = copies / "again"
    assert main(["train", "ppo", "--config", str(copies / "child" / "config.yaml"), "--run-dir", str(again)]) == 0
    assert f"{again} is fine-tuned from parent" in capsys.readouterr().out
    assert same(learned(again), learned(copies / "child"))
    assert config(again)["init_from"] == config(copies / "child")["init_from"]


def test_a_config_whose_parent_is_gone_changed_or_in_no_file_says_so(
    copies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refusal(name: str) -> str:
        assert main(["train", "ppo", "--config", str(copies / name), "--run-dir", str(copies / "again")]) == 2
        assert not (copies / "again").exists()
        return " ".join(capsys.readouterr().err.split())

    assert "fine-tuned from the trainer of parent at step 256" in refusal("second")
    best = copies / "parent" / "checkpoints" / "ppo_best.safetensors"
    shutil.copy(copies / "second" / "checkpoints" / "ppo_last.safetensors", best)
    assert f"of {best} at step" in (message := refusal("child"))
    assert "holds others now" in message
    shutil.rmtree(copies / "parent")
    assert f"{best}, which is not there: give its place as --init-from" in refusal("child")


def test_a_child_is_resumed_bit_for_bit_without_its_parent(copies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped = copies / "stopped"
    settings = {**SETTINGS, "callbacks": [lambda *_: True]}
    minerva.train("ppo", "Pendulum-v1", run_dir=stopped, init_from=copies / "parent", **{**QUICK, "settings": settings})
    shutil.copytree(stopped, copies / "other")
    shutil.rmtree(copies / "parent")
    assert main(["train", "--resume", str(stopped)]) == 0
    assert "bit for bit." in capsys.readouterr().out
    again = {**QUICK, "run_dir": copies / "other"}
    with pytest.raises(RunError, match=r"contains a run of another config .*init_from"):  # it would be from scratch
        minerva.train("ppo", "Pendulum-v1", **again)
    assert minerva.train("ppo", "Pendulum-v1", **{**again, "settings": {**SETTINGS, "resume": True}}).finished
    for folder in (stopped, copies / "other"):
        assert same(learned(folder), learned(copies / "child"))
        assert rows_without_clock(folder) == rows_without_clock(copies / "child")
        assert config(folder)["init_from"]["weights"] == config(copies / "child")["init_from"]["weights"]


def test_a_run_from_scratch_is_no_child_and_nothing_is_not_resumed(copies: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"contains a run of another config .*init_from"):
        minerva.train("ppo", "Pendulum-v1", run_dir=copies / "second", init_from=copies / "parent", **QUICK)
    with pytest.raises(RunError, match="has no checkpoint to resume from"):
        make_trainer().train(BATCH, tmp_path / "new", **SETTINGS, resume=True)
    assert main(["train", "--resume", str(copies / "child"), "--init-from", str(copies / "parent")]) == 2


def test_a_trainer_that_is_stopped_and_goes_on_in_its_folder_is_not_its_own_parent(tmp_path: Path) -> None:
    trainer = make_trainer()
    assert not trainer.train(2 * BATCH, tmp_path, **SETTINGS, callbacks=[lambda *_: True]).finished
    assert trainer.train(2 * BATCH, tmp_path, **SETTINGS).finished
    assert "init_from" not in load_checkpoint(tmp_path / "checkpoints" / "ppo_last.safetensors").about


# --- the report -----------------------------------------------------------------------------------------------------


def test_a_report_keeps_children_apart_from_runs_from_scratch(family: Path) -> None:
    comparison = compare(read_records([family]))
    first, *others = comparison.entries
    assert first == "PPO"
    assert sorted(other.split(" at step")[0] for other in others) == [
        "PPO, fine-tuned from parent",
        "PPO, fine-tuned from the trainer of parent",
    ]
    assert [len(cell.records) for cell in comparison.cells] == [1, 1, 1]
    assert config(family / "child")["init_from"]["weights"] in page(comparison, "family")


def test_a_child_is_measured_against_no_peer_whose_budget_counts_every_step(copies: Path) -> None:
    for name in ("parent", "child"):
        changed = {**config(copies / name), "env": "Hopper-v5", "total_steps": 1_000_000}
        (copies / name / "config.yaml").write_text(yaml.safe_dump(changed))
    parent, child = compare(read_records([copies / "parent", copies / "child"])).cells
    assert parent.peer is not None
    assert child.peer is None


def test_lambdas_are_seeds_of_one_task_only_if_they_were_trained_together(tmp_path: Path) -> None:
    quick = {**QUICK, "total_steps": BATCH}
    minerva.train_seeds("ppo", lambda: Endless(3), [0, 1], run_dir=tmp_path / "together", **quick)
    for seed in (0, 1):
        minerva.train("ppo", lambda: Endless(3), seed=seed, run_dir=tmp_path / f"alone{seed}", **quick)
    cells = compare(read_records([tmp_path])).cells
    assert sorted([record.seed for record in cell.records] for cell in cells) == [[0], [0, 1], [1]]
    assert len({cell.task.env for cell in cells}) == 3


# --- killed early ---------------------------------------------------------------------------------------------------


class Failing(Endless):
    """Fails at the first step of the first evaluation."""

    def step(self, action: Any) -> Any:
        raise OSError("the cable is gone")


def test_a_policy_that_was_never_evaluated_can_be_printed(tmp_path: Path) -> None:
    with pytest.raises(EnvStepError, match="the cable is gone"):
        minerva.train("ppo", Failing, run_dir=tmp_path, **QUICK)
    assert repr(minerva.load_policy(tmp_path)) == "Policy(ppo on Failing, seed 0, step 0, not evaluated)"
