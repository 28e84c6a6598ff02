"""Reward normalisation against the variance computed from all discounted returns at once."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from probe_envs import Counter, Ending, Makes, keep_what_is_learned, rows

from minerva.data.normalizers import RewardNorm
from minerva.trainers.ppo.trainer import PPOTrainer

GAMMA = 0.9


def discounted_since_start(rewards: np.ndarray, ended: np.ndarray, gamma: float) -> np.ndarray:
    """Σ_k γ^(t-k) r_k over the rows k ≤ t of t's own episode, as a double loop.  [T, E]"""
    sums = np.zeros_like(rewards)
    for env in range(rewards.shape[1]):
        starts = [0, *(np.flatnonzero(ended[:, env]) + 1), len(rewards)]
        for first, end in pairwise(starts):
            for t in range(first, end):
                sums[t, env] = sum(gamma ** (t - k) * rewards[k, env] for k in range(first, t + 1))
    return sums


def normalized_on_paper(rewards: np.ndarray, ended: np.ndarray, gamma: float, rollout: int) -> np.ndarray:
    """All rollouts normalised, each with the variance of every discounted return up to its own last row."""
    sums = discounted_since_start(rewards, ended, gamma)
    scaled = [
        rewards[first : first + rollout] / np.sqrt(sums[: first + rollout].var() + 1e-12)
        for first in range(0, len(rewards), rollout)
    ]
    return np.clip(np.concatenate(scaled), -10, 10)


