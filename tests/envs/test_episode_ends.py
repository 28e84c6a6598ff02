"""What an episode's end does to values and advantages, from the environment to what PPO learns from.

Expectations are written down from the script of a Counter: values of observations that must occur, and sums over one
episode at a time. Nothing of them is read from the rollout.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from collecting import collect, make_rollout
from probe_envs import Counter, Ending, Makes, Row, rows
from torch import Tensor

from minerva.envs.engines.registry import make_engine
from minerva.formulas.returns import td_errors
from minerva.loop.stacking import Stack
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.config import PPOConfig

GAMMA, LAMBDA = 0.9, 0.8
STEPS = 6
FLAGS = [(False, False), (True, False), (False, True), (True, True)]
SCRIPTS = {
    "cut at the last row": [[Ending(3, True, False), Ending(3, False, True)]],
    "terminated at the last row": [[Ending(6, True, False)]],
    "cut one row before the last": [[Ending(5, False, True)]],
    "episodes of length 1, terminated": [[Ending(1, True, False)]],
    "episodes of length 1, cut": [[Ending(1, False, True)]],
    "no episode ends": [[Ending(1_000, True, False)]],
    "terminated and cut at once": [[Ending(2, True, True)]],
    "several, at different times": [
        [Ending(4, True, False)],
        [Ending(1, False, True), Ending(2, True, True), Ending(3, False, True)],
        [Ending(1_000, False, True)],
        [Ending(6, False, True)],
    ],
}


def make_agent(**hyperparameters: Any) -> PPOAgent:
    """An agent whose values differ widely from one observation of a Counter to the next."""
    config = PPOConfig.from_dict({"gamma": GAMMA, "gae_lambda": LAMBDA, **hyperparameters})
    agent = PPOAgent(3, 1, config=config, seed=1)
    with torch.no_grad():
        agent.network.critic[-1].weight.mul_(30)  # type: ignore[operator, union-attr]
    return agent


def collected(agent: PPOAgent, script: list[list[Ending]]) -> dict[str, Tensor]:
    envs = make_engine(Makes(lambda number: Counter(number, script[number])), len(script))
    envs.reset([0] * len(script))
    rollout = make_rollout(STEPS, len(script), 3, 1)
    collect(envs, Stack([agent], "off", 0), [rollout])
    return rollout.tensors()


def evaluated(agent: PPOAgent, script: list[list[Ending]]) -> dict[str, np.ndarray]:
    """What PPO computes of the rollout.  name -> [T, E]"""
    with torch.no_grad():
        batch = agent.evaluated(agent.state, collected(agent, script), agent.hyper(1.0))
    return {name: batch[name].reshape(STEPS, len(script)).numpy() for name in ("advantages", "returns", "old_values")}


def value_of(agent: PPOAgent) -> Callable[[tuple[float, ...]], float]:
    return lambda obs: agent.network.get_value(torch.tensor(obs, dtype=torch.float32)).item()


def episodes_of(written: list[Row]) -> list[list[Row]]:
    """The rows cut after every end; the last episode may go on after the rollout."""
    ends = [t + 1 for t, row in enumerate(written) if row.terminated or row.truncated]
    bounds = sorted({0, *ends, len(written)})
    return [written[first:end] for first, end in pairwise(bounds)]


def advantages_on_paper(episode: list[Row], value: Callable[[tuple[float, ...]], float]) -> list[float]:
    """Σ_l (γλ)^l δ_{t+l} over the rows of one episode, as a double sum."""
    following = [0.0 if row.terminated else value(row.next_obs) for row in episode]
    deltas = [row.reward + GAMMA * v - value(row.obs) for row, v in zip(episode, following, strict=True)]
    decay = GAMMA * LAMBDA
    return [sum(decay**k * delta for k, delta in enumerate(deltas[t:])) for t in range(len(deltas))]


def returns_on_paper(episode: list[Row], value: Callable[[tuple[float, ...]], float]) -> list[float]:
    """Σ_k γ^k r_{t+k} to the episode's last row, and γ^n V of where it was left unless it terminated."""
    beyond = 0.0 if episode[-1].terminated else value(episode[-1].next_obs)
    rewards = [row.reward for row in episode]
    return [
        sum(GAMMA**k * reward for k, reward in enumerate(rewards[t:])) + GAMMA ** (len(rewards) - t) * beyond
        for t in range(len(rewards))
    ]


