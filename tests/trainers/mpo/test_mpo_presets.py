"""MPO's presets are settings that MPO has."""

from typing import Any

import pytest

from minerva.presets import preset_for, presets
from minerva.trainers.mpo.config import MPOConfig

DM_CONTROL = "walker/walk walker/run cheetah/run cartpole/swingup reacher/hard hopper/stand pendulum/swingup"
TASKS = [f"dm_control/{task}" for task in f"{DM_CONTROL} ball_in_cup/catch".split()]
TASKS += [f"{name}-v5" for name in ("HalfCheetah", "Hopper", "Walker2d", "Ant", "Humanoid")]
PUBLISHED: dict[str, Any] = {
    "gamma": 0.99,
    "n_step": 4,
    "updates_per_step": 0.25,
    "batch_size": 256,
    "action_samples": 20,
}
PUBLISHED |= {"policy_lr": 3e-4, "q_lr": 3e-4, "temperature_lr": 0.01, "lambda_lr": 0.01, "anneal_lr": False}
PUBLISHED |= {"kl_epsilon": 0.1, "mstep_kl_epsilon": 0.01, "mstep_kl_epsilon_std": 1e-6, "initial_std": 0.5}
PUBLISHED |= {"exploration_noise": "white", "mirrored_samples": False, "init_log_alpha_stddev": 10.0}
PUBLISHED |= {"policy_layer_sizes": (256, 256, 256), "target_networks_update_period": 100, "acting_policy": "target"}
OWN: dict[str, dict[str, Any]] = {"Hopper-v5": {"gamma": 0.995, "anneal_lr": True}, "Humanoid-v5": {"anneal_lr": True}}


@pytest.mark.parametrize("name", sorted(presets("mpo")))
def test_every_preset_makes_a_config(name: str) -> None:
    preset = presets("mpo")[name]
    config = MPOConfig.from_dict({key: value for key, value in preset.values.items() if key != "total_steps"})
    assert config != MPOConfig() or "total_steps" in preset.values
    assert all(preset.sources.values())


@pytest.mark.parametrize("task", TASKS)
def test_tasks_have_the_published_settings_but_for_their_own(task: str) -> None:
    config = MPOConfig.from_dict(
        {k: v for k, v in preset_for("mpo", task, "auto").values.items() if k != "total_steps"}
    )
    expected = PUBLISHED | OWN.get(task, {})
    assert {name: getattr(config, name) for name in expected} == expected


def test_acme_and_tonic_differ_where_they_are_known_to() -> None:
    acme, tonic = (presets("mpo")[name].values for name in ("acme", "tonic"))
    assert (acme["init_log_alpha_stddev"], tonic["init_log_alpha_stddev"]) == (1000, 10)
    assert (acme["acting_policy"], tonic["acting_policy"]) == ("target", "online")
    assert (acme["mstep_kl_epsilon"], tonic["mstep_kl_epsilon"]) == (0.01, 0.001)
