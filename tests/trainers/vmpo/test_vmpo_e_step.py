"""The E-step: what must hold of its weights, its selection and its temperature whatever the advantages are."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from source_settings import source
from torch import Tensor

from minerva.compute.optim import Optimizer
from minerva.compute.tree import Tree
from minerva.formulas.lagrange import unconstrained
from minerva.trainers.vmpo.config import VMPOConfig
from minerva.trainers.vmpo.improve import dual, dual_loss, e_step
from minerva.trainers.vmpo.losses import selection_size

ADAM = Optimizer("adam", 0.9)


def run(
    advantages: Any, restarting: Any = None, importance: Any = None, eta: float = 1.0, **config: Any
) -> tuple[Tree, np.ndarray, np.ndarray, dict[str, float]]:
    """(temperature, weights, selected, metrics) in float64."""
    temperature, target, metrics = run_step(advantages, restarting, importance, eta, **config)
    numbers = {name: float(value) for name, value in metrics.items()}
    return temperature, target["weights"].numpy(), target["selected"].numpy(), numbers


def run_target(*args: Any, **config: Any) -> dict[str, Tensor]:
    """The target of the M-step."""
    return run_step(*args, **config)[1]


def run_step(
    advantages: Any, restarting: Any = None, importance: Any = None, eta: float = 1.0, **config: Any
) -> tuple[Tree, dict[str, Tensor], dict[str, Tensor]]:
    """(temperature, target, metrics) in float64."""
    values = torch.as_tensor(advantages, dtype=torch.float64)
    ones = torch.ones_like(values)
    batch = {
        "advantages": values,
        "restarting_weights": ones if restarting is None else torch.as_tensor(restarting, dtype=torch.float64),
        "importance_weights": ones if importance is None else torch.as_tensor(importance, dtype=torch.float64),
    }
    settings = VMPOConfig(**{**source("vmpo"), **config})
    names = ("epsilon_eta", "temperature_lr")
    hyper = {name: torch.tensor(getattr(settings, name), dtype=torch.float64) for name in names}
    start = dual(torch.tensor(unconstrained(eta), dtype=torch.float64), ADAM)
    return e_step(start, batch, hyper, settings, ADAM)


def noise(rows: int = 40, seed: int = 0) -> Tensor:
    return torch.randn(rows, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def kl_to_uniform(weights: np.ndarray, selected: np.ndarray) -> float:
    """KL(psi || uniform on the selection), from its definition."""
    inside = weights[selected > 0]
    return float(np.sum(inside * np.log(inside * len(inside), where=inside > 0, out=np.zeros_like(inside))))


rows = st.lists(st.floats(-5, 5), min_size=2, max_size=40)


@settings(max_examples=60, deadline=None)
@given(rows, st.sampled_from([0.25, 0.5, 0.9, 1.0]), st.sampled_from(["gradient", "solved"]), st.data())
def test_weights_add_up_to_one_over_exactly_the_selected_rows(
    advantages: list[float], fraction: float, temperature: str, data: st.DataObject
) -> None:
    if selection_size(fraction, len(advantages)) < 1:
        fraction = 1.0
    restarting = data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=len(advantages), max_size=len(advantages)))
    _, weights, selected, metrics = run(advantages, restarting, topk_fraction=fraction, temperature=temperature)
    valid = np.array(restarting) > 0 if any(restarting) else np.ones(len(advantages), bool)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    assert (weights >= 0).all()
    assert (weights[selected == 0] == 0).all()
    assert (selected[~valid] == 0).all()
    assert selected.sum() == min(selection_size(fraction, len(advantages)), valid.sum())
    assert np.array(advantages)[selected > 0].min() >= np.array(advantages)[valid & (selected == 0)].max(
        initial=-np.inf
    )
    assert metrics["vmpo/selected_frac"] == pytest.approx(selected.mean())
    assert 1 - 1e-9 <= metrics["vmpo/ess"] <= selected.sum() + 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_slope_of_the_dual_is_the_bound_minus_the_kl_of_the_weights(seed: int) -> None:
    eta, bound, step = 0.7, 0.3, 1e-5
    _, weights, selected, _ = run(noise(seed=seed), eta=eta, epsilon_eta=bound)
    losses = [
        run(noise(seed=seed), eta=value, epsilon_eta=bound)[3]["vmpo/dual_loss"] for value in (eta - step, eta + step)
    ]
    assert (losses[1] - losses[0]) / (2 * step) == pytest.approx(bound - kl_to_uniform(weights, selected), abs=1e-6)


@pytest.mark.parametrize("bound", [0.01, 0.1, 1.0])
def test_solved_temperature_puts_the_weights_on_their_bound(bound: float) -> None:
    _, weights, selected, _ = run(noise(200), temperature="solved", epsilon_eta=bound)
    assert kl_to_uniform(weights, selected) == pytest.approx(bound, rel=1e-6)


def test_solved_temperature_is_the_minimum_of_the_dual_also_with_importance_weights() -> None:
    importance = noise(seed=5).abs() + 0.5
    _, _, _, metrics = run(noise(), importance=importance, temperature="solved", epsilon_eta=0.2)
    found = minimize_scalar(
        lambda eta: run(noise(), importance=importance, eta=eta, epsilon_eta=0.2)[3]["vmpo/dual_loss"],
        bounds=(1e-2, 20),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert metrics["vmpo/temperature_raw"] == pytest.approx(found.x, rel=1e-4)


def test_gradient_steps_settle_at_the_solved_temperature() -> None:
    bound = torch.tensor(0.2, dtype=torch.float64)
    rows = {
        "advantages": noise(),
        "restarting": torch.ones(40),
        "importance": torch.ones(40),
        "counted": torch.ones(40),
    }
    state = dual(torch.tensor(unconstrained(3.0), dtype=torch.float64), ADAM)
    for _ in range(600):
        parameter = state["parameter"].clone().requires_grad_()
        (grads,) = torch.autograd.grad(dual_loss(parameter, rows, bound)[0], parameter)
        moved, moments = ADAM.step(state["parameter"], grads, state["moments"], torch.tensor(0.05))
        state = {"parameter": moved, "moments": moments}
    _, _, _, metrics = run(noise(), temperature="solved", epsilon_eta=0.2, topk_fraction=1.0)
    assert torch.nn.functional.softplus(state["parameter"]).item() == pytest.approx(
        metrics["vmpo/temperature_raw"], rel=1e-4
    )


@pytest.mark.parametrize("temperature", ["gradient", "solved"])
def test_equal_advantages_count_equally_where_no_temperature_reaches_the_bound(temperature: str) -> None:
    _, weights, selected, metrics = run(torch.full((10,), 2.5), temperature=temperature)
    assert selected.tolist() == [1.0] * 5 + [0.0] * 5
    np.testing.assert_allclose(weights[:5], 0.2, rtol=1e-9)
    assert np.isfinite(list(metrics.values())).all()


def test_weights_use_the_temperature_before_a_step_and_after_a_solution() -> None:
    advantages = noise()
    _, stepped, _, _ = run(advantages, eta=0.8, temperature_lr=0.5, topk_fraction=1.0)
    np.testing.assert_allclose(stepped, torch.softmax(advantages / 0.8, 0), rtol=1e-6)
    _, solved, _, metrics = run(advantages, eta=0.8, temperature="solved", topk_fraction=1.0)
    np.testing.assert_allclose(solved, torch.softmax(advantages / metrics["vmpo/temperature_raw"], 0), rtol=1e-6)


def test_exactly_k_rows_with_ties_to_the_lower_index() -> None:
    _, _, selected, metrics = run([1.0, 3.0, 2.0, 2.0, 2.0, 0.0], topk_fraction=0.5)
    assert selected.tolist() == [0, 1, 1, 1, 0, 0]
    assert metrics["vmpo/threshold"] == pytest.approx(2.0)


def test_no_selection_uses_every_valid_row_and_the_lowest_score_as_threshold() -> None:
    _, weights, selected, metrics = run([1.0, -4.0, 2.0, 9.0], [1, 1, 1, 0], topk_fraction=1.0)
    assert selected.tolist() == [1, 1, 1, 0]
    assert weights[3] == 0
    assert metrics["vmpo/threshold"] == pytest.approx(-4.0)
    assert metrics["vmpo/restarting_frac"] == pytest.approx(0.25)


def test_fewer_valid_rows_than_k_are_all_selected() -> None:
    _, _, selected, _ = run([5.0, 4.0, 3.0, 2.0, 1.0, 0.0], [0, 0, 0, 0, 1, 1], topk_fraction=0.5)
    assert selected.tolist() == [0, 0, 0, 0, 1, 1]


def test_without_a_valid_row_every_row_counts_with_weight_one() -> None:
    _, weights, selected, _ = run(noise(), torch.zeros(40))
    _, usual, usual_selected, _ = run(noise())
    np.testing.assert_array_equal(selected, usual_selected)
    np.testing.assert_array_equal(weights, usual)


@pytest.mark.parametrize("value", [-1e6, 0.0, 1e6])
def test_advantages_of_restarting_rows_change_nothing(value: float) -> None:
    advantages, restarting = noise(), torch.ones(40)
    restarting[::5] = 0
    temperature, weights, selected, _ = run(advantages, restarting)
    advantages[::5] = value
    perturbed = run(advantages, restarting)
    np.testing.assert_array_equal(perturbed[1], weights)
    np.testing.assert_array_equal(perturbed[2], selected)
    assert perturbed[0]["parameter"] == temperature["parameter"]


def test_importance_weights_multiply_and_their_scale_cancels() -> None:
    importance = noise(seed=3).abs() + 0.1
    _, plain, _, _ = run(noise())
    _, weighted, _, metrics = run(noise(), importance=importance)
    _, scaled, _, _ = run(noise(), importance=7 * importance)
    expected = plain * importance.numpy()
    np.testing.assert_allclose(weighted, expected / expected.sum(), rtol=1e-9)
    np.testing.assert_allclose(scaled, weighted, rtol=1e-9)
    assert metrics["vmpo/importance_mean"] == pytest.approx(importance.mean().item())


def test_a_constant_added_to_all_advantages_changes_no_weight() -> None:
    _, weights, _, _ = run(noise())
    _, moved, _, _ = run(noise() + 1234.5)
    np.testing.assert_allclose(moved, weights, rtol=1e-9)


@pytest.mark.parametrize(("scale", "restarting"), [(1e8, None), (-1e8, [0.0] + [1.0] * 39)])
def test_extreme_scores_stay_finite(scale: float, restarting: list[float] | None) -> None:
    """With all valid scores far below a restarting row's score of zero as well."""
    _, weights, _, metrics = run(noise().abs() * scale, restarting)
    assert weights.sum() == pytest.approx(1)
    assert np.isfinite(list(metrics.values())).all()


