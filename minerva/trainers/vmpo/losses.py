"""V-MPO's E-step and M-step (Song et al. 2019, section 4).

Shapes: n rows of a batch, D action dimensions; every argument and result is [n] unless stated otherwise. A mask is
1.0 in the rows it marks and 0.0 elsewhere.
"""

import torch
from torch import Tensor

# --- E-step -----------------------------------------------------------------------------------------------------


def selection_size(topk_fraction: float, rows: int) -> int:
    """Return k, the number of rows that enter the E-step.

    The small constant corrects rounding: 0.29 of 100 rows is 29, though the product is slightly less in floats.
    """
    # LaTeX: k = \lfloor f n + 10^{-9} \rfloor
    k = int(topk_fraction * rows + 1e-9)
    return k


def scores(advantages: Tensor, restarting: Tensor, temperature: Tensor) -> Tensor:
    """Return the unnormalised log-weight of each row. `restarting` is 0 where an episode restarts."""
    # LaTeX: s_t = \frac{w_t^{restart} \hat{A}_t}{\eta}
    score = restarting * advantages / temperature
    return score


def top_rows(score: Tensor, restarting: Tensor, k: int) -> Tensor:
    """Return the mask of exactly the k highest scores, ties to the lower index; restarting rows are never selected."""
    valid = restarting > 0
    ranked = torch.where(valid, score, -torch.inf)
    order = torch.sort(ranked, descending=True, stable=True).indices
    # LaTeX[prose "a choice by rank is no arithmetic; tests/trainers/vmpo/test_vmpo_e_step.py checks it"]: S = \operatorname{Top}_k(s_t)
    first = torch.zeros_like(score).scatter(0, order[:k], 1.0)
    return torch.where(valid, first, 0.0)


def log_partition(score: Tensor, counted: Tensor, importance: Tensor) -> tuple[Tensor, Tensor]:
    """Return the E-step's weights psi (eq. 3) and the log of their normalising constant.  -> [n], []

    `counted` is the selection times the restarting weights. The largest score is subtracted in the exponent, so that
    no temperature makes it overflow.
    """
    # LaTeX: s_{max} = \max_{t \in S} s_t
    highest = torch.where(counted > 0, score, -torch.inf).max()
    # LaTeX: s'_t = (s_t - s_{max}) \mathbf{1}[t \in S]
    relative = torch.where(counted > 0, score - highest, 0.0)
    # LaTeX: m_t = \bar{w}_t w_t^{imp} \exp(s'_t)
    mass = counted * importance * torch.exp(relative)
    # LaTeX: Z = \sum_t m_t
    total = mass.sum()
    # LaTeX: \psi_t = \frac{m_t}{Z}
    weights = mass / total
    # LaTeX: \log\bar{Z} = \log Z + s_{max}
    log_total = torch.log(total) + highest
    return weights, log_total


def temperature_loss(temperature: Tensor, log_total: Tensor, counted: Tensor, bound: Tensor) -> Tensor:
    """Return the temperature's dual loss (eq. 4): at its minimum the E-step's KL equals its bound.  -> []"""
    # LaTeX: \mathcal{L}_\eta = \eta (\epsilon_\eta + \log\bar{Z} - \log \sum_t \bar{w}_t)
    loss = temperature * (bound + log_total - torch.log(counted.sum()))
    return loss


def weights_kl(weights: Tensor, score: Tensor, log_total: Tensor, counted: Tensor) -> Tensor:
    """Return the KL of the weights from the unweighted selected rows; the dual's derivative is bound - KL.  -> []"""
    # LaTeX: D_\psi = \sum_t \psi_t s_t - \log\bar{Z} + \log \sum_t \bar{w}_t
    kl = (weights * score).sum() - log_total + torch.log(counted.sum())
    return kl


def even_weights(restarting: Tensor, importance: Tensor) -> Tensor:
    """Return the weights psi^0 that rows would have without advantages."""
    # LaTeX: m^0_t = w_t^{restart} w_t^{imp}
    mass = restarting * importance
    # LaTeX: \psi^0_t = \frac{m^0_t}{\sum_i m^0_i}
    weights = mass / mass.sum()
    return weights


