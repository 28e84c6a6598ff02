"""The observation normaliser: learns only when told to, exactly, and is saved with the weights."""

import numpy as np
import pytest
import torch

from minerva.data.normalizers import RunningNorm, refreshed

DIM = 4


def observations(rows: int, seed: int = 0) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.tensor([1.0, 10.0, 1e-3, 0.0]) + torch.tensor([1.0, 5.0, 1e-4, 30.0]) * torch.randn(
        rows, DIM, generator=source
    )


def test_before_it_has_learned_it_changes_nothing_but_the_extremes() -> None:
    rows = observations(100).clamp(-9, 9)
    torch.testing.assert_close(RunningNorm(DIM)(rows), rows, rtol=1e-7, atol=0)


def test_forward_has_no_side_effect() -> None:
    norm = RunningNorm(DIM)
    norm.update_stats(observations(50))
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    first = norm(observations(50, seed=1))
    norm.train()(observations(7, seed=2))
    assert torch.equal(norm(observations(50, seed=1)), first)
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


def test_statistics_are_those_of_everything_seen() -> None:
    norm = RunningNorm(DIM)
    rows = observations(1000)
    for chunk in rows.split([1, 9, 400, 590]):
        norm.update_stats(chunk)
    everything = rows.double().numpy()
    np.testing.assert_allclose(norm.mean, everything.mean(0), rtol=1e-12)
    np.testing.assert_allclose(norm.var, everything.var(0), rtol=1e-12)
    assert norm.count.item() == 1000


def test_time_and_environments_are_both_rows() -> None:
    stacked, flat = RunningNorm(DIM), RunningNorm(DIM)
    stacked.update_stats(observations(60).reshape(12, 5, DIM))
    flat.update_stats(observations(60))
    assert all(torch.equal(value, flat.state_dict()[name]) for name, value in stacked.state_dict().items())


def test_what_it_learned_from_comes_out_with_zero_mean_and_unit_variance() -> None:
    norm = RunningNorm(DIM)
    rows = observations(1000).double()
    norm.update_stats(rows)
    scaled = norm(rows).numpy()
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-9)
    expected = everything = rows.numpy().var(0)
    np.testing.assert_allclose(scaled.var(0), expected / (everything + 1e-12), rtol=1e-9)


@pytest.mark.parametrize("clip", [1.0, 10.0])
def test_output_is_clipped(clip: float) -> None:
    norm = RunningNorm(2, clip=clip)
    norm.update_stats(torch.randn(100, 2, generator=torch.Generator().manual_seed(0)))
    assert norm(torch.tensor([[1e6, -1e6]])).tolist() == [[clip, -clip]]


def test_a_dimension_that_never_changes_stays_finite() -> None:
    norm = RunningNorm(1)
    norm.update_stats(torch.full((10, 1), 3.0))
    assert norm(torch.full((1, 1), 3.0)).item() == 0
    assert norm(torch.full((1, 1), 4.0)).item() == norm.clip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_statistics_are_float64_and_the_output_has_the_dtype_of_the_input(dtype: torch.dtype) -> None:
    norm = RunningNorm(DIM)
    norm.update_stats(observations(10).to(dtype))
    assert {name: buffer.dtype for name, buffer in norm.named_buffers()} == {
        "mean": torch.float64,
        "var": torch.float64,
        "count": torch.int64,
    }
    assert norm(observations(3).to(dtype)).dtype == dtype


def test_single_precision_inputs_far_from_zero_keep_their_digits() -> None:
    """In float32 arithmetic the variance of 10,000 ± 0.01 would be lost after a few thousand rows."""
    norm = RunningNorm(1)
    rows = (10_000 + 0.01 * torch.randn(5000, 1, generator=torch.Generator().manual_seed(0))).float()
    for chunk in rows.split(100):
        norm.update_stats(chunk)
    assert norm.var.item() == pytest.approx(rows.double().numpy().var(), rel=1e-6)


