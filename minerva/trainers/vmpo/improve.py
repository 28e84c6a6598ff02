"""Policy improvement: weight the best rows (E-step), then update multipliers, policy and value (M-step).

A dual variable is a tree with its unconstrained `parameter` and the optimiser's `moments`. The duals are the
temperature of the E-step and the multipliers of the M-step, one for each trust region.
"""

import torch
from torch import Tensor

from minerva.compute.functional import descend, stepped
from minerva.compute.gradient import Loss, outputs_and_gradient
from minerva.compute.optim import Optimizer
from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.tree import Tree, select, take
from minerva.formulas.lagrange import floored, inverse_positive, positive, solved_temperature
from minerva.formulas.returns import normalize, value_loss
from minerva.formulas.statistics import effective_samples
from minerva.formulas.trust_region import (
    least_multipliers,
    multiplier_loss,
    penalties,
    scaled_multipliers,
)
from minerva.networks.policies import FunctionalPolicy
from minerva.trainers.vmpo.config import VMPOConfig
from minerva.trainers.vmpo.losses import (
    centered_nll,
    controlled_nll,
    even_weights,
    log_partition,
    mean_over,
    policy_loss,
    probability_ratio,
    scores,
    selection_size,
    temperature_loss,
    top_rows,
    trust_region_kls,
    weighted_nll,
    weights_kl,
)

Rows = dict[str, Tensor]

E_STEP_FIELDS = ("advantages", "restarting_weights", "importance_weights")
"""Fields of a batch that the E-step reads."""
ALPHA_METRICS = {"mean": "vmpo/alpha_mu", "std": "vmpo/alpha_sigma", "choice": "vmpo/alpha"}
"""The metric that reports each trust region's multiplier."""