@pytest.mark.parametrize(
    ("fraction", "rows", "k"),
    [(0.5, 31, 15), (0.4, 29, 11), (1.0, 7, 7), (0.29, 100, 29), (0.57, 100, 57), (0.1, 9, 0)],
)
def test_selection_size_is_the_floor_of_the_share(fraction: float, rows: int, k: int) -> None:
    assert selection_size(fraction, rows) == k


def test_even_weights_are_those_of_equal_advantages() -> None:
    advantages, restarting, importance = noise(), torch.ones(40), noise(seed=5).abs() + 0.5
    restarting[::5] = 0
    _, weights, _, _ = run(torch.ones(40), restarting, importance, topk_fraction=1.0)
    even = run_target(advantages, restarting, importance, topk_fraction=1.0)["even"].numpy()
    np.testing.assert_allclose(even, weights, atol=1e-15)
    assert (even[::5] == 0).all()


@pytest.mark.parametrize("bound", [1e-6, 1e-4])
def test_centered_weights_become_the_advantages_themselves_as_the_bound_goes_to_zero(bound: float) -> None:
    """exp(A / eta) is 1 + A / eta for a large temperature, and the bound on its KL is then var(A) / (2 eta^2)."""
    advantages = noise(200)
    _, weights, _, metrics = run(advantages, topk_fraction=1.0, temperature="solved", epsilon_eta=bound)
    spread = advantages.std(correction=0).item()
    normal = ((advantages - advantages.mean()) / spread).numpy()
    assert metrics["vmpo/temperature_raw"] == pytest.approx(spread / np.sqrt(2 * bound), rel=3 * np.sqrt(bound))
    next_term = (normal**2).max() * bound / 200  # of exp's series, at its largest
    np.testing.assert_allclose(weights - 1 / 200, np.sqrt(2 * bound) * normal / 200, atol=1.5 * next_term)


def test_centering_takes_the_noise_of_a_gradient_and_leaves_its_expectation() -> None:
    """Weighed by exp(a / eta), actions drawn from N(0, 1) have the mean 1 / eta, which is the gradient of theirs."""
    eta, draws = 5.0, [noise(400, seed) for seed in range(200)]
    plain, centered = (
        np.array([(run(drawn, eta=eta, topk_fraction=1.0)[1] - even) @ drawn.numpy() for drawn in draws])
        for even in (0.0, 1 / 400)
    )
    for slopes in (plain, centered):
        assert slopes.mean() == pytest.approx(1 / eta, abs=4 * slopes.std() / np.sqrt(len(slopes)))
    assert centered.var() < 0.2 * plain.var()