def test_state_dict_carries_the_statistics() -> None:
    learned, fresh = RunningNorm(DIM), RunningNorm(DIM)
    learned.update_stats(observations(100))
    fresh.load_state_dict(learned.state_dict())
    assert set(learned.state_dict()) == {"mean", "var", "count"}
    assert torch.equal(fresh(observations(5)), learned(observations(5)))
    fresh.update_stats(observations(3))
    learned.update_stats(observations(3))
    assert torch.equal(fresh.var, learned.var)


def test_it_has_no_parameters_and_no_gradient_reaches_the_statistics() -> None:
    norm = RunningNorm(DIM)
    norm.update_stats(observations(10).requires_grad_())
    assert not list(norm.parameters())
    assert not any(buffer.requires_grad for buffer in norm.buffers())


# --- statistics as tensors --------------------------------------------------------------------------------------


def test_refreshed_is_what_update_stats_writes_and_changes_nothing_itself() -> None:
    norm = RunningNorm(DIM)
    norm.update_stats(observations(30))
    statistics = dict(norm.named_buffers())
    before = {name: value.clone() for name, value in statistics.items()}
    found = refreshed(statistics, observations(50, seed=1))
    assert all(torch.equal(statistics[name], value) for name, value in before.items())
    norm.update_stats(observations(50, seed=1))
    assert found.keys() == {"mean", "var", "count"}
    assert all(torch.equal(value, found[name]) for name, value in norm.named_buffers())
    everything = torch.cat((observations(30), observations(50, seed=1))).double()
    torch.testing.assert_close(found["mean"], everything.mean(0), rtol=1e-12, atol=0)
    torch.testing.assert_close(found["var"], everything.var(0, correction=0), rtol=1e-12, atol=0)


def test_without_a_normaliser_there_is_nothing_to_refresh() -> None:
    assert refreshed({}, observations(5)) == {}


def test_stacked_statistics_are_each_their_own() -> None:
    rows = torch.stack([observations(20, seed=n) for n in range(3)])
    norms = [RunningNorm(DIM) for _ in range(3)]
    together = {
        name: torch.stack([dict(norm.named_buffers())[name] for norm in norms]) for name in norms[0].state_dict()
    }
    together = torch.func.vmap(refreshed)(together, rows)
    for n, norm in enumerate(norms):
        norm.update_stats(rows[n])
        for name, value in norm.named_buffers():
            torch.testing.assert_close(together[name][n], value, rtol=1e-12, atol=1e-12)


def test_after_a_move_the_statistics_live_in_the_other_tensors() -> None:
    norm = RunningNorm(DIM)
    norm.update_stats(observations(30))
    expected = norm(observations(5))
    old = dict(norm.named_buffers())
    both = {name: torch.stack((value, value)) for name, value in old.items()}
    norm.move({name: value[1] for name, value in both.items()})
    assert torch.equal(norm(observations(5)), expected)
    assert set(norm.state_dict()) == {"mean", "var", "count"}
    norm.update_stats(observations(50, seed=1))
    for name, value in norm.named_buffers():
        assert value.data_ptr() == both[name][1].data_ptr()
        assert torch.equal(both[name][0], old[name]), "the neighbour in the stack is not touched"
        assert not torch.equal(both[name][1], old[name])
    norm.load_state_dict(old)
    assert all(torch.equal(both[name][1], value) for name, value in old.items())


# --- rare features ----------------------------------------------------------------------------------------------


def contacts(rows: int = 2000) -> torch.Tensor:
    """One continuous feature, one that is 0 but for one row in a hundred, one constant, one flag of equal halves."""
    source = torch.Generator().manual_seed(3)
    touched = (torch.rand(rows, generator=source) < 0.01) * torch.randn(rows, generator=source)
    flag = (torch.rand(rows, generator=source) < 0.5).float()
    return torch.stack((torch.randn(rows, generator=source), touched, torch.full((rows,), 7.0), flag), 1)


