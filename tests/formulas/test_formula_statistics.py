"""Running moments in any chunking, and the linear schedule."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minerva.formulas.statistics import combine_moments, remaining_fraction


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    offset=st.floats(-100, 100),
    scale=st.floats(0.01, 100),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_chunking_gives_the_moments_of_everything(sizes: list[int], offset: float, scale: float, seed: int) -> None:
    rows = offset + scale * np.random.default_rng(seed).standard_normal((sum(sizes), 3))
    mean, var, count = (torch.zeros(3).double(), torch.ones(3).double(), torch.zeros(()).double())
    for chunk in np.split(rows, np.cumsum(sizes)[:-1]):
        mean, var, count = combine_moments(mean, var, count, torch.from_numpy(chunk))
    size = np.abs(rows).max()
    assert count.item() == len(rows)
    np.testing.assert_allclose(mean, rows.mean(0), rtol=0, atol=1e-12 * size)
    np.testing.assert_allclose(var, rows.var(0), rtol=0, atol=1e-12 * size**2)


def test_a_large_offset_does_not_spoil_the_variance() -> None:
    """A sum of squares would lose every digit here: 1e8 squared is 1e16."""
    rows = 1e8 + np.random.default_rng(0).standard_normal((1000, 1))
    mean, var, count = (torch.zeros(1).double(), torch.ones(1).double(), torch.zeros(()).double())
    for chunk in np.split(rows, 10):
        mean, var, count = combine_moments(mean, var, count, torch.from_numpy(chunk))
    assert var.item() == pytest.approx(rows.var(), rel=1e-7)


def test_the_first_moments_are_forgotten_at_count_zero() -> None:
    rows = torch.tensor([[1.0], [5.0]], dtype=torch.float64)
    nothing = torch.zeros((), dtype=torch.float64)
    mean, var, count = combine_moments(nothing + 99, nothing + 99, nothing, rows)
    assert (mean.item(), var.item(), count.item()) == (3.0, 4.0, 2.0)


@pytest.mark.parametrize("updates", [1, 2, 7, 1000])
def test_schedule_starts_at_one_and_would_be_zero_after_the_last_update(updates: int) -> None:
    fractions = [remaining_fraction(update, updates) for update in range(1, updates + 2)]
    assert fractions[0] == 1
    assert fractions[-1] == 0
    np.testing.assert_allclose(np.diff(fractions), -1 / updates, rtol=1e-9)