def stream(seed: int = 0, steps: int = 60, envs: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    source = np.random.default_rng(seed)
    rewards = source.normal(2.0, 5.0, (steps, envs))
    ended = source.random((steps, envs)) < 0.15
    return torch.from_numpy(rewards), torch.from_numpy(ended.astype(np.float64))


@pytest.mark.parametrize("rollout", [1, 4, 15, 60])
@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_rewards_are_divided_by_the_deviation_of_all_returns_so_far(rollout: int, gamma: float) -> None:
    rewards, ended = stream()
    norm = RewardNorm(3, gamma)
    scaled = torch.cat([norm(*part) for part in zip(rewards.split(rollout), ended.split(rollout), strict=True)])
    expected = normalized_on_paper(rewards.numpy(), ended.numpy(), gamma, rollout)
    np.testing.assert_allclose(scaled.numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize(("reward", "clipped"), [(1.0, 10.0), (-1.0, -10.0), (0.0, 0.0)])
def test_scaled_rewards_are_clipped_at_ten(reward: float, clipped: float) -> None:
    """Episodes of one equal step: the returns do not vary, and nothing else bounds the quotient."""
    norm = RewardNorm(2, GAMMA)
    np.testing.assert_array_equal(norm(torch.full((4, 2), reward), torch.ones(4, 2)), np.full((4, 2), clipped))


def test_sign_and_order_of_rewards_are_kept() -> None:
    rewards, ended = stream()
    scaled = RewardNorm(3, GAMMA)(rewards, ended)
    assert torch.equal(torch.sign(scaled), torch.sign(rewards)), "rewards are scaled, never shifted"
    np.testing.assert_allclose((scaled / rewards).std(), 0, atol=1e-12)


def test_float32_rewards_come_back_as_float32() -> None:
    rewards, ended = stream()
    assert RewardNorm(3, GAMMA)(rewards.float(), ended.float()).dtype == torch.float32


def test_a_saved_normaliser_goes_on_as_the_one_that_never_stopped() -> None:
    rewards, ended = stream()
    whole, saved = RewardNorm(3, GAMMA), RewardNorm(3, GAMMA)
    for norm in (whole, saved):
        norm(rewards[:20], ended[:20])
    loaded = RewardNorm(3, GAMMA)
    loaded.load_state_dict(saved.state_dict())
    saved(rewards[20:40] * 100, ended[20:40])  # what the first does from here on must not reach the second
    assert torch.equal(loaded(rewards[20:], ended[20:]), whole(rewards[20:], ended[20:]))


def test_the_normalisers_state_is_part_of_the_trainers() -> None:
    first, second = (PPOTrainer("Pendulum-v1", rollout_steps=32, num_envs=3) for _ in range(2))
    assert first.reward_norm is not None
    assert second.reward_norm is not None
    first.reward_norm(*stream())
    second.load_state_dict(first.state_dict())
    for name, value in first.reward_norm.state_dict().items():
        assert torch.equal(second.reward_norm.state_dict()[name], value)


@pytest.mark.parametrize(
    ("env", "wanted", "normalized"),
    [
        ("Pendulum-v1", {}, True),
        ("dm_control/pendulum/swingup", {}, True),
        ("dm_control/pendulum/swingup", {"normalize_rewards": False}, False),
        ("Pendulum-v1", {"normalize_rewards": None}, True),
        ("dm_control/pendulum/swingup", {"normalize_rewards": None}, False),
    ],
)
def test_rewards_of_every_task_are_normalised_unless_asked_otherwise(env: str, wanted: Any, normalized: bool) -> None:
    trainer = PPOTrainer(env, rollout_steps=64, **wanted)
    assert (trainer.reward_norm is not None) is normalized


def test_training_learns_from_scaled_rewards_and_reports_raw_ones(tmp_path: Any) -> None:
    """Both kinds of ending restart the running return, and episodes are told in the environment's own rewards."""
    scripts = [[Ending(3, True, False), Ending(4, False, True)], [Ending(5, False, True), Ending(2, True, True)]]
    counters = Makes(lambda number: Counter(number % 2, scripts[number % 2]))
    trainer = PPOTrainer(counters, rollout_steps=8, num_envs=2, minibatch_size=16, update_epochs=1, gamma=GAMMA)
    learned = keep_what_is_learned(trainer.agent, "rewards")
    told: list[tuple[float, float]] = []
    trainer.train(
        48,
        tmp_path,
        quiet=True,
        callbacks=[lambda step, row, _: told.append((row["train/episode_return"], row["train/episode_length"]))],
    )
    written = [rows(number, scripts[number], 24) for number in range(2)]
    rewards = np.array([[row.reward for row in single] for single in written]).T
    ended = np.array([[row.terminated or row.truncated for row in single] for single in written]).T
    np.testing.assert_allclose(torch.cat(learned), normalized_on_paper(rewards, ended, GAMMA, 8), rtol=1e-5)
    assert told == [_mean_of_episodes(rewards, ended, first, first + 8) for first in (0, 8, 16)]


def _mean_of_episodes(rewards: np.ndarray, ended: np.ndarray, first: int, end: int) -> tuple[float, float]:
    """Mean return and length of the episodes whose last row lies in [first, end)."""
    returns, lengths = [], []
    for env in range(rewards.shape[1]):
        for start, stop in pairwise([0, *(np.flatnonzero(ended[:, env]) + 1)]):
            if first < stop <= end:
                returns.append(rewards[start:stop, env].sum())
                lengths.append(stop - start)
    return float(np.mean(returns)), float(np.mean(lengths))


@pytest.mark.parametrize("outlier", [1e6, -1e12])
@pytest.mark.parametrize("at", [3, 70], ids=["in the first rollout", "later"])
def test_one_absurd_reward_does_not_set_the_scale(at: int, outlier: float) -> None:
    rewards, ended = stream(steps=400)
    scales = []
    for one in (rewards.clone(), rewards.clone()):
        if scales:
            one[at, 1] = outlier
        norm = RewardNorm(3, GAMMA)
        for first in range(0, 400, 20):
            scaled = norm(one[first : first + 20], ended[first : first + 20])
        scales.append(float(norm.state["var"] ** 0.5))
        assert scaled.abs().max() <= 10
    assert scales[1] < 5 * scales[0]


def test_rewards_that_become_a_million_times_larger_are_followed() -> None:
    rewards, ended = stream(steps=400)
    norm = RewardNorm(3, GAMMA)
    norm(rewards[:200], ended[:200])
    scaled = norm(1e6 * rewards[200:], ended[200:])
    assert 0.01 < scaled.std() < 3
