"""Checkpoints of Minerva 0.1, format 2, as that version wrote them: policies load, runs are not resumed."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import all_but_first_slow

import minerva
from minerva.errors import CheckpointError, ConfigError
from minerva.policy import load_policy
from minerva.runs.checkpoint import load_checkpoint
from minerva.trainers.registry import agent_class

CHECKPOINTS = Path(__file__).parents[1] / "vectors" / "format_2"

OBSERVATIONS = np.array([[1.0, 0.0, 0.5], [0.3, -0.9, -2.0], [-1.0, 0.1, 7.0]], dtype=np.float32)
ACTIONS = {
    "mpo": [0.5623407363891602, -0.7801294326782227, 1.1934285163879395],
    "ppo": [0.1647179126739502, 0.14313840866088867, -0.08342409133911133],
    "vmpo": [-0.22969818115234375, -0.15964114665985107, -0.06404387950897217],
}
"""The torques that version 0.1 chose for the observations."""


def hyperparameters(algo: str) -> dict[str, Any]:
    """Those of the checkpoint, under their present names."""
    return agent_class(algo).stored_settings(load_checkpoint(CHECKPOINTS / f"{algo}.pt").about["hyperparameters"])


@pytest.mark.parametrize("algo", ACTIONS)
def test_a_policy_acts_as_it_did(algo: str) -> None:
    actions = load_policy(CHECKPOINTS / f"{algo}.pt").act(OBSERVATIONS)
    np.testing.assert_allclose(actions[:, 0], ACTIONS[algo], rtol=1e-6)


@pytest.mark.parametrize(("centered", "loss"), [(True, "centered"), (False, "likelihood")])
def test_the_flag_of_the_m_steps_loss_is_read(centered: bool, loss: str) -> None:
    present = agent_class("vmpo").stored_settings({"centered_weights": centered})
    assert present["m_step_loss"] == loss
    assert "centered_weights" not in present
    with pytest.raises(ConfigError, match="Here it is called m_step_loss"):
        minerva.train("vmpo", "Pendulum-v1", total_steps=1, centered_weights=centered)


@pytest.mark.parametrize("algo", all_but_first_slow(ACTIONS))
def test_a_policy_is_fine_tuned(algo: str, tmp_path: Path) -> None:
    path = CHECKPOINTS / f"{algo}.pt"
    settings = {**hyperparameters(algo), "settings": {"quiet": True, "eval_episodes": 1}}
    how: dict[str, Any] = {"preset": "source", "total_steps": 256, "run_dir": tmp_path, "init_from": path}
    result = minerva.train(algo, "Pendulum-v1", **how, **settings)
    assert result.step == 256


@pytest.mark.parametrize("algo", all_but_first_slow(ACTIONS))
def test_a_run_is_refused_with_what_can_be_done(algo: str, tmp_path: Path) -> None:
    path = CHECKPOINTS / f"{algo}.pt"
    about = load_checkpoint(path).about
    settings = {"quiet": True, "eval_every": 256, "eval_episodes": 1}
    same = {"total_steps": 256, "run_dir": tmp_path, "seed": 3, "engine": about["engine"], "settings": settings}
    minerva.train(algo, "Pendulum-v1", **same, **hyperparameters(algo))
    for replay in CHECKPOINTS.glob(f"{algo}_replay_*.pt"):
        shutil.copy(replay, tmp_path / "checkpoints")
    for name in ("last", "previous"):
        shutil.copy(path, tmp_path / "checkpoints" / f"{algo}_{name}.pt")
    with pytest.raises(CheckpointError, match=r"earlier Minerva.*init_from"):
        minerva.train(algo, "Pendulum-v1", **same, **hyperparameters(algo))
