"""MPO learns: a bandit in seconds, Pendulum in minutes."""

from pathlib import Path

import pytest
import torch

import minerva
from minerva.trainers.mpo.agent import MPOAgent


def test_it_finds_the_best_action_of_each_state() -> None:
    """One step with reward -|a - f(s)|^2: the mean moves to f(s) and the spread shrinks around it."""
    agent = MPOAgent(
        1,
        2,
        policy_layer_sizes=(32, 32),
        critic_layer_sizes=(32, 32),
        q_lr=3e-3,
        policy_lr=3e-3,
        temperature_init=-2.0,
        temperature_lr=0.03,
        lambda_lr=0.03,
        init_log_alpha_mean=0.0,
        init_log_alpha_stddev=0.0,
        mstep_kl_epsilon=0.1,
        mstep_kl_epsilon_std=0.01,
        target_networks_update_period=10,
        max_grad_norm=10.0,
    )
    source = torch.Generator().manual_seed(0)
    for _ in range(400):
        obs = 2 * torch.rand(64, 1, generator=source) - 1
        actions = 2 * torch.rand(64, 2, generator=source) - 1
        best = torch.cat((0.5 * obs, -0.5 * obs), 1)
        rewards = -((actions - best) ** 2).sum(1, keepdim=True)
        agent.update({"obs": obs, "actions": actions, "rewards": rewards, "next_obs": obs, "dones": torch.ones(64, 1)})
    obs = torch.linspace(-0.8, 0.8, 9).unsqueeze(1)
    mean, log_std = agent.policy(obs)
    assert (mean - torch.cat((0.5 * obs, -0.5 * obs), 1)).abs().mean() < 0.1
    assert torch.exp(log_std).max() < 0.3


@pytest.mark.slow
@pytest.mark.compiles
def test_pendulum_swings_up_within_15_000_steps(tmp_path: Path) -> None:
    result = minerva.train(
        "mpo",
        "Pendulum-v1",
        preset="auto",
        total_steps=15_000,
        seed=1000,
        run_dir=tmp_path,
        settings={"quiet": True},
    )
    assert result.after > -200