@pytest.mark.parametrize(("terminated", "truncated"), FLAGS)
def test_only_a_termination_is_worth_nothing_afterwards(terminated: bool, truncated: bool) -> None:
    """V of an observation is 1000 * episode + its step: the reset's would be 1000 where the final one's is 6."""
    script = [[Ending(STEPS, terminated, truncated)]] if terminated or truncated else [[Ending(1_000, True, False)]]
    rollout = collected(make_agent(), script)
    values, next_values = (rollout[name] @ torch.tensor([0.0, 1_000.0, 1.0]) for name in ("obs", "next_obs"))
    deltas = td_errors(rollout["rewards"], values, next_values, rollout["terminated"], torch.tensor(0.5))
    before_the_end = [(t + 1) + 0.5 * (t + 1) - t for t in range(STEPS - 1)]
    at_the_end = 6 + (0.0 if terminated else 0.5 * 6) - 5
    np.testing.assert_allclose(deltas[:, 0], [*before_the_end, at_the_end], rtol=1e-6)


@pytest.mark.parametrize(("terminated", "truncated"), FLAGS[1:])
def test_the_row_before_a_new_episode_bootstraps_from_its_own_end(terminated: bool, truncated: bool) -> None:
    agent = make_agent(gae_lambda=0.0)
    advantages = evaluated(agent, [[Ending(2, terminated, truncated)]])["advantages"][:, 0]
    value = value_of(agent)
    final, reset = value((0, 0, 2)), value((0, 1, 0))
    assert abs(final - reset) > 1, "a wrong bootstrap must show"
    expected = 2.0 + (0.0 if terminated else GAMMA * final) - value((0, 0, 1))
    assert advantages[1] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_advantages_are_those_of_each_episode_alone(script: list[list[Ending]]) -> None:
    agent = make_agent()
    batch, value = evaluated(agent, script), value_of(agent)
    for number, endings in enumerate(script):
        written = rows(number, endings, STEPS)
        advantages = np.concatenate([advantages_on_paper(episode, value) for episode in episodes_of(written)])
        values = [value(row.obs) for row in written]
        np.testing.assert_allclose(batch["old_values"][:, number], values, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(batch["advantages"][:, number], advantages, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(batch["returns"][:, number], advantages + values, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_discounted_returns_are_those_of_each_episode_alone(script: list[list[Ending]]) -> None:
    agent = make_agent(advantage_estimator="returns")
    batch, value = evaluated(agent, script), value_of(agent)
    for number, endings in enumerate(script):
        written = rows(number, endings, STEPS)
        returns = np.concatenate([returns_on_paper(episode, value) for episode in episodes_of(written)])
        np.testing.assert_allclose(batch["returns"][:, number], returns, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(
            batch["advantages"][:, number], returns - [value(row.obs) for row in written], rtol=1e-5, atol=1e-4
        )


def test_what_comes_after_an_end_leaves_the_rows_before_it_unmoved() -> None:
    """Two environments with the same first episode, cut at row 3, and different ones afterwards."""
    same = Ending(4, False, True)
    script = [[same, Ending(1, True, False)], [same, Ending(1_000, False, True)]]
    rollout = collected(make_agent(), script)
    rollout["obs"][..., 0] = 0.0  # the number of the environment, which would tell them apart
    rollout["next_obs"][..., 0] = 0.0
    agent = make_agent()
    with torch.no_grad():
        batch = agent.evaluated(agent.state, rollout, agent.hyper(1.0))
    first, second = batch["advantages"].reshape(STEPS, 2).unbind(1)
    assert torch.equal(first[:4], second[:4])
    assert not torch.isclose(first[4], second[4])
