"""SAC's formulas in cases whose result is known, and its update on a task with a known soft optimum."""

import math

import pytest
import torch

from minerva.trainers.sac.agent import SACAgent
from minerva.trainers.sac.losses import averaged, critic_loss, policy_loss, soft_values, temperature_loss

pytestmark = pytest.mark.usefixtures("double_precision")


def test_without_entropy_the_soft_value_is_the_smaller_value() -> None:
    first, second, log_prob = torch.randn(3, 100)
    assert torch.equal(soft_values(first, second, log_prob, torch.tensor(0.0)), torch.minimum(first, second))


def test_the_soft_value_of_uniform_actions_gains_the_logarithm_of_their_volume() -> None:
    """With Q = 0, V = alpha H: of uniform actions in [-1, 1]^3 the entropy is 3 log 2."""
    log_prob = torch.full((5,), -3 * math.log(2))
    values = soft_values(torch.zeros(5), torch.zeros(5), log_prob, torch.tensor(0.7))
    torch.testing.assert_close(values, torch.full((5,), 0.7 * 3 * math.log(2)))


def test_each_critic_is_drawn_to_the_target_by_its_own_error() -> None:
    first, second = torch.randn(2, 50).requires_grad_().unbind()
    targets = torch.randn(50)
    by_first, by_second = torch.autograd.grad(critic_loss(first, second, targets), (first, second))
    torch.testing.assert_close(by_first, (first - targets) / 50)
    torch.testing.assert_close(by_second, (second - targets) / 50)


def test_the_policy_follows_the_smaller_critic_alone() -> None:
    first, second = torch.tensor([1.0, 5.0], requires_grad=True), torch.tensor([2.0, 3.0], requires_grad=True)
    loss = policy_loss(first, second, torch.zeros(2), torch.tensor(0.3))
    by_first, by_second = torch.autograd.grad(loss, (first, second))
    assert by_first.tolist() == [-0.5, 0.0]
    assert by_second.tolist() == [0.0, -0.5]


@pytest.mark.parametrize(("entropy", "direction"), [(0.5, 1), (-2.0, -1)])
def test_the_temperature_falls_above_the_target_entropy_and_rises_below(entropy: float, direction: int) -> None:
    temperature = torch.tensor(0.4, requires_grad=True)
    loss = temperature_loss(temperature, torch.full((7,), -entropy), torch.tensor(-1.0))
    (slope,) = torch.autograd.grad(loss, temperature)
    assert slope.item() == pytest.approx(entropy + 1.0)
    assert slope.sign() == direction


def test_targets_close_the_gap_geometrically() -> None:
    online, target = torch.randn(2, 20)
    moved = target
    for _ in range(30):
        moved = averaged(moved, online, torch.tensor(0.1))
    torch.testing.assert_close(moved - online, 0.9**30 * (target - online))


def test_terminated_rows_learn_their_reward() -> None:
    """Nothing follows a terminated row, so its value is its reward, whatever policy and temperature are."""
    agent = SACAgent(2, 1, policy_layer_sizes=(16,), critic_layer_sizes=(32,), q_lr=0.01, seed=0)
    obs = torch.randn(64, 2)
    actions = torch.rand(64, 1) * 2 - 1
    rewards = obs.sum(1, keepdim=True) + 3 * actions
    batch = {
        "obs": obs,
        "actions": actions,
        "rewards": rewards,
        "next_obs": torch.randn(64, 2),
        "dones": torch.ones(64, 1),
    }
    for _ in range(600):
        agent.update(batch)
    for value in agent.q(obs, actions):
        assert (value - rewards).abs().mean() < 0.1


@pytest.mark.slow
def test_the_temperature_holds_the_entropy_at_its_target() -> None:
    """Paid for actions near 0, the policy is as wide as the temperature makes it."""
    settings = {"policy_lr": 0.01, "q_lr": 0.01, "temperature_lr": 0.01, "target_entropy": -0.5}
    agent = SACAgent(2, 2, policy_layer_sizes=(16,), critic_layer_sizes=(32,), seed=0, **settings)
    obs, actions = torch.randn(256, 2), torch.rand(256, 2) * 2 - 1
    batch = {"obs": obs, "actions": actions, "rewards": -5 * (actions**2).sum(1, keepdim=True), "next_obs": obs}
    gaps = [agent.update({**batch, "dones": torch.ones(256, 1)})["entropy_gap"] for _ in range(800)]
    assert abs(gaps[0]) > 0.5
    assert sum(gaps[-100:]) / 100 == pytest.approx(0.0, abs=0.1)
