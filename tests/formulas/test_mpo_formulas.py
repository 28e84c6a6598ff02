"""n-step returns, Retrace and categorical values, each against another way to the same number."""

import itertools

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from minerva.formulas.categorical import cross_entropy, expected_value, gaussian_histogram, projection
from minerva.formulas.returns import (
    bootstrapped,
    discounted_returns,
    n_step_sums,
    retrace,
    td_errors,
    trace_coefficients,
)

GAMMA = torch.tensor(0.9, dtype=torch.float64)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def all_flags(steps: int) -> tuple[Tensor, Tensor]:
    """Every way in which `steps` rows can go on, terminate or be truncated.  [T, 3^T] twice"""
    cases = torch.tensor(list(itertools.product((0, 1, 2), repeat=steps)), dtype=torch.float64).T
    terminated = (cases == 1).double()
    return terminated, (cases > 0).double()


def n_step_target(rewards: Tensor, next_values: Tensor, terminated: Tensor, ended: Tensor) -> Tensor:
    total, discount, used = n_step_sums(rewards, ended, GAMMA)
    last = used.long().unsqueeze(0) - 1
    end, value = (torch.take_along_dim(rows, last, 0).squeeze(0) for rows in (terminated, next_values))
    return bootstrapped(total, discount, value, end)


# --- n-step -----------------------------------------------------------------------------------------------------


def test_the_n_step_target_is_the_discounted_return_of_its_first_row() -> None:
    terminated, ended = all_flags(4)
    rewards, next_values = normal(*ended.shape, seed=1), normal(*ended.shape, seed=2)
    expected = discounted_returns(rewards, next_values, terminated, ended, GAMMA)[0]
    torch.testing.assert_close(n_step_target(rewards, next_values, terminated, ended), expected)


def test_rows_after_an_end_do_not_count() -> None:
    ended = torch.tensor([[0.0], [1.0], [0.0], [0.0]])
    rewards = torch.tensor([[1.0], [10.0], [1e6], [1e6]])
    total, discount, used = n_step_sums(rewards, ended, torch.tensor(0.5))
    assert (total.item(), discount.item(), used.item()) == (6.0, 0.25, 2.0)


def test_one_row_gives_the_one_step_target() -> None:
    terminated, ended = all_flags(1)
    rewards, next_values = normal(1, 3, seed=1), normal(1, 3, seed=2)
    expected = [rewards[0, 0] + 0.9 * next_values[0, 0], rewards[0, 1], rewards[0, 2] + 0.9 * next_values[0, 2]]
    torch.testing.assert_close(n_step_target(rewards, next_values, terminated, ended), torch.stack(expected))


# --- Retrace ----------------------------------------------------------------------------------------------------


def sequence(steps: int = 4) -> dict[str, Tensor]:
    terminated, ended = all_flags(steps)
    shape = ended.shape
    return {
        "rewards": normal(*shape, seed=1),
        "values": normal(*shape, seed=2),
        "next_values": normal(*shape, seed=3),
        "traces": torch.sigmoid(normal(*shape, seed=4)),
        "terminated": terminated,
        "ended": ended,
    }


def retraced(rows: dict[str, Tensor]) -> Tensor:
    deltas = td_errors(rows["rewards"], rows["values"], rows["next_values"], rows["terminated"], GAMMA)
    return retrace(rows["values"], deltas, rows["traces"], rows["ended"], GAMMA)


def test_retrace_is_the_double_sum_of_its_definition() -> None:
    rows = sequence()
    expected = rows["values"][0].clone()
    for t in range(4):
        weight = GAMMA**t * torch.ones_like(expected)
        for k in range(1, t + 1):
            weight = weight * rows["traces"][k] * (1 - rows["ended"][k - 1])
        following = GAMMA * (1 - rows["terminated"][t]) * rows["next_values"][t]
        expected += weight * (rows["rewards"][t] + following - rows["values"][t])
    torch.testing.assert_close(retraced(rows), expected)


def test_retrace_without_traces_is_the_one_step_target() -> None:
    rows = sequence()
    traces = trace_coefficients(rows["values"], rows["traces"], torch.tensor(0.0, dtype=torch.float64))
    expected = bootstrapped(rows["rewards"][0], GAMMA, rows["next_values"][0], rows["terminated"][0])
    torch.testing.assert_close(retraced(rows | {"traces": traces}), expected)


def test_on_policy_with_full_traces_it_is_the_n_step_target_of_a_critic_that_ignores_the_action() -> None:
    rows = sequence()
    log_prob = normal(*rows["ended"].shape, seed=5)
    traces = trace_coefficients(log_prob, log_prob, torch.tensor(1.0, dtype=torch.float64))
    # the value of a row's state is the one that the row before found there, as long as the episode goes on
    values = torch.cat((rows["values"][:1], rows["next_values"][:-1]))
    expected = n_step_target(*(rows[name] for name in ("rewards", "next_values", "terminated", "ended")))
    torch.testing.assert_close(retraced(rows | {"traces": traces, "values": values}), expected)