class PolicyImprovement:
    """`(state, batch, noise, hyper, updates) -> (state, metrics)`, a loop around E-steps and M-steps."""

    def __init__(
        self,
        policy: FunctionalPolicy,
        config: VMPOConfig,
        optimizer: Optimizer,
        ranks: Ranks = SINGLE,
    ) -> None:
        self.policy, self.config, self.optimizer, self.ranks = policy, config, optimizer, ranks
        self.of_value = policy.flat.mark(("value_encoder", "value_head"))
        self.loss_name = config.m_step_loss_for("mean" in policy.distribution.trust_regions)

    def __call__(self, state: Tree, batch: Tree, noise: Rows, hyper: Rows, updates: int) -> tuple[Tree, Rows]:
        """Return the state after `updates` updates on one batch, and metrics; replace the old policy when due."""
        rows = self.standardized(batch)
        metrics: Rows = {}
        for steps in minibatch_indices(self.config, noise, updates):
            state, target, e_metrics = self.e_step(state, rows, hyper)
            m_metrics: Rows = {}
            for index in steps:
                state, m_metrics = self.m_step(state, rows, target, hyper, *index)
            if "old" in state:
                state, rows = self.maybe_replace_old_policy(state, rows, target, hyper)
            metrics = {**m_metrics, **e_metrics}
        return state, metrics

    def standardized(self, batch: Tree) -> Tree:
        """Return the batch with advantages normalised to zero mean and unit standard deviation, if so configured."""
        if not self.config.normalize_advantages:
            return batch
        advantages = normalize(self.ranks.all_gathered(batch["advantages"]), correction=0)
        return {**batch, "advantages": self.ranks.local_shard(advantages)}

    def e_step(self, state: Tree, batch: Tree, hyper: Rows) -> tuple[Tree, Rows, Rows]:
        """Return the state with its temperature updated, the target of the M-step, and metrics."""
        options = (self.config, self.optimizer, self.ranks)
        temperature, target, metrics = e_step(state["temperature"], batch, hyper, *options)
        return {**state, "temperature": temperature}, target, metrics

    # --- M-step ---------------------------------------------------------------------------------------------

    def m_step(self, state: Tree, batch: Tree, target: Rows, hyper: Rows, *index: Tensor) -> tuple[Tree, Rows]:
        """Return the state after one step of multipliers, then policy and value, on all rows or `index`; metrics."""
        if index:
            batch, target = minibatch(batch, target, index[0], self.ranks)
        outputs, kl_metrics, gradient_of = outputs_and_gradient(
            self.outputs, state["parameters"], state["normalizer"], batch, target
        )
        kls = self.ranks.mean(outputs["kls"])
        multipliers, alpha_loss = multiplier_step(state["multipliers"], kls, hyper, self.config, self.optimizer)
        alphas = positive(multipliers["parameter"])
        grads, metrics = gradient_of(self.loss, alphas, batch, target)
        rates = torch.where(self.of_value, hyper["value_lr"], hyper["policy_lr"])
        step = (self.optimizer, rates, hyper["max_grad_norm"], self.ranks)
        parameters, moments = stepped(state["parameters"], grads, state["moments"], *step)
        after = {"parameters": parameters, "moments": moments, "multipliers": multipliers}
        alpha_metrics = {
            ALPHA_METRICS[region]: alpha for region, alpha in zip(self._regions, alphas.unbind(), strict=True)
        }
        return {**state, **after}, {**metrics, "loss/alpha": alpha_loss, **kl_metrics, **alpha_metrics}

    def outputs(self, parameters: Tensor, normalizer: Rows, batch: Tree, target: Rows) -> tuple[Tree, Rows]:
        """Return distribution parameters and value of each row and the trust regions' KLs [K]; and KL metrics."""
        params, values = self.policy.params_and_values(parameters, batch["obs"], normalizer)
        of_rows = self.policy.distribution.kls(batch["old"], params)
        kls, metrics = trust_region_kls(of_rows, target["selected"], target["count"])
        return {"params": params, "values": values, "kls": kls}, metrics

    def loss(self, outputs: Tree, alphas: Tensor, batch: Tree, target: Rows) -> tuple[Tensor, Rows]:
        """Return weighted NLL plus KL penalties plus value loss, and metrics; weights and multipliers are constants."""
        distribution = self.policy.distribution
        log_prob = distribution.log_prob(outputs["params"], batch["actions_raw"])
        if self.loss_name == "likelihood":
            nll = weighted_nll(target["weights"], log_prob)
        else:
            old_log_prob = distribution.log_prob(batch["old"], batch["actions_raw"])
            loss = centered_nll if self.loss_name == "centered" else controlled_nll
            nll = loss(target["weights"], target["even"], log_prob, probability_ratio(log_prob, old_log_prob))
        costs = penalties(alphas, outputs["kls"])
        policy = policy_loss(nll, costs)
        value = value_loss(outputs["values"], batch["returns"])
        # LaTeX: \mathcal{L} = \mathcal{L}_\pi + \mathcal{L}_V
        total = policy + value
        entropy = mean_over(distribution.entropy(outputs["params"]), target["selected"], target["count"])
        penalty_metrics = {
            f"loss/policy_kl_{region}_pen": cost for region, cost in zip(self._regions, costs.unbind(), strict=True)
        }
        losses = {"loss/total": total, "loss/value": value, "loss/policy": policy, "loss/policy_weighted_nll": nll}
        return total, {**losses, **penalty_metrics, "train/entropy": entropy}

    def maybe_replace_old_policy(self, state: Tree, batch: Tree, target: Rows, hyper: Rows) -> tuple[Tree, Tree]:
        """Replace the old policy after `old_policy_period` updates or, with "kl", once a KL reaches its bound.

        Return state and batch; the batch's `old` parameters are then those of the new old policy.
        """
        params = self.policy.params(state["parameters"], batch["obs"], state["normalizer"])
        age = state["old"]["age"] + 1
        due = age >= hyper["old_policy_period"]
        if self.config.old_policy == "kl":
            of_rows = self.policy.distribution.kls(batch["old"], params)
            kls, _ = trust_region_kls(of_rows, target["selected"], target["count"])
            due = due | (self.ranks.mean(kls) >= hyper["bounds"]).any()
        now = {"parameters": state["parameters"], "age": torch.zeros_like(age)}
        old = select(due, now, {"parameters": state["old"]["parameters"], "age": age})
        return {**state, "old": old}, {**batch, "old": select(due, params, batch["old"])}

    @property
    def _regions(self) -> tuple[str, ...]:
        return tuple(self.policy.distribution.trust_regions)