def test_the_variance_of_a_rare_feature_is_that_of_its_active_rows() -> None:
    norm, rows = RunningNorm(DIM, active=True), contacts()
    for part in rows.split(500):
        norm.update_stats(part)
    scaled = norm(rows)
    assert norm.active[1] == pytest.approx(0.01, rel=0.3)
    assert scaled[rows[:, 1] != 0, 1].std() == pytest.approx(1.0, rel=0.05)
    assert scaled[:, 0].std() == pytest.approx(1.0, rel=0.01)
    assert 0.6 < scaled[:, 3].std() < 1.1
    assert scaled[:, 2].abs().max() < 1e-6


@pytest.mark.parametrize(("factor", "shift"), [(0.01, 0.0), (100.0, -3.0), (-1.0, 50.0)])
def test_a_change_of_units_changes_nothing(factor: float, shift: float) -> None:
    rows = contacts().double()
    mine, theirs = RunningNorm(DIM, active=True), RunningNorm(DIM, active=True)
    mine.update_stats(rows)
    theirs.update_stats(rows * factor + shift)
    expected = np.sign(factor) * mine(rows)
    torch.testing.assert_close(
        theirs(rows * factor + shift)[:, [0, 1, 3]], expected[:, [0, 1, 3]], rtol=1e-6, atol=1e-6
    )


# --- outliers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1e6, -1e12])
@pytest.mark.parametrize("batch", [0, 3])
def test_one_absurd_observation_hardly_changes_how_others_are_seen(value: float, batch: int) -> None:
    usual, hit = RunningNorm(DIM), RunningNorm(DIM)
    for n, rows in enumerate(observations(10_000).split(2_000)):
        usual.update_stats(rows)
        if n == batch:
            rows = rows.clone()
            rows[17, 1] = value
        hit.update_stats(rows)
    assert hit.var[1] < 1.5 * usual.var[1]
    assert abs(hit.mean[1] - usual.mean[1]) < 0.1 * usual.var[1].sqrt()
    others = [0, 2, 3]
    assert torch.equal(hit.var[others], usual.var[others])


def test_among_many_rows_an_outlier_is_found_and_all_others_count_in_full() -> None:
    rows = observations(50_000)
    usual, hit = RunningNorm(DIM), RunningNorm(DIM)
    usual.update_stats(rows)
    torch.testing.assert_close(usual.var, rows.double().var(0, correction=0), rtol=1e-9, atol=1e-12)
    for n in (17, 24):  # 24: among the rows that are sorted
        rows[n, 1] = 1e9
    hit.update_stats(rows)
    assert hit.var[1] < 1.1 * usual.var[1]


def test_what_is_no_outlier_counts_in_full() -> None:
    """A scale that grows a thousandfold, a sensor that speaks once in a hundred rows, a first change, tiny batches."""
    grown = torch.cat([10.0**n * observations(500, seed=n) for n in range(4)])
    late = torch.cat((torch.full((500, 1), 2.0), torch.randn(1_500, 1)))
    for rows, size in ((grown, 500), (contacts(), 500), (late, 300), (observations(60), 7)):
        norm = RunningNorm(rows.shape[1])
        for part in rows.split(size):
            norm.update_stats(part)
        torch.testing.assert_close(norm.var, rows.double().var(0, correction=0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("factor", "shift"), [(0.01, 0.0), (100.0, -3.0), (-1.0, 50.0)])
def test_an_outlier_is_one_in_any_units(factor: float, shift: float) -> None:
    rows = observations(400).double()
    rows[3, 0], rows[9, 2] = 1e5, -1e5
    first, second = (RunningNorm(DIM) for _ in range(2))
    first.update_stats(rows)
    second.update_stats(rows * factor + shift)
    torch.testing.assert_close(second.var, first.var * factor**2, rtol=1e-6, atol=0)
    torch.testing.assert_close(second.mean, first.mean * factor + shift, rtol=1e-6, atol=1e-9)
