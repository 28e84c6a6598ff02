"""An update: KLs and multipliers against torch.distributions and by their signs, the losses' gradients, the rates."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Independent, Normal, kl_divergence

from minerva.distributions import Gaussian
from minerva.errors import ConfigError
from minerva.formulas.lagrange import positive, unconstrained
from minerva.trainers.vmpo.agent import VMPOAgent
from minerva.trainers.vmpo.improve import minibatch
from minerva.trainers.vmpo.losses import centered_nll, controlled_nll, mean_over, trust_region_kls, weighted_nll

MakeAgent = Callable[..., VMPOAgent]
MakeBatch = Callable[..., dict[str, Tensor]]

METRICS = {
    "loss/total",
    "loss/value",
    "loss/policy",
    "loss/policy_weighted_nll",
    "loss/policy_kl_mean_pen",
    "loss/policy_kl_std_pen",
    "loss/alpha",
    "kl/mean",
    "kl/std",
    "kl/mean_sel",
    "kl/std_sel",
    "vmpo/alpha_mu",
    "vmpo/alpha_sigma",
    "vmpo/dual_loss",
    "vmpo/epsilon_eta",
    "vmpo/temperature_raw",
    "vmpo/adv_std_over_temperature",
    "vmpo/selected_frac",
    "vmpo/threshold",
    "vmpo/ess",
    "vmpo/restarting_frac",
    "vmpo/importance_mean",
    "train/entropy",
    "train/param_delta",
    "train/mean_abs_action",
    "adv/raw_mean",
    "adv/raw_std",
    "returns/raw_mean",
    "returns/raw_std",
    "value/explained_var",
    "value/pred_mean",
    "value/pred_std",
}

PLAIN = {"optimizer_type": "sgd", "sgd_momentum": 0.0, "max_grad_norm": float("inf")}
"""A step is the rate times the gradient."""


def test_divergences_are_those_of_torch_in_the_direction_old_to_new() -> None:
    torch.manual_seed(0)
    mean, log_std, old_mean, old_log_std = torch.randn(4, 9, 3, dtype=torch.float64)
    bounds = torch.ones(3, dtype=torch.float64)
    policy = Gaussian(-bounds, bounds)
    kls = policy.kls(policy.params(old_mean, old_log_std), policy.params(mean, log_std))
    rows = torch.eye(9, dtype=torch.float64)
    of_rows = torch.stack([trust_region_kls(kls, row, row.sum())[0] for row in rows])

    def gaussian(centre: Tensor, spread: Tensor) -> Independent:
        return Independent(Normal(centre, spread.exp()), 1)

    old = gaussian(old_mean, old_log_std)
    torch.testing.assert_close(of_rows[:, 0], kl_divergence(old, gaussian(mean, old_log_std)))
    torch.testing.assert_close(of_rows[:, 1], kl_divergence(old, gaussian(old_mean, log_std)))


def test_metrics_are_those_of_the_specification(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agent = make_agent()
    assert agent.update(make_batch(agent)).keys() == METRICS


def test_equal_policies_have_no_divergence_and_their_multipliers_fall(
    make_agent: MakeAgent, make_batch: MakeBatch
) -> None:
    agent = make_agent(alpha_lr=0.1, epsilon_mu=0.03, epsilon_sigma=0.005)
    metrics = agent.update(make_batch(agent))
    for name in ("kl/mean", "kl/std", "kl/mean_sel", "kl/std_sel"):
        assert metrics[name] == pytest.approx(0, abs=1e-7)
    assert metrics["vmpo/alpha_mu"] < 0.95
    assert metrics["vmpo/alpha_sigma"] < 0.95
    assert metrics["loss/alpha"] == pytest.approx(0.035, rel=1e-4)  # the bounds, both multipliers being 1


@pytest.mark.parametrize("alpha_update", ["gradient", "multiplicative"])
@pytest.mark.parametrize("name", ["mean", "std"])
def test_each_constraint_moves_its_own_multiplier(
    make_agent: MakeAgent, make_batch: MakeBatch, name: str, alpha_update: str
) -> None:
    """Rules out a mean multiplier computed from the spread's parameter."""
    agent = make_agent(alpha_lr=0.1, alpha_update=alpha_update)
    batch = make_batch(agent)
    batch["old_means" if name == "mean" else "old_log_stds"] += 0.5
    metrics = agent.update(batch)
    raised, lowered = ("alpha_mu", "alpha_sigma") if name == "mean" else ("alpha_sigma", "alpha_mu")
    assert metrics[f"vmpo/{raised}"] > 1.05
    assert metrics[f"vmpo/{lowered}"] < 0.95
    for constraint, alpha in (("mean", "alpha_mu"), ("std", "alpha_sigma")):
        paid = metrics[f"vmpo/{alpha}"] * metrics[f"kl/{constraint}_sel"]
        assert metrics[f"loss/policy_kl_{constraint}_pen"] == pytest.approx(paid, rel=1e-5, abs=1e-9)
    assert getattr(agent, raised) == pytest.approx(metrics[f"vmpo/{raised}"])