# --- E-step -----------------------------------------------------------------------------------------------------


def e_step(
    temperature: Tree, batch: Rows, hyper: Rows, config: VMPOConfig, optimizer: Optimizer, ranks: Ranks = SINGLE
) -> tuple[Tree, Rows, Rows]:
    """Return the updated temperature; the M-step's target, `weights`, `even`, `selected` [n] and its `count`; metrics.

    Each rank weights the rows of all ranks, and keeps its shard of them for the M-step. With a gradient step the
    weights use the temperature before the step; with a solved temperature they use the solution for these rows.
    """
    before = positive(temperature["parameter"])
    rows = _selected({name: ranks.all_gathered(batch[name]) for name in E_STEP_FIELDS}, before, config.topk_fraction)
    if config.temperature == "solved":
        updated, dual_loss = temperature_solved(temperature, rows, hyper)
    else:
        updated, dual_loss = temperature_step(temperature, rows, hyper, optimizer)
    after = positive(updated["parameter"])
    score = scores(rows["advantages"], rows["restarting"], after if config.temperature == "solved" else before)
    weights, _ = log_partition(score, rows["counted"], rows["importance"])
    # LaTeX: \tau = \min_{t \in S} s_t
    threshold = torch.where(rows["selected"] > 0, score, torch.inf).min()
    metrics = {
        "vmpo/dual_loss": dual_loss,
        "vmpo/epsilon_eta": hyper["epsilon_eta"],
        "vmpo/temperature_raw": after,
        "vmpo/adv_std_over_temperature": rows["advantages"].std(correction=0) / after,
        "vmpo/selected_frac": rows["selected"].mean(),
        "vmpo/threshold": threshold,
        "vmpo/ess": effective_samples(weights),
        "vmpo/restarting_frac": 1 - rows["given_restarting"].mean(),
        "vmpo/importance_mean": rows["importance"].mean(),
    }
    even = even_weights(rows["restarting"], rows["importance"])
    selected = ranks.local_shard(rows["selected"])
    target = {
        "weights": ranks.scaled_local_shard(weights),
        "even": ranks.scaled_local_shard(even),
        "selected": selected,
        "count": ranks.mean(selected.sum()),
    }
    return updated, target, metrics


def _selected(batch: Rows, temperature: Tensor, topk_fraction: float) -> Rows:
    """Return the E-step's inputs and selection, all [n]. If every row restarts an episode, all get weight one."""
    given = batch["restarting_weights"]
    restarting = torch.where((given > 0).any(), given, torch.ones_like(given))
    k = selection_size(topk_fraction, restarting.shape[0])
    selected = top_rows(scores(batch["advantages"], restarting, temperature), restarting, k)
    # LaTeX: \bar{w}_t = w_t^{restart} \mathbf{1}[t \in S]
    counted = restarting * selected
    return {
        "advantages": batch["advantages"],
        "given_restarting": given,
        "restarting": restarting,
        "importance": batch["importance_weights"],
        "selected": selected,
        "counted": counted,
    }


def dual_loss(parameter: Tensor, rows: Rows, bound: Tensor) -> tuple[Tensor, Rows]:
    """Return the temperature's loss as a function of its unconstrained parameter, and as a metric."""
    temperature = positive(parameter)
    score = scores(rows["advantages"], rows["restarting"], temperature)
    _, log_total = log_partition(score, rows["counted"], rows["importance"])
    loss = temperature_loss(temperature, log_total, rows["counted"], bound)
    return loss, {"loss": loss}


def e_step_kl(temperature: Tensor, rows: Rows) -> Tensor:
    """Return the KL of the E-step's weights at this temperature."""
    score = scores(rows["advantages"], rows["restarting"], temperature)
    weights, log_total = log_partition(score, rows["counted"], rows["importance"])
    return weights_kl(weights, score, log_total, rows["counted"])


def temperature_step(temperature: Tree, rows: Rows, hyper: Rows, optimizer: Optimizer) -> tuple[Tree, Tensor]:
    """Return the temperature after one gradient step, and its loss before the step."""
    return _dual_step(dual_loss, temperature, rows, hyper["epsilon_eta"], hyper["temperature_lr"], optimizer)


