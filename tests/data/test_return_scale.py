"""The scale of a replay's rewards: the largest discounted return, whatever the unit, and whatever one reward was."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minerva.compute.tree import stacked
from minerva.data.normalizers import HALF_LIFE, LARGEST_SCALED, VALUE_RANGE, ReturnScale

GAMMA, ENVS = 0.9, 3


def stream(steps: int = 60, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(seed)
    rewards = 1 + torch.randn(steps, ENVS, generator=source)
    return rewards, (torch.rand(steps, ENVS, generator=source) < 0.1).float()


def followed(rewards: torch.Tensor, ended: torch.Tensor) -> ReturnScale:
    scale = ReturnScale(ENVS, GAMMA)
    for reward, end in zip(rewards, ended, strict=True):
        scale.state = ReturnScale.followed(scale.state, reward, end)
    return scale


def test_the_largest_return_is_that_of_all_episodes() -> None:
    """Against sums over each episode; a reward never exceeds the largest return here but at the very start."""
    rewards, ended = stream()
    rewards[0] = 3.0
    rewards.clamp_(-3, 3)
    largest = 0.0
    for env in range(ENVS):
        ends = [0, *(np.flatnonzero(ended[:, env]) + 1), len(rewards)]
        for first, end in pairwise(ends):
            for t in range(first, end):
                sums = sum(GAMMA ** (t - k) * float(rewards[k, env]) for k in range(first, t + 1))
                largest = max(largest, abs(sums))
    found = float(followed(rewards, ended).state["largest"].max())
    assert found == pytest.approx(largest, rel=60 * ENVS / HALF_LIFE)


def test_a_return_that_is_not_reached_again_is_forgotten_by_half() -> None:
    scale = ReturnScale(ENVS, GAMMA)
    scale.state["largest"].fill_(8.0)
    for _ in range(HALF_LIFE // ENVS):
        scale.state["largest"].mul_(scale.state["kept"])
    assert scale.state["largest"].tolist() == pytest.approx([4.0] * ENVS, rel=1e-4)
    assert ReturnScale.followed(scale.state, torch.zeros(ENVS), torch.zeros(ENVS))["largest"].max() < 4.0


@pytest.mark.parametrize("unit", [0.001, 1000.0, -1.0])
def test_a_change_of_units_changes_nothing(unit: float) -> None:
    rewards, ended = stream()
    mine, theirs = followed(rewards, ended), followed(rewards.double() * unit, ended)
    scaled = ReturnScale.scaled(theirs.state, rewards.double() * unit) * np.sign(unit)
    torch.testing.assert_close(scaled, ReturnScale.scaled(mine.state, rewards.double()), rtol=1e-6, atol=0)


@given(st.integers(5, 59), st.sampled_from([1e6, -1e12, 1e30]))
def test_one_reward_out_of_all_proportion_at_most_doubles_the_scale(at: int, outlier: float) -> None:
    rewards, ended = stream()
    usual = followed(rewards, ended)
    rewards[at, 1] = outlier
    hit = followed(rewards, ended)
    assert hit.state["largest"].max() <= 2.1 * usual.state["largest"].max()
    scaled = ReturnScale.scaled(hit.state, rewards)
    assert scaled.abs().max() <= VALUE_RANGE


def test_rewards_that_become_a_thousand_times_larger_are_followed_within_twenty_steps() -> None:
    rewards, ended = stream(80)
    rewards[60:] *= 1000
    largest = followed(rewards, torch.zeros_like(ended)).state["largest"].max()
    assert largest > 1000 * float(rewards[:60].abs().max())


def test_no_reward_yet_is_no_scale() -> None:
    scale = followed(torch.zeros(5, ENVS), torch.zeros(5, ENVS))
    assert ReturnScale.scaled(scale.state, torch.zeros(4)).tolist() == [0.0] * 4
    scale.state = ReturnScale.followed(scale.state, torch.tensor([0.0, 0.2, 0.0]), torch.zeros(ENVS))
    assert float(ReturnScale.scaled(scale.state, torch.tensor(0.2))) == pytest.approx(LARGEST_SCALED)


def test_a_stack_follows_each_of_its_agents_as_alone() -> None:
    """Also where their discounts differ."""
    alone = [ReturnScale(ENVS, gamma).state for gamma in (0.9, 0.99)]
    stack = stacked(alone)
    source = torch.Generator().manual_seed(0)
    for _ in range(20):
        rewards = torch.randn(2, ENVS, generator=source)
        ended = (torch.rand(2, ENVS, generator=source) < 0.2).float()
        stack = ReturnScale.followed(stack, rewards, ended)
        alone = [ReturnScale.followed(*one) for one in zip(alone, rewards, ended, strict=True)]
    for name, values in stack.items():
        assert torch.equal(values, torch.stack([one[name] for one in alone]))
    assert not torch.equal(alone[0]["running"], alone[1]["running"])