@pytest.mark.parametrize(("centered", "falls_to"), [(True, 0.1 * (1e-4 / 0.03) ** 0.5), (False, 1e-6)])
def test_a_policy_that_never_reaches_its_bound_keeps_a_penalty_with_centered_weights(
    make_agent: MakeAgent, make_batch: MakeBatch, centered: bool, falls_to: float
) -> None:
    settings = {
        "alpha_update": "multiplicative",
        "alpha_lr": 10.0,
        "m_steps": 1,
        "policy_lr": 1e-12,
        "epsilon_mu": 0.03,
        "epsilon_sigma": 0.03,
    }
    loss = "centered" if centered else "control_variate"
    agent = make_agent(m_step_loss=loss, topk_fraction=1.0, epsilon_eta=1e-4, **settings)
    metrics = [agent.update(make_batch(agent)) for _ in range(3)]
    for alpha in ("vmpo/alpha_mu", "vmpo/alpha_sigma"):
        falling = [max(falls_to, math.exp(-10 * n)) for n in (1, 2, 3)]
        assert [each[alpha] for each in metrics] == pytest.approx(falling, rel=1e-3)


def test_repulsion_is_that_of_the_likelihood_at_the_old_policy_and_fades_as_the_action_becomes_rare() -> None:
    source = torch.Generator().manual_seed(0)
    weights, old = torch.randn(2, 20, generator=source, dtype=torch.float64)
    assert (weights < 0).any()
    assert (weights > 0).any()

    def pull(moved: float, weights: Tensor) -> Tensor:
        log_prob = (old + moved).requires_grad_()
        loss = centered_nll(weights + 0.3, torch.tensor(0.3), log_prob, log_prob.exp() / old.exp())
        (grads,) = torch.autograd.grad(loss, log_prob)
        return -grads

    attracted = weights.clamp(min=0)
    torch.testing.assert_close(pull(0.0, weights), weights)  # as of weighted_nll, wherever the policy is
    torch.testing.assert_close(pull(-2.0, attracted), attracted)
    torch.testing.assert_close(pull(-2.0, weights - attracted), np.exp(-2) * (weights - attracted))
    assert pull(-1000.0, weights - attracted).abs().max() == 0
    nothing = torch.zeros(20, dtype=torch.float64)
    torch.testing.assert_close(centered_nll(attracted, nothing, old, nothing), weighted_nll(attracted, old))