def test_an_action_that_became_likelier_is_traced_no_more_than_fully() -> None:
    log_prob, behaviour = torch.tensor([-1.0, -3.0, 100.0]), torch.tensor([-2.0, -2.0, -100.0])
    traces = trace_coefficients(log_prob, behaviour, torch.tensor(0.5))
    torch.testing.assert_close(traces, torch.tensor([0.5, 0.5 * np.exp(-1.0), 0.5], dtype=torch.float32))


@pytest.mark.parametrize("t", range(4))
def test_a_time_limit_changes_nothing_but_the_bootstrap(t: int) -> None:
    """Cut at row t, the target is that of the first t + 1 rows alone, whatever the rows after it hold."""
    goes_on = torch.zeros(4, 1, dtype=torch.float64)
    cut = goes_on.clone()
    cut[t] = 1
    rows = {name: value[:, :1] for name, value in sequence().items()} | {"terminated": goes_on, "ended": cut}
    shorter = {name: value[: t + 1] for name, value in rows.items()} | {"ended": goes_on[: t + 1]}
    torch.testing.assert_close(retraced(rows), retraced(shorter))
    names = ("rewards", "next_values", "terminated", "ended")
    torch.testing.assert_close(
        n_step_target(*(rows[name] for name in names)), n_step_target(*(shorter[name] for name in names))
    )


# --- categorical values -----------------------------------------------------------------------------------------

ATOMS = torch.linspace(-3, 3, 7, dtype=torch.float64)


def c51(positions: np.ndarray, probabilities: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """The projection as algorithm 1 of Bellemare et al. (2017) writes it: lower and upper neighbour."""
    result = np.zeros((len(positions), len(atoms)))
    for row, (xs, ps) in enumerate(zip(positions, probabilities, strict=True)):
        for x, p in zip(xs, ps, strict=True):
            b = (min(max(x, atoms[0]), atoms[-1]) - atoms[0]) / (atoms[1] - atoms[0])
            low, high = int(np.floor(b)), int(np.ceil(b))
            if low == high:
                result[row, low] += p
            else:
                result[row, low] += p * (high - b)
                result[row, high] += p * (b - low)
    return result


def test_projection_shares_out_to_the_neighbours() -> None:
    positions = torch.cat((3 * normal(40, 5, seed=1), torch.tensor([[-3.0, 3.0, 0.0, -50.0, 50.0]])))
    probabilities = torch.softmax(normal(41, 5, seed=2), -1)
    expected = c51(positions.numpy(), probabilities.numpy(), ATOMS.numpy())
    np.testing.assert_allclose(projection(positions, probabilities, ATOMS), expected, atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.floats(-3, 3))
def test_a_number_inside_the_atoms_keeps_its_value_as_a_distribution(value: float) -> None:
    number = torch.tensor([[value]], dtype=torch.float64)
    code = projection(number, torch.ones_like(number), ATOMS)
    assert (code.sum().item(), (code * ATOMS).sum().item()) == pytest.approx((1.0, value), abs=1e-9)
    assert (code > 0).sum() <= 2


def test_a_histogram_is_the_gaussians_mass_between_the_edges() -> None:
    targets = torch.tensor([-0.3, 2.9, 40.0], dtype=torch.float64)
    edges = np.linspace(-3.5, 3.5, 8)
    cdf = scipy.stats.norm.cdf(edges, loc=targets.clamp(-3, 3).numpy()[:, None], scale=0.75)
    expected = np.diff(cdf, axis=1) / (cdf[:, -1:] - cdf[:, :1])
    np.testing.assert_allclose(gaussian_histogram(targets, ATOMS), expected, atol=1e-12)


def test_a_histogram_away_from_the_ends_has_the_targets_mean() -> None:
    atoms = torch.linspace(-10, 10, 41, dtype=torch.float64)
    targets = torch.linspace(-6, 6, 25, dtype=torch.float64)
    histogram = gaussian_histogram(targets, atoms)
    torch.testing.assert_close(expected_value(torch.log(histogram), atoms), targets, atol=1e-3, rtol=0)


def test_cross_entropys_slope_is_prediction_minus_target() -> None:
    logits, target = normal(5, 7, seed=1).requires_grad_(), torch.softmax(normal(5, 7, seed=2), -1)
    (slope,) = torch.autograd.grad(cross_entropy(logits, target), logits)
    torch.testing.assert_close(slope, (torch.softmax(logits.detach(), -1) - target) / 5)