# --- M-step -----------------------------------------------------------------------------------------------------


def weighted_nll(weights: Tensor, log_prob: Tensor) -> Tensor:
    """Return the weighted negative log-likelihood (eq. 3): a sum, because the weights already sum to one.  -> []"""
    # LaTeX: \mathcal{L}_\pi^{NLL} = -\sum_t \psi_t \log\pi_\theta(a_t|s_t)
    loss = -(weights * log_prob).sum()
    return loss


def probability_ratio(log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """Return the probability of each action over that by the old policy."""
    # LaTeX: \rho_t = \exp(\log\pi_\theta(a_t|s_t) - \log\pi_{old}(a_t|s_t))
    ratio = torch.exp(log_prob - old_log_prob)
    return ratio


def controlled_nll(weights: Tensor, even: Tensor, log_prob: Tensor, ratio: Tensor) -> Tensor:
    """Return the weighted negative log-likelihood plus a control variate, for the policy's loss.  -> []

    `even` are the `even_weights`. A ratio of probabilities has the expectation 1 over the old policy's actions, so the
    variate changes neither the loss's expectation nor its gradient's, whatever the policy. In a sample, weights alone
    would draw the policy to all its actions, more or less; with the variate each row draws it up to a ratio of
    psi / psi^0, and back from above it.
    """
    # LaTeX: \mathcal{L}_\pi^{NLL} = -\sum_t \psi_t \log\pi_\theta(a_t|s_t) + \sum_t \psi^0_t (\rho_t - 1)
    loss = weighted_nll(weights, log_prob) + (even * (ratio - 1)).sum()
    return loss


def centered_nll(weights: Tensor, even: Tensor, log_prob: Tensor, ratio: Tensor) -> Tensor:
    """Return the policy's loss for centered weights: likely where they are positive, unlikely where negative.  -> []

    At the old policy its gradient is that of `controlled_nll`. A positive weight attracts without end; a negative one
    repels by the probability's ratio to the old one, so less and less: the logarithm, which has no lower limit, would
    repel for ever, and the more the rarer the action already is.
    """
    # LaTeX: c_t = \psi_t - \psi^0_t
    centered = weights - even
    # LaTeX: \mathcal{L}_\pi^{NLL} = -\sum_t (\max(c_t, 0) \log\pi_\theta(a_t|s_t) + \min(c_t, 0) \rho_t)
    loss = -(centered.clamp(min=0) * log_prob + centered.clamp(max=0) * ratio).sum()
    return loss


def mean_over(rows: Tensor, selected: Tensor, count: Tensor) -> Tensor:
    """Return the mean over the `count` selected rows; the other rows may hold any value, also NaN.  -> []"""
    # LaTeX: \bar{x} = \mathbb{E}_{t \in S}[x_t]
    mean = torch.where(selected > 0, rows, 0.0).sum() / count
    return mean


def trust_region_kls(kls: dict[str, Tensor], selected: Tensor, count: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return KL(old || new) of each trust region over the selected rows [K], and as metrics also over all rows.

    `kls` holds the KL of each row and dimension [n, D] by trust region: D_mu due to the mean, D_sigma due to the
    standard deviation. The bounds apply to the KLs over the selected rows.
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
    """Return the policy's loss: weighted NLL plus KL penalties.  [], [K] -> []"""
    # LaTeX: \mathcal{L}_\pi = \mathcal{L}_\pi^{NLL} + \sum_j P_j
    loss = sum(costs.unbind(), nll)
    return loss


# --- statistics -------------------------------------------------------------------------------------------------


def mean_std_metrics(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return mean and biased standard deviation of each column as metrics.  -> [] each"""
    means = {f"{name}_mean": rows.mean() for name, rows in columns.items()}
    return {**means, **{f"{name}_std": rows.std(correction=0) for name, rows in columns.items()}}