def categorical_weights() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log-probabilities of 6 choices under an old and a new policy; how often each is drawn, and its weight."""
    source = torch.Generator().manual_seed(3)
    old, new, advantages = torch.randn(3, 6, generator=source, dtype=torch.float64)
    drawn = torch.softmax(old, 0)
    return torch.log_softmax(old, 0), torch.log_softmax(new, 0), drawn, torch.softmax(old + advantages, 0)


def test_the_control_variate_changes_neither_the_expectation_nor_its_gradient_at_any_policy() -> None:
    _, new, drawn, weights = categorical_weights()  # each choice as often as the old policy draws it
    logits = new.clone().requires_grad_()
    log_prob = torch.log_softmax(logits, 0)
    controlled, plain = (
        controlled_nll(weights, drawn, log_prob, log_prob.exp() / drawn),
        weighted_nll(weights, log_prob),
    )
    torch.testing.assert_close(controlled, plain)
    gradients = [torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (controlled, plain)]
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 0.01


def test_with_the_control_variate_a_row_is_drawn_to_its_weight_over_its_even_weight_and_no_further() -> None:
    old, _, drawn, weights = categorical_weights()
    for moved, direction in ((-0.1, 1), (0.0, 0), (0.1, -1)):
        log_prob = (old + torch.log(weights / drawn) + moved).requires_grad_()
        (grads,) = torch.autograd.grad(controlled_nll(weights, drawn, log_prob, log_prob.exp() / drawn), log_prob)
        assert (torch.sign(torch.where(grads.abs() < 1e-12, 0.0, -grads)) == direction).all()


def test_all_three_losses_agree_at_the_old_policy_but_for_the_even_weights() -> None:
    old, _, drawn, weights = categorical_weights()
    log_prob = old.clone().requires_grad_()
    losses = [loss(weights, drawn, log_prob, log_prob.exp() / drawn) for loss in (centered_nll, controlled_nll)]
    centered, controlled = (torch.autograd.grad(loss, log_prob, retain_graph=True)[0] for loss in losses)
    torch.testing.assert_close(centered, drawn - weights)
    torch.testing.assert_close(controlled, centered)
    (plain,) = torch.autograd.grad(weighted_nll(weights, log_prob), log_prob)
    torch.testing.assert_close(plain + drawn, centered)


def test_many_passes_over_noise_move_a_policy_far_less_with_the_control_variate(
    make_agent: MakeAgent, make_batch: MakeBatch
) -> None:
    """Advantages that have nothing to do with the actions: a likelihood alone draws the density onto what was tried."""
    moved = {}
    for loss in ("likelihood", "centered", "control_variate"):
        settings = {"minibatch_size": 10, "m_steps": 60, "policy_lr": 3e-3, "optimizer_type": "adam"}
        free = {"epsilon_mu": 1e3, "epsilon_sigma": 1e3, "epsilon_eta": 0.1, "alpha_update": "multiplicative"}
        agent = make_agent(m_step_loss=loss, topk_fraction=1.0, alpha_lr=10.0, **settings, **free)
        metrics = agent.update(make_batch(agent, rows=30))
        moved[loss] = metrics["kl/mean"] + metrics["kl/std"]
    assert moved["control_variate"] < 0.5 * min(moved["likelihood"], moved["centered"])


def test_policy_loss_is_a_sum_so_that_repeating_every_row_changes_nothing(
    make_agent: MakeAgent, make_batch: MakeBatch
) -> None:
    """Rules out a likelihood averaged over rows, which would lose against the KL penalties as batches grow."""
    first, second = make_agent(), make_agent()
    batch = make_batch(first, shift=0.1)
    twice = {name: values.repeat_interleave(2, 0) for name, values in batch.items()}
    once, doubled = first.update(batch), second.update(twice)
    for name in ("loss/policy_weighted_nll", "loss/policy", "loss/value", "kl/mean_sel", "vmpo/dual_loss"):
        assert doubled[name] == pytest.approx(once[name], rel=1e-4), name
    torch.testing.assert_close(second.flat.vector, first.flat.vector, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("double_precision")
def test_gradient_holds_weights_multipliers_and_old_policy_constant(
    make_agent: MakeAgent, make_batch: MakeBatch
) -> None:
    """Against finite differences of the loss written out with torch.distributions."""
    agent = make_agent(alpha_lr=0.5, **PLAIN)
    batch = agent.validated_batch(make_batch(agent, shift=0.3))
    hyper = {**agent.hyper(1.0), "policy_lr": torch.tensor(1.0), "value_lr": torch.tensor(1.0)}
    state = agent.state
    with torch.no_grad():
        _, target, _ = agent.improved.e_step(state, batch, hyper)
        after, _ = agent.improved.m_step(state, batch, target, hyper)
    grads = state["parameters"] - after["parameters"]
    alpha_mu, alpha_sigma = positive(after["multipliers"]["parameter"])
    chosen = target["selected"] > 0
    old = Normal(batch["old"]["mean"], batch["old"]["log_std"].exp())

    @torch.no_grad()
    def loss(parameters: Tensor) -> Tensor:
        params, values = agent.policy_function.params_and_values(parameters, batch["obs"], state["normalizer"])
        mean, log_std = params["mean"], params["log_std"]
        nll = -(target["weights"] * Normal(mean, log_std.exp()).log_prob(batch["actions_raw"]).sum(-1)).sum()
        kl_mu = kl_divergence(old, Normal(mean, old.scale)).sum(-1)[chosen].mean()
        kl_sigma = kl_divergence(old, Normal(old.loc, log_std.exp())).sum(-1)[chosen].mean()
        return nll + alpha_mu * kl_mu + alpha_sigma * kl_sigma + 0.5 * ((values - batch["returns"]) ** 2).mean()

    for seed in range(5):
        direction = torch.randn(grads.shape, generator=torch.Generator().manual_seed(seed))
        step = 1e-5 * direction
        numeric = (loss(state["parameters"] + step) - loss(state["parameters"] - step)) / 2e-5
        assert (grads @ direction).item() == pytest.approx(numeric.item(), rel=1e-6, abs=1e-7)


def test_rows_outside_the_selection_change_no_policy_parameter(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    """Their actions and the old policy there may be anything; the value alone learns from them."""
    first, second = make_agent(**PLAIN), make_agent(**PLAIN)
    batch = make_batch(first, shift=0.1)
    outside = batch["advantages"].squeeze(-1) < batch["advantages"].median()
    first.update(batch)
    for name in ("actions_raw", "old_means", "old_log_stds"):
        batch[name] = torch.where(outside.unsqueeze(-1), batch[name] + 5, batch[name])
    second.update(batch)
    torch.testing.assert_close(second.flat.vector, first.flat.vector, rtol=0, atol=0)
    assert second.alpha_mu == first.alpha_mu


def test_restarting_rows_change_no_policy_parameter(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    settings = {**PLAIN, "normalize_advantages": False}
    first, second = make_agent(**settings), make_agent(**settings)
    batch = make_batch(first, shift=0.1)
    restarting = (torch.arange(30) % 4 > 0).float().unsqueeze(-1)
    batch["restarting_weights"] = restarting
    first.update(batch)
    for name in ("obs", "advantages", "actions_raw", "old_means", "old_log_stds", "returns"):
        batch[name] = torch.where(restarting > 0, batch[name], torch.full_like(batch[name], 3.0))
    second.update(batch)
    of_policy = ~first.improved.of_value
    torch.testing.assert_close(second.flat.vector[of_policy], first.flat.vector[of_policy], rtol=0, atol=0)
    assert (second.eta, second.alpha_mu, second.alpha_sigma) == (first.eta, first.alpha_mu, first.alpha_sigma)


@pytest.mark.usefixtures("double_precision")
def test_rates_of_policy_and_value_are_used_as_given(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agents = [make_agent(**PLAIN, policy_lr=1e-3, value_lr=value_lr, m_steps=1) for value_lr in (1e-3, 3e-3)]
    moved = []
    for agent in agents:
        before = agent.flat.vector.clone()
        agent.update(make_batch(agent, shift=0.1))
        moved.append(agent.flat.vector - before)
    of_value = agents[0].improved.of_value
    torch.testing.assert_close(moved[1][~of_value], moved[0][~of_value], rtol=0, atol=0)
    torch.testing.assert_close(moved[1][of_value], 3 * moved[0][of_value], rtol=1e-9, atol=1e-12)
    assert 0 < of_value.sum() < len(of_value)


def test_a_shared_encoder_learns_at_the_policys_rate(make_agent: MakeAgent) -> None:
    agent = make_agent(shared_encoder=True)
    marked = [name for name in agent.flat.names if name.startswith("value")]
    assert agent.improved.of_value.sum() == 12 + 1  # the value head alone
    assert marked == ["value_head.weight", "value_head.bias"]


def test_one_clip_over_policy_and_value_leaves_the_multipliers_free(
    make_agent: MakeAgent, make_batch: MakeBatch
) -> None:
    agent = make_agent(
        optimizer_type="sgd", sgd_momentum=0.0, max_grad_norm=0.01, policy_lr=1.0, value_lr=1.0, alpha_lr=1.0
    )
    metrics = agent.update(make_batch(agent, shift=0.5))
    assert metrics["train/param_delta"] == pytest.approx(0.01, rel=1e-3)
    excess = metrics["kl/mean_sel"] - agent.config.epsilon_mu
    start, slope = unconstrained(1.0), 1 - np.exp(-1.0)  # softplus is 1 and has this slope there
    assert metrics["vmpo/alpha_mu"] == pytest.approx(np.log1p(np.exp(start + slope * excess)), rel=1e-5)


def test_m_steps_are_passes_of_the_m_step_and_one_of_the_e_step(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agent = make_agent(m_steps=5)
    agent.update(make_batch(agent))
    assert agent.state["moments"]["step"] == 5
    assert agent.state["multipliers"]["moments"]["step"] == 5
    assert agent.state["temperature"]["moments"]["step"] == 1


def test_minibatches_are_steps_of_a_pass_over_every_row(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agent = make_agent(m_steps=3, minibatch_size=8)
    agent.update(make_batch(agent, rows=30))
    assert agent.state["moments"]["step"] == 3 * 4  # 8, 8, 8 and the 6 left
    assert agent.state["multipliers"]["moments"]["step"] == 3 * 4
    assert agent.state["temperature"]["moments"]["step"] == 1
    orders = agent.draw_update({"rewards": torch.zeros(5, 6)})["orders"]
    assert orders.shape == (1, 3, 30)
    assert torch.equal(orders.sort(-1).values, torch.arange(30).expand(1, 3, 30))
    assert len({tuple(order.tolist()) for order in orders[0]}) == 3


@pytest.mark.usefixtures("double_precision")
def test_one_minibatch_of_all_rows_is_the_whole_batch(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    whole, split = make_agent(m_steps=3), make_agent(m_steps=3, minibatch_size=30)
    metrics = [agent.update(make_batch(agent, rows=30, shift=0.1)) for agent in (whole, split)]
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-9)
    torch.testing.assert_close(split.state["parameters"], whole.state["parameters"], rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("double_precision")
def test_minibatches_likelihood_is_on_average_that_of_the_batch() -> None:
    """And their KLs are means over the rows that were selected, or if a minibatch has none, over all."""
    psi = torch.tensor([0.1, 0.0, 0.4, 0.0, 0.2, 0.3])
    log_prob = torch.tensor([-1.0, 5.0, 2.0, 7.0, -3.0, 0.5])
    selected = (psi > 0).double()
    batch = {"advantages": torch.zeros(6), "log_prob": log_prob}
    even, ratio = torch.tensor([0.3, 0.1, 0.2, 0.1, 0.2, 0.1]), torch.tensor([0.3, 2.7, 0.6, 2.7, 0.4, 1.6])
    batch["ratio"] = ratio
    target = {"weights": psi, "even": even, "selected": selected, "count": selected.sum()}
    parts = [minibatch(batch, target, torch.tensor(index)) for index in ([0, 4], [3, 1], [5, 2])]
    nlls = [weighted_nll(part["weights"], rows["log_prob"]) for rows, part in parts]
    torch.testing.assert_close(torch.stack(nlls).mean(), weighted_nll(psi, log_prob))
    controlled = [
        controlled_nll(part["weights"], part["even"], rows["log_prob"], rows["ratio"]) for rows, part in parts
    ]
    torch.testing.assert_close(torch.stack(controlled).mean(), controlled_nll(psi, even, log_prob, ratio))
    means = [mean_over(rows["log_prob"], part["selected"], part["count"]).item() for rows, part in parts]
    assert means == [-2.0, 6.0, 1.25]


def test_multipliers_rate_is_divided_by_the_root_of_the_passes(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    """As the recorded updates have it: four passes move a multiplier as far as two undivided ones."""
    far = [make_agent(m_steps=m_steps, alpha_lr=1e-3) for m_steps in (1, 4)]
    for agent in far:
        agent.update(make_batch(agent, shift=1.0))
    assert far[1].alpha_mu - 1 == pytest.approx(2 * (far[0].alpha_mu - 1), rel=0.01)


def test_raw_statistics_are_those_before_normalising(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agent = make_agent()
    batch = make_batch(agent)
    metrics = agent.update(batch)
    assert metrics["adv/raw_mean"] == pytest.approx(np.mean(batch["advantages"].numpy()), rel=1e-5)
    assert metrics["adv/raw_std"] == pytest.approx(np.std(batch["advantages"].numpy()), rel=1e-5)
    assert metrics["vmpo/adv_std_over_temperature"] == pytest.approx(1 / metrics["vmpo/temperature_raw"], rel=1e-5)


def test_actions_before_squashing_are_used_where_they_are_given(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    first, second, third = make_agent(), make_agent(), make_agent()
    batch = make_batch(first)
    losses = [first.update(batch), second.update({**batch, "actions": torch.full_like(batch["actions"], 0.123)})]
    del batch["actions_raw"]
    losses.append(third.update(batch))
    assert losses[1] == losses[0]
    assert losses[2]["loss/policy"] == pytest.approx(losses[0]["loss/policy"], rel=1e-4)


def test_arrays_and_flat_columns_are_taken_too(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    first, second = make_agent(), make_agent()
    batch = make_batch(first)
    arrays = {name: values.numpy() for name, values in batch.items()}
    flat = {**arrays, "returns": arrays["returns"][:, 0], "advantages": arrays["advantages"][:, 0]}
    assert second.update(flat) == first.update(batch)


def test_the_policy_is_live(make_agent: MakeAgent) -> None:
    agent = make_agent()
    before = agent.act(np.zeros(4), deterministic=True)[0]
    with torch.no_grad():
        agent.policy.policy_mean.bias.add_(1.0)
    assert not torch.allclose(agent.act(np.zeros(4), deterministic=True)[0], before)
    assert agent.state["parameters"].data_ptr() == next(agent.policy.parameters()).data_ptr()


def test_acting_on_one_observation_and_on_a_batch(make_agent: MakeAgent) -> None:
    agent = make_agent()
    obs = np.random.default_rng(0).normal(size=(6, 4))
    action, value, mean, log_std = agent.act(obs)
    assert [part.shape for part in (action, value, mean, log_std)] == [(6, 2), (6, 1), (6, 2), (6, 2)]
    one = agent.act(obs[0], deterministic=True)
    assert [part.shape for part in one] == [(2,), (1,), (2,), (2,)]
    torch.testing.assert_close(one[2], mean[0])
    torch.testing.assert_close(one[0], agent.policy.execute(mean[0]))
    torch.testing.assert_close(agent.value(obs), value)
    torch.testing.assert_close(agent.policy_action(obs), agent.policy.execute(mean))
    drawn = torch.stack([agent.policy_action(obs, deterministic=False) for _ in range(3)])
    assert (drawn.std(0) > 0).all()


@pytest.mark.parametrize(
    ("hyperparameters", "message"),
    [
        ({"optimizer_type": "rmsprop"}, "optimizer_type"),
        ({"topk_fraction": 0.0}, "topk_fraction"),
        ({"topk_fraction": 1.5}, "topk_fraction"),
        ({"temperature_init": -1.0}, "temperature_init"),
        ({"epsilon_mu": 0.0}, "epsilon_mu"),
        ({"topk": 0.5}, "topk_fraction"),
        ({"num_envs": 4}, "setting of VMPOTrainer"),
    ],
)
def test_wrong_settings_are_refused(make_agent: MakeAgent, hyperparameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_agent(**hyperparameters)


def test_wrong_batches_are_refused(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agent = make_agent(topk_fraction=0.01)
    batch = make_batch(agent)
    with pytest.raises(ConfigError, match=r"0\.01 of 30 rows selects nothing"):
        agent.update(batch)
    with pytest.raises(ConfigError, match="lacks returns"):
        agent.update({name: values for name, values in batch.items() if name != "returns"})
    with pytest.raises(ConfigError, match="lacks actions"):
        agent.update({name: values for name, values in batch.items() if not name.startswith("actions")})
    with pytest.raises(ConfigError, match="holds old_mean"):
        agent.update({**batch, "old_mean": batch["old_means"]})
    with pytest.raises(ConfigError, match="returns has shape"):
        agent.update({**batch, "returns": batch["returns"][:-1]})
