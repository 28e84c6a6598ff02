"""V-MPO's E-step and M-step (Song et al. 2019, section 4).

Shapes: n rows of a batch, D action dimensions; every argument and result is [n] unless it says otherwise. A mask is
1.0 in the rows it marks and 0.0 elsewhere.
"""

import torch
from torch import Tensor

# --- E-step -----------------------------------------------------------------------------------------------------


def selection_size(topk_fraction: float, rows: int) -> int:
    """k: how many of the rows enter the E-step; 29 of 100 for 0.29, whose product is a little less in floats."""
    # LaTeX: k = \lfloor f n + 10^{-9} \rfloor
    k = int(topk_fraction * rows + 1e-9)
    return k


def scores(advantages: Tensor, restarting: Tensor, temperature: Tensor) -> Tensor:
    """What a row counts for, as a logarithm. `restarting` is 0 where an episode restarts."""
    # LaTeX: s_t = \frac{w_t^{restart} \hat{A}_t}{\eta}
    score = restarting * advantages / temperature
    return score


def top_rows(score: Tensor, restarting: Tensor, k: int) -> Tensor:
    """Mask of exactly the k highest scores, ties to the lower index; restarting rows are never selected."""
    valid = restarting > 0
    ranked = torch.where(valid, score, -torch.inf)
    order = torch.sort(ranked, descending=True, stable=True).indices
    # LaTeX[prose "a choice by rank is no arithmetic; tests/trainers/vmpo/test_vmpo_e_step.py checks it"]: S = \operatorname{Top}_k(s_t)
    first = torch.zeros_like(score).scatter(0, order[:k], 1.0)
    return torch.where(valid, first, 0.0)


def log_partition(score: Tensor, counted: Tensor, importance: Tensor) -> tuple[Tensor, Tensor]:
    """The E-step's weights and the logarithm of the sum they were divided by.  [n], []

    `counted` is the selection times the restarting weights. The largest score is taken out of the exponent, so that
    no temperature makes it overflow.
    """
    # LaTeX: s_{max} = \max_{t \in S} s_t
    highest = torch.where(counted > 0, score, -torch.inf).max()
    relative = torch.where(counted > 0, score - highest, 0.0)
    # LaTeX: m_t = \bar{w}_t w_t^{imp} \exp(s_t - s_{max})
    mass = counted * importance * torch.exp(relative)
    # LaTeX: Z = \sum_t m_t
    total = mass.sum()
    # LaTeX: \psi_t = \frac{m_t}{Z}
    weights = mass / total
    # LaTeX: \log\bar{Z} = \log Z + s_{max}
    log_total = torch.log(total) + highest
    return weights, log_total


def temperature_loss(temperature: Tensor, log_total: Tensor, counted: Tensor, bound: Tensor) -> Tensor:
    """The dual whose minimum is the temperature that keeps the E-step inside its bound.  []"""
    # LaTeX: \mathcal{L}_\eta = \eta (\epsilon_\eta + \log\bar{Z} - \log \sum_t \bar{w}_t)
    loss = temperature * (bound + log_total - torch.log(counted.sum()))
    return loss


def weights_kl(weights: Tensor, score: Tensor, log_total: Tensor, counted: Tensor) -> Tensor:
    """KL of the weights to the selected rows as they were drawn: the dual's derivative is the bound minus this.  []"""
    # LaTeX: D_\psi = \sum_t \psi_t s_t - \log\bar{Z} + \log \sum_t \bar{w}_t
    kl = (weights * score).sum() - log_total + torch.log(counted.sum())
    return kl


def centered(weights: Tensor, restarting: Tensor, importance: Tensor) -> Tensor:
    """The weights less what each row would weigh if no advantage told them apart, so that they add up to zero.

    A policy already is the likeliest to take its own actions: the gradient of their unweighted likelihood is zero in
    expectation, and a sample of it nothing but noise.
    """
    # LaTeX: m^0_t = w_t^{restart} w_t^{imp}
    mass = restarting * importance
    # LaTeX: \psi^0_t = \psi_t - \frac{m^0_t}{\sum_i m^0_i}
    difference = weights - mass / mass.sum()
    return difference


# --- M-step -----------------------------------------------------------------------------------------------------


def weighted_nll(weights: Tensor, log_prob: Tensor) -> Tensor:
    """A sum, not a mean: the weights already add up to one.  []"""
    # LaTeX: \mathcal{L}_\pi^{NLL} = -\sum_t \psi_t \log\pi_\theta(a_t|s_t)
    loss = -(weights * log_prob).sum()
    return loss


def mean_over(rows: Tensor, selected: Tensor, count: Tensor) -> Tensor:
    """Mean over the selected rows, of which there are `count`; the others may hold anything.  []"""
    # LaTeX: \bar{x} = \mathbb{E}_{t \in S}[x_t]
    mean = torch.where(selected > 0, rows, 0.0).sum() / count
    return mean


def trust_region_kls(kls: dict[str, Tensor], selected: Tensor, count: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """KL(old || new) of each trust region over the selected rows, which is bounded; as metrics also over all.  [K]

    `kls` are those of each row and dimension, [n, D] by trust region: D_mu by the mean, D_sigma by the standard
    deviation.
    """
    metrics: dict[str, Tensor] = {}
    for region, kl in kls.items():
        # LaTeX: D_t = \sum_j D_{t,j}
        of_row = kl.sum(-1)
        # LaTeX: D = \mathbb{E}_{t \in S}[D_t]
        of_selected = mean_over(of_row, selected, count)
        metrics |= {f"kl/{region}": of_row.mean(), f"kl/{region}_sel": of_selected}
    return torch.stack([metrics[f"kl/{region}_sel"] for region in kls]), metrics


def policy_loss(nll: Tensor, costs: Tensor) -> Tensor:
    """The policy's loss: likelihood and what the constraints cost.  [], [K] -> []"""
    # LaTeX: \mathcal{L}_\pi = \mathcal{L}_\pi^{NLL} + \sum_j P_j
    loss = sum(costs.unbind(), nll)
    return loss


# --- what an update learned from --------------------------------------------------------------------------------


def mean_std_metrics(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    """Mean and biased standard deviation of each column, as metrics.  [] each"""
    means = {f"{name}_mean": rows.mean() for name, rows in columns.items()}
    return {**means, **{f"{name}_std": rows.std(correction=0) for name, rows in columns.items()}}
