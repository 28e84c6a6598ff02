"""Pink noise: its variance, its power and its memory, against closed forms; and what trainers do with it."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from minerva.compute import tree
from minerva.compute.tree import copy_
from minerva.data.pink_noise import PinkNoise
from minerva.formulas.pink_noise import DECAYS
from minerva.loop.stacking import Stack, joined_state
from minerva.trainers.registry import trainer_class

STEPS, ENVS, ACTIONS = 4096, 64, 2


def made(envs: int = ENVS) -> PinkNoise:
    return PinkNoise(envs, ACTIONS, torch.device("cpu"), torch.float32)


def drawn(noise: PinkNoise, white: Tensor) -> Tensor:
    """Return the noise that white noise [T, K, E, D] leads to.  -> [T, E, D]"""
    steps = []
    for part in white:
        after, step = PinkNoise.followed(noise.state, part)
        copy_(noise.state, after)
        steps.append(step)
    return torch.stack(steps)


def white(noise: PinkNoise, steps: int, seed: int = 0) -> Tensor:
    shape = noise.state["components"].shape
    return torch.randn((steps, *shape), generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def series() -> Tensor:
    noise = made()
    return drawn(noise, white(noise, STEPS)).flatten(1).double()


def test_its_variance_is_one_from_the_first_step_on() -> None:
    noise = made(8_000)
    first, second, third = drawn(noise, white(noise, 3)).flatten(1)
    assert all(abs(float(step.mean())) < 0.04 for step in (first, third))  # four standard errors: 0.032
    torch.testing.assert_close(torch.stack([first.var(), second.var(), third.var()]), torch.ones(3), atol=0.05, rtol=0)


def test_its_memory_is_the_mean_of_its_components_memories(series: Tensor) -> None:
    """The autocorrelation of an autoregressive process is its decay to the power of the distance."""
    for distance in (1, 4, 16, 64):
        found = (series[distance:] * series[:-distance]).mean()
        expected = np.mean([decay**distance for decay in DECAYS])
        assert float(found) == pytest.approx(expected, abs=0.06)


def test_its_power_falls_as_one_over_the_frequency(series: Tensor) -> None:
    """Power times frequency differs by half over periods from 6 to 800 steps; of white noise it would by 70 times."""
    power = torch.fft.rfft(series, dim=0).abs().square().mean(1)[1:]
    frequency = torch.arange(1, len(power) + 1) / STEPS
    bands = [(1 / 800, 1 / 400), (1 / 100, 1 / 50), (1 / 25, 1 / 12), (1 / 12, 1 / 6)]
    level = [float((power * frequency)[(frequency > low) & (frequency <= high)].mean()) for low, high in bands]
    assert max(level) / min(level) < 1.6


def test_environments_and_actions_are_independent(series: Tensor) -> None:
    between = np.corrcoef(series.T.numpy())
    np.fill_diagonal(between, 0.0)
    assert np.abs(between).mean() < 0.2  # the slowest component has but 16 independent values in this time
    assert abs(between.mean()) < 0.01


def test_a_saved_state_goes_on_as_if_it_had_not_been_saved() -> None:
    whole, first, second = made(), made(), made()
    steps = white(whole, 10)
    expected = drawn(whole, steps)
    drawn(first, steps[:4])
    second.load_state_dict(tree.mapped(torch.clone, first.state_dict()))
    assert torch.equal(drawn(second, steps[4:]), expected[4:])


def test_joined_noises_are_each_as_they_are_alone_and_their_states_follow() -> None:
    alone, together = [made(3), made(3)], [made(3), made(3)]
    steps = torch.stack([white(alone[n], 5, seed=n) for n in range(2)], 1)
    expected = torch.stack([drawn(one, steps[:, n]) for n, one in enumerate(alone)], 1)
    state, found = joined_state(together), []
    for part in steps:
        after, step = PinkNoise.followed(state, part)
        copy_(state, after)
        found.append(step)
    torch.testing.assert_close(torch.stack(found), expected)
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(one.state_dict(), other.state_dict())


# --- trainers ---------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {
    "policy_layer_sizes": [8],
    "critic_layer_sizes": [8],
    "batch_size": 8,
    "replay_size": 100,
    "num_envs": 64,
}


def noise_of(algo: str, env: str, seeds: int, steps: int, at_once: bool, **changed: Any) -> Tensor:
    """Return the noise of so many steps in 64 environments, drawn one by one or at once.  -> [(S,) T, E, D]"""
    settings = {**SMALL, **changed}
    trainers = [trainer_class(algo)(env, seed=seed, device="cpu", **settings) for seed in range(seeds)]
    stack = Stack([trainer.agent for trainer in trainers], "off", 10)
    draw = trainers[0]._noise(trainers, stack)
    return draw((steps, 64)) if at_once else torch.stack([draw((64,)) for _ in range(steps)], -3)


def memory(noise: Tensor) -> float:
    """Return the correlation of one step's noise with the next one's.  [T, E, D]"""
    return float((noise[1:] * noise[:-1]).mean())


@pytest.mark.parametrize(
    ("algo", "changed", "pink"),
    [
        ("mpo", {}, True),
        ("mpo", {"exploration_noise": "white"}, False),
        ("mpo", {"use_retrace": True, "n_step": 1}, False),
        ("sac", {}, False),
    ],
)
def test_mpos_default_alone_acts_with_it(algo: str, changed: dict[str, Any], pink: bool) -> None:
    found = memory(noise_of(algo, "Pendulum-v1", 1, 1_000, at_once=True, **changed))
    assert found == pytest.approx(np.mean(DECAYS) if pink else 0.0, abs=0.1)


def test_choices_have_noise_of_their_own() -> None:
    trainer = trainer_class("mpo")("CartPole-v1", seed=0, device="cpu", **SMALL)
    assert trainer.pink_noise is None
    assert noise_of("mpo", "CartPole-v1", 1, 3, at_once=True).shape == (3, 64, 2)


@pytest.mark.parametrize("seeds", [1, 2])
def test_steps_that_are_drawn_at_once_have_the_same_memory(seeds: int) -> None:
    """As remote workers get them."""
    found = noise_of("mpo", "Pendulum-v1", seeds, 300, at_once=True)
    each = found.unsqueeze(0) if seeds == 1 else found
    one_by_one = noise_of("mpo", "Pendulum-v1", seeds, 300, at_once=False)
    assert found.shape == one_by_one.shape
    for part in each:
        assert memory(part) == pytest.approx(np.mean(DECAYS), abs=0.15)
