"""Pink noise: its variance, its power over frequencies and its memory, against closed forms; and that it is resumed."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from minerva.compute import tree
from minerva.data.pink_noise import PinkNoise
from minerva.formulas.exploration import DECAYS

STEPS, ENVS, ACTIONS = 4096, 64, 2


def drawn(noise: PinkNoise, steps: int, seed: int = 0) -> Tensor:
    """Return so many steps of the noise.  -> [T, E, D]"""
    source = torch.Generator().manual_seed(seed)
    shape = noise.state["components"].shape
    return torch.stack([PinkNoise.next(noise.state, torch.randn(shape, generator=source)) for _ in range(steps)])


def made(envs: int = ENVS) -> PinkNoise:
    return PinkNoise(envs, ACTIONS, torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def series() -> Tensor:
    return drawn(made(), STEPS)


def test_its_variance_is_one_from_the_first_step_on() -> None:
    first = torch.stack([drawn(made(2000), 3, seed)[[0, 2]] for seed in range(4)], 1)
    assert first.mean((1, 2, 3)).abs().max() < 0.04  # four standard errors of 16,000 numbers: 0.032
    torch.testing.assert_close(first.var((1, 2, 3)), torch.ones(2), atol=0.05, rtol=0)


def test_its_memory_is_the_mean_of_its_components_memories(series: Tensor) -> None:
    """The autocorrelation of an autoregressive process is its decay to the power of the distance."""
    flat = series.flatten(1).double()
    for distance in (1, 4, 16, 64):
        found = (flat[distance:] * flat[:-distance]).mean()
        expected = np.mean([decay**distance for decay in DECAYS])
        assert float(found) == pytest.approx(expected, abs=0.06)


def test_its_power_falls_with_the_frequency(series: Tensor) -> None:
    """Power times frequency differs by less than half over periods from 6 to 800 steps; of white noise 130-fold."""
    flat = series.flatten(1).double()
    power = torch.fft.rfft(flat, dim=0).abs().square().mean(1)[1:]
    frequency = torch.arange(1, len(power) + 1) / STEPS
    bands = [(1 / 800, 1 / 400), (1 / 100, 1 / 50), (1 / 25, 1 / 12), (1 / 12, 1 / 6)]
    level = [float((power * frequency)[(frequency > low) & (frequency <= high)].mean()) for low, high in bands]
    assert max(level) / min(level) < 1.6


def test_environments_and_actions_are_independent(series: Tensor) -> None:
    flat = series.flatten(1).double()
    between = np.corrcoef(flat.T.numpy())
    np.fill_diagonal(between, 0.0)
    assert np.abs(between).mean() < 0.2  # the slowest component has but 16 independent values in this time
    assert abs(between.mean()) < 0.01


def test_a_saved_state_goes_on_as_if_it_had_not_been_saved() -> None:
    whole, first, second = made(), made(), made()
    expected = drawn(whole, 10)
    source = torch.Generator().manual_seed(0)
    shape = first.state["components"].shape
    for _ in range(4):
        PinkNoise.next(first.state, torch.randn(shape, generator=source))
    second.load_state_dict(tree.mapped(torch.clone, first.state_dict()))
    rest = torch.stack([PinkNoise.next(second.state, torch.randn(shape, generator=source)) for _ in range(6)])
    assert torch.equal(rest, expected[4:])


def test_stacked_noises_are_each_as_they_are_alone() -> None:
    alone = [made(3), made(3)]
    white = torch.randn(5, 2, *alone[0].state["components"].shape)
    expected = [torch.stack([PinkNoise.next(one.state, white[t, n]) for t in range(5)]) for n, one in enumerate(alone)]
    state = tree.stacked([made(3).state for _ in range(2)])
    together = torch.stack([PinkNoise.next(state, white[t]) for t in range(5)], 1)
    torch.testing.assert_close(together, torch.stack(expected))


def test_its_slowest_component_forgets_within_an_episode() -> None:
    assert math.prod([DECAYS[-1]] * 1000) < 0.03
