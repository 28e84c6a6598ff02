"""The trainer: runs, checkpoints, the loaded policy, what is refused, and what is warned about."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from source_settings import source

import minerva
from minerva.errors import ConfigError, TrainingError
from minerva.presets import presets
from minerva.runs.metrics import read_rows
from minerva.trainers.vmpo.agent import VMPOAgent
from minerva.trainers.vmpo.config import VMPOConfig
from minerva.trainers.vmpo.metrics import rules
from minerva.trainers.vmpo.trainer import VMPOTrainer

SMALL: dict[str, Any] = {
    **source("vmpo"),
    "policy_layer_sizes": (8, 8),
    "value_layer_sizes": (8,),
    "rollout_steps": 40,
    "num_envs": 2,
    "m_steps": 2,
}
SETTINGS: dict[str, Any] = {"eval_episodes": 1, "quiet": True, "compile": "off"}


def test_a_run_learns_from_every_rollout_and_its_policy_can_be_loaded(tmp_path: Path) -> None:
    trainer = VMPOTrainer("Pendulum-v1", seed=3, **SMALL)
    before = trainer.agent.flat.vector.clone()
    result = trainer.train(250, tmp_path / "run", **SETTINGS)
    assert result.finished
    assert result.step == 240
    rows = [row for row in read_rows(tmp_path / "run" / "metrics.jsonl") if "loss/total" in row]
    assert [row["step"] for row in rows] == [80, 160, 240]
    assert not torch.equal(trainer.agent.flat.vector, before)
    assert trainer.agent.policy.obs_normalizer.count == 240

    policy = minerva.load_policy(tmp_path / "run", which="last")
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    np.testing.assert_allclose(policy.act(obs), 2 * trainer.greedy(obs), rtol=1e-6)  # Pendulum's torque is in [-2, 2]
    assert np.abs(policy.act(obs, deterministic=False)).max() <= 2


def test_trainer_takes_its_sizes_by_position_and_normalises_observations() -> None:
    trainer = VMPOTrainer("Pendulum-v1", 0, "cpu", (8,), (6,), 16, num_envs=1)
    assert trainer.config.rollout_steps == 16
    assert trainer.agent.policy.policy_encoder[0].out_features == 8
    assert trainer.agent.config.normalize_observations
    assert trainer.reward_norm is not None


@pytest.mark.parametrize("old_policy", ["rollout", "updates", "kl"])
def test_a_restored_agent_goes_on_bit_for_bit(tmp_path: Path, old_policy: str) -> None:
    settings = {**SMALL, "old_policy": old_policy, "temperature": "solved", "updates_per_rollout": 3}
    settings["minibatch_size"] = 30
    first = VMPOTrainer("Pendulum-v1", seed=0, **settings)
    first.train(160, tmp_path / "run", **SETTINGS)
    second = VMPOTrainer("Pendulum-v1", seed=9, **settings)
    second.load_state_dict(first.state_dict())
    obs = torch.randn(40, 2, 3, generator=torch.Generator().manual_seed(0))
    learned = []
    for trainer in (first, second):
        rollout = {
            "obs": obs,
            "actions_raw": trainer.agent.sample(obs),
            "next_obs": obs.roll(-1, 0),
            "rewards": obs[..., 0],
            "terminated": torch.zeros(40, 2),
            "ended": torch.zeros(40, 2),
        }
        learned.append((trainer.agent.learn(rollout), trainer.agent.sample(obs)))
    assert learned[0][0] == learned[1][0]
    torch.testing.assert_close(learned[0][1], learned[1][1], rtol=0, atol=0)


def test_a_run_starts_from_another_runs_policy(tmp_path: Path) -> None:
    settings = {**SMALL, "old_policy": "updates"}
    first = VMPOTrainer("Pendulum-v1", seed=0, **settings)
    first.train(80, tmp_path / "run", **SETTINGS)
    second = VMPOTrainer("Pendulum-v1", seed=1, **settings)
    second.init_from(tmp_path / "run" / "checkpoints" / "vmpo_last.safetensors")
    torch.testing.assert_close(second.agent.flat.vector, first.agent.flat.vector, rtol=0, atol=0)
    torch.testing.assert_close(second.agent.state["old"]["parameters"], first.agent.flat.vector, rtol=0, atol=0)


def test_a_non_finite_loss_ends_the_run_with_a_message(tmp_path: Path) -> None:
    wild = {**SMALL, "optimizer_type": "sgd", "policy_lr": 1e30, "value_lr": 1e30, "max_grad_norm": float("1e30")}
    with pytest.raises(TrainingError, match=r"loss/\w+ became (nan|-?inf) at step 80"):  # by its first update
        VMPOTrainer("Pendulum-v1", seed=0, engine="gymnasium", **wild).train(800, tmp_path / "run", **SETTINGS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topk_fraction": 0.001}, "selects nothing"),
        ({"minibatch_size": -1}, "minibatch_size"),
        ({"optimizer_type": "lion"}, "optimizer_type"),
        ({"old_policy": "never"}, "old_policy"),
        ({"alpha_rl": 0.1}, "alpha_lr"),
        ({"anneal_bounds": True, "anneal_lr": False}, "set anneal_lr"),
        ({"m_step_loss": "centered", "topk_fraction": 0.5}, "set topk_fraction to 1"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_made(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        VMPOTrainer("Pendulum-v1", **{**SMALL, **settings})


@pytest.mark.parametrize(("minibatch_size", "steps"), [(0, 1), (4096, 1), (5000, 1), (100, 41)])
def test_a_trainers_agent_knows_how_many_steps_its_rollouts_take(minibatch_size: int, steps: int) -> None:
    config = VMPOConfig(num_envs=64, rollout_steps=64, m_steps=3, updates_per_rollout=2, minibatch_size=minibatch_size)
    agent = VMPOAgent.from_config(3, 2, config)
    assert (agent.calls("acted"), agent.calls("m_step")) == (64, 2 * 3 * steps)


def test_from_config_acts_in_minus_one_to_one() -> None:
    agent = VMPOAgent.from_config(3, 2, VMPOConfig(policy_layer_sizes=(8,), value_layer_sizes=(8,)))
    assert agent.policy.action_low.tolist() == [-1, -1]
    assert agent.policy.action_high.tolist() == [1, 1]
    assert agent.config.normalize_observations


def test_every_preset_is_a_config_and_its_numbers_have_sources() -> None:
    known = presets("vmpo")
    assert {"Pendulum-v1", "HalfCheetah-v5", "dm_control/cheetah/run"} <= known.keys()
    for preset in known.values():
        VMPOConfig.from_dict({name: value for name, value in preset.values.items() if name != "total_steps"})
        assert all(preset.sources[name] for name in preset.values)


# --- health -----------------------------------------------------------------------------------------------------

WELL = {
    "kl/mean_sel": 0.008,
    "kl/std_sel": 0.006,
    "health/kl_mean": 0.8,
    "health/kl_std": 0.6,
    "vmpo/alpha_mu": 4.0,
    "vmpo/alpha_sigma": 0.3,
    "vmpo/ess": 800.0,
    "vmpo/selected_frac": 0.5,
    "vmpo/temperature_raw": 1.3,
    "train/entropy": 1.2,
}
ILL = {
    "idle trust region": {"kl/mean_sel": 0.0, "kl/std_sel": 0.0},
    "unmoved mean multiplier": {"vmpo/alpha_mu": 1.001, "health/kl_mean": 2.5},
    "unmoved std multiplier": {"vmpo/alpha_sigma": 0.999, "health/kl_std": 0.01},
    "mean over its bound": {"health/kl_mean": 15.0},
    "std over its bound": {"health/kl_std": 15.0},
    "temperature": {"vmpo/ess": 20.0},
    "few samples": {"vmpo/ess": 3.0},
    "collapsed std": {"train/entropy": 2 * (1.419 - 7.5)},
}


def broken(seen: dict[str, float], **settings: Any) -> dict[str, str]:
    """Name and message of every rule that these averages break."""
    found = [rule for rule in rules(VMPOConfig(**source("vmpo") | settings), act_dim=2) if rule.broken(seen)]
    return {rule.name: rule.message.format_map(seen) for rule in found}


def test_nothing_is_said_of_healthy_constraints() -> None:
    assert broken(WELL) == {}


@pytest.mark.parametrize("name", ILL)
def test_each_sign_of_ill_health_is_named_with_a_remedy(name: str) -> None:
    messages = broken({**WELL, **ILL[name]})
    assert name in messages
    options = [field for field in VMPOConfig.annotations() if field in messages[name]]
    assert options, messages[name]


def test_a_remedy_already_taken_is_not_proposed() -> None:
    over = broken({**WELL, **ILL["mean over its bound"]}, alpha_update="multiplicative")
    assert "alpha_update" not in over["mean over its bound"]
    assert broken({**WELL, **ILL["unmoved mean multiplier"]}, alpha_update="multiplicative") == {}


def test_a_solved_temperature_needs_no_settling() -> None:
    assert "temperature" not in broken({**WELL, **ILL["temperature"]}, temperature="solved")


def test_a_multiplier_that_never_moves_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {**SMALL, "rollout_steps": 8, "m_steps": 8, "policy_lr": 1e-2, "alpha_lr": 1e-6}
    with caplog.at_level("WARNING", logger="minerva"):
        VMPOTrainer("Pendulum-v1", seed=0, **settings).train(16 * 25, tmp_path / "run", eval_every=400, **SETTINGS)
    told = [message for message in caplog.messages if "vmpo/alpha_mu has not moved" in message]
    assert len(told) == 1
    assert "raise alpha_lr from 1e-06 tenfold" in told[0]