def temperature_solved(temperature: Tree, rows: Rows, hyper: Rows) -> tuple[Tree, Tensor]:
    """Return the temperature at which the weights' KL equals its bound (the loss's minimum), and the loss before."""
    before, _ = dual_loss(temperature["parameter"], rows, hyper["epsilon_eta"])
    exact = {name: row.double() for name, row in rows.items()}  # a KL of 1e-4 is a difference of numbers near log n
    solution = solved_temperature(lambda value: e_step_kl(value, exact), hyper["epsilon_eta"].double())
    return {**temperature, "parameter": inverse_positive(solution.to(before.dtype))}, before


# --- multipliers ------------------------------------------------------------------------------------------------


def multiplier_step(
    multipliers: Tree, kls: Tensor, hyper: Rows, config: VMPOConfig, optimizer: Optimizer
) -> tuple[Tree, Tensor]:
    """Return the multipliers [K] after a gradient or multiplicative step, and their loss before the step."""
    if config.alpha_update == "gradient":
        return _dual_step(alpha_loss, multipliers, kls, hyper["bounds"], hyper["alpha_lr"], optimizer)
    bounds = hyper["bounds"]
    before, _ = alpha_loss(multipliers["parameter"], kls, bounds)
    least = least_multipliers(hyper["epsilon_eta"], bounds, hyper["least_shares"])
    scaled = scaled_multipliers(positive(multipliers["parameter"]), kls, bounds, hyper["alpha_lr"], least)
    return {**multipliers, "parameter": inverse_positive(scaled)}, before


def alpha_loss(parameter: Tensor, kls: Tensor, bounds: Tensor) -> tuple[Tensor, Rows]:
    """Return the multipliers' loss as a function of their unconstrained parameters [K], and as a metric."""
    loss = multiplier_loss(positive(parameter), kls, bounds)
    return loss, {"loss": loss}


def dual(parameter: Tensor, optimizer: Optimizer) -> Tree:
    """Return a dual variable with the initial moments of its optimiser."""
    return {"parameter": parameter, "moments": optimizer.initial_moments(parameter)}


def _dual_step(
    loss: Loss, variable: Tree, given: Tensor | Rows, bound: Tensor, rate: Tensor, optimizer: Optimizer
) -> tuple[Tree, Tensor]:
    """Return a dual variable after one unclipped gradient step, floored where softplus has a gradient; and its loss."""
    parameter, moments, before = descend(
        loss, variable["parameter"], variable["moments"], given, bound, optimizer=optimizer, learning_rate=rate
    )
    return {"parameter": floored(parameter), "moments": moments}, before["loss"]


# --- minibatches ------------------------------------------------------------------------------------------------


def minibatch(batch: Tree, target: Rows, index: Tensor, ranks: Ranks = SINGLE) -> tuple[Tree, Rows]:
    """Return the rows of `index` [b], and the M-step's target for them.

    The weights are scaled so that the NLL of the whole batch is the mean of those of equal minibatches. The KLs are
    means over the minibatch's selected rows, or over all its rows if none was selected.
    """
    rows, size = batch["advantages"].shape[0], index.shape[0]
    # LaTeX: \psi'_t = \frac{n}{b} \psi_t
    weights = rows / size * target["weights"][index]
    # LaTeX: \tilde\psi^0_t = \frac{n}{b} \psi^0_t
    even = rows / size * target["even"][index]
    selected = target["selected"][index]
    count = ranks.mean(selected.sum())
    part = {
        "weights": weights,
        "even": even,
        "selected": torch.where(count > 0, selected, 1.0),
        "count": torch.where(count > 0, count, float(size)),
    }
    return take(batch, index), part


def minibatch_indices(config: VMPOConfig, noise: Rows, updates: int) -> list[list[tuple[Tensor, ...]]]:
    """Return the M-step's minibatches of each update as tuples of one index; empty tuples stand for all rows."""
    if not noise:
        return [[()] * config.m_steps] * updates
    each = [orders.unbind(-2) for orders in noise["orders"].unbind(-3)]
    return [[(index,) for order in orders for index in order.split(config.minibatch_size, -1)] for orders in each]
