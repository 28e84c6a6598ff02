"""A run that goes on: more steps, other rates, and the record of what changed."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_runs import BATCH, PPO, SETTINGS, STEPS, evaluation_steps, learned, same, snapshot, training_steps

from minerva.errors import RunError
from minerva.runs.metrics import read_rows
from minerva.trainers.ppo.trainer import PPOTrainer


def train(folder: Path, total: int, callbacks: Any = (), extend: bool = False, **changed: Any) -> Any:
    trainer = PPOTrainer("Pendulum-v1", engine="gymnasium", **{**PPO, "anneal_lr": False, **changed})
    return trainer.train(total, folder, **SETTINGS, resume=extend, callbacks=callbacks)


def saved(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((folder / "config.yaml").read_text())
    return config


def test_an_extended_run_is_the_longer_run(tmp_path: Path) -> None:
    train(tmp_path / "long", STEPS)
    assert train(tmp_path / "short", 2 * BATCH).finished
    assert train(tmp_path / "short", STEPS, extend=True).finished
    assert same(learned(tmp_path / "short"), learned(tmp_path / "long"))
    assert training_steps(tmp_path / "short") == training_steps(tmp_path / "long")
    assert evaluation_steps(tmp_path / "short") == evaluation_steps(tmp_path / "long")
    config = saved(tmp_path / "short")
    assert config["total_steps"] == STEPS
    assert config["history"] == [{"step": 2 * BATCH, "changed": [f"total_steps: {2 * BATCH} -> {STEPS}"]}]
    assert train(tmp_path / "short", STEPS).finished, "the extended config is the run's from now on"


def test_another_rate_holds_from_the_extension_on_and_wins_over_a_callbacks(tmp_path: Path) -> None:
    def lower(step: int, metrics: Any, trainer: Any) -> None:
        trainer.change(policy_lr=1e-5)

    train(tmp_path, 2 * BATCH, callbacks=[lower])
    train(tmp_path, STEPS, extend=True, policy_lr=1e-4, gamma=0.9)
    rates = [
        row["charts/learning_rate"] for row in read_rows(tmp_path / "metrics.jsonl") if "charts/learning_rate" in row
    ]
    assert rates == pytest.approx([3e-4, 1e-5, 1e-4, 1e-4])
    assert [change.split(":")[0] for change in saved(tmp_path)["history"][0]["changed"]] == [
        "hyperparameters.gamma",
        "hyperparameters.policy_lr",
        "total_steps",
    ]
    assert saved(tmp_path)["hyperparameters"]["policy_lr"] == 1e-4


@pytest.mark.parametrize(
    ("total", "extend", "changed", "reason"),
    [
        (STEPS, False, {}, "another config"),
        (STEPS, True, {"policy_layer_sizes": (16,)}, "another config .*policy_layer_sizes"),
        (2 * BATCH, True, {"gamma": 0.5}, "step 256 and finished.*give larger --total-steps"),
        (BATCH, True, {}, "step 256 and finished.*give larger --total-steps"),
    ],
)
def test_what_is_no_extension_is_refused_and_nothing_is_touched(
    total: int, extend: bool, changed: Any, reason: str, tmp_path: Path
) -> None:
    train(tmp_path, 2 * BATCH)
    before = snapshot(tmp_path)
    with pytest.raises(RunError, match=reason):
        train(tmp_path, total, extend=extend, **changed)
    assert snapshot(tmp_path) == before
