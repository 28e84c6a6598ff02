"""The algorithms on a linear-quadratic regulator, against the controller that is known to be the best."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from lqr import HORIZON, LQR, A, B, Q, R, least_costs, lqr_gap, riccati
from numpy.testing import assert_allclose
from scipy.linalg import solve_discrete_are
from source_settings import source
from torch import nn

from minerva.evaluation import Evaluator
from minerva.loop.trainer import Trainer
from minerva.trainers.mpo.trainer import MPOTrainer
from minerva.trainers.ppo.trainer import PPOTrainer
from minerva.trainers.vmpo.trainer import VMPOTrainer

VMPO = {
    **source("vmpo"),
    "policy_layer_sizes": (32,),
    "value_layer_sizes": (64, 64),
    "ppo_like_backbone": True,
    "squash": False,
    "initial_log_std": -1.0,
    "num_envs": 32,
    "rollout_steps": HORIZON,
    "gamma": 0.95,
    "advantage_estimator": "gae",
    "temperature": "solved",
    "m_steps": 16,
    "epsilon_mu": 0.1,
    "epsilon_sigma": 1e-3,
    "alpha_update": "multiplicative",
    "alpha_lr": 0.1,
    "policy_lr": 1.5e-3,
    "value_lr": 3e-3,
    "anneal_lr": True,
}

MPO = {
    **source("mpo"),
    "policy_layer_sizes": (32, 32),
    "critic_layer_sizes": (64, 64),
    "num_envs": 4,
    "batch_size": 128,
    "action_samples": 8,
    "updates_per_step": 0.5,
    "replay_size": 10_000,  # short, to forget the time when states ran away
    "gamma": 0.95,
    "temperature": "solved",
    "policy_lr": 4e-4,
    "q_lr": 1e-3,
    "lambda_lr": 0.01,
    "init_log_alpha_mean": 1.0,
    "init_log_alpha_stddev": 100.0,
    "max_grad_norm": 40.0,
    # the best gain is the same for any noise: large, fixed noise shows the critic what actions are worth
    "initial_std": 0.3,
    "mstep_kl_epsilon_std": 1e-6,
    "warmup": "policy",
}

PPO = {
    **source("ppo"),
    "policy_layer_sizes": (32,),
    "num_envs": 32,
    "rollout_steps": HORIZON,
    "minibatch_size": 256,
    "policy_lr": 1.5e-3,
    "initial_log_std": -1.0,
    "gamma": 0.95,
    "clip_vloss": False,
}


def controlled(gain_at: Callable[[int], np.ndarray], episodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Costs of u = -K_t x in Minerva's own evaluation, and the least costs from the same starts."""
    evaluator = Evaluator(LQR, episodes, seed=0)
    high = evaluator.envs.action.bounds[1]
    steps = iter(range(10**6))
    evaluation = evaluator(
        lambda obs: torch.from_numpy(-obs.double().numpy() @ gain_at(next(steps) % HORIZON).T / high)
    )
    evaluator.close()
    assert evaluation.lengths == [HORIZON] * episodes
    return -np.array(evaluation.returns), least_costs(evaluator.seeds)


def test_the_riccati_controller_reaches_the_riccati_cost_in_the_environment() -> None:
    """So bounds, units, rewards and the closed form agree. Single precision observations leave seven digits."""
    _, gains = riccati()
    costs, least = controlled(lambda t: gains[t], episodes=100)
    assert_allclose(costs, least, rtol=1e-5)


def test_no_disturbed_controller_costs_less() -> None:
    _, gains = riccati()
    draw = np.random.default_rng(0)
    for _ in range(5):
        change = 0.2 * draw.standard_normal(gains[0].shape)
        costs, least = controlled(lambda t, change=change: gains[t] + change, episodes=20)  # type: ignore[misc]
        assert (costs > least).all()


def test_least_squares_over_all_controls_at_once_finds_the_same_cost() -> None:
    """Without dynamic programming: states are linear in the controls, so the episode's cost is one square norm."""
    start = np.array([1.0, -2.0, 0.5, 1.5])
    state, of_controls = start, np.zeros((A.shape[0], HORIZON * B.shape[1]))  # x_t = state + of_controls @ controls
    rows, targets = [np.kron(np.eye(HORIZON), np.sqrt(R))], [np.zeros(HORIZON * B.shape[1])]
    for t in range(HORIZON):
        rows.append(np.sqrt(Q) @ of_controls)
        targets.append(-np.sqrt(Q) @ state)
        state, of_controls = A @ state, A @ of_controls
        of_controls[:, t * B.shape[1] : (t + 1) * B.shape[1]] += B
    _, least, *_ = np.linalg.lstsq(np.concatenate(rows), np.concatenate(targets), rcond=None)
    assert least.item() == pytest.approx(start @ riccati()[0] @ start, rel=1e-12)


def test_fifty_steps_are_long_enough_for_a_policy_that_does_not_see_the_time() -> None:
    """The first gain is that of the endless problem, and keeping it to the end costs next to nothing more."""
    endless = solve_discrete_are(A, B, Q, R)
    gain = np.linalg.solve(R + B.T @ endless @ B, B.T @ endless @ A)
    assert_allclose(riccati()[1][0], gain, atol=1e-4)
    costs, least = controlled(lambda t: gain, episodes=100)
    assert 0 < costs.mean() / least.mean() - 1 < 1e-3


def test_an_untrained_policy_is_far_from_the_best() -> None:
    trainer = PPOTrainer(LQR, seed=0, **PPO)
    assert lqr_gap(trainer) > 1


def trained(trainer: Trainer, total_steps: int, folder: Path) -> float:
    """Train and return by which part it costs more than the best controller."""
    trainer.train(total_steps, out_dir=folder, quiet=True, eval_episodes=1)
    return lqr_gap(trainer)


@pytest.mark.slow
@pytest.mark.compiles
def test_ppo_comes_within_ten_percent_of_the_least_cost(tmp_path: Path) -> None:
    assert 0 < trained(PPOTrainer(LQR, seed=0, **PPO), 200_000, tmp_path) < 0.1


@pytest.mark.slow
@pytest.mark.compiles
def test_vmpo_comes_within_ten_percent_of_the_least_cost(tmp_path: Path) -> None:
    assert 0 < trained(VMPOTrainer(LQR, seed=0, **VMPO), 200_000, tmp_path) < 0.1


@pytest.mark.slow
@pytest.mark.compiles
def test_mpo_comes_within_ten_percent_of_the_least_cost(tmp_path: Path) -> None:
    """From no control at all: the means of an untrained policy span all actions, and drive the states out of bounds."""
    trainer = MPOTrainer(LQR, seed=0, **MPO)
    for policy in (trainer.agent.policy, trainer.agent.policy_target):
        nn.init.zeros_(policy.policy_mean.weight)
    assert lqr_gap(trainer) > 1
    assert 0 < trained(trainer, 32_000, tmp_path) < 0.1
