"""MPO's losses (Abdolmaleki et al. 2018).

Shapes: B states, N actions sampled in each, D action dimensions; samples come first, [N, B, ...].
"""

import math

import torch
from torch import Tensor

MULTIPLIER_FLOOR = 1e-7
"""Multipliers up to this count as at the lower limit of their unconstrained parameter."""


def critic_loss(values: Tensor, targets: Tensor) -> Tensor:
    """Return the critic's mean squared error (eq. 13).  [B], [B] -> []"""
    # LaTeX: \mathcal{L}_Q = \mathbb{E}_b[(Q(s_b, a_b) - y_b)^2]
    loss = ((values - targets) ** 2).mean()
    return loss


def reduced_values(values: Tensor, smaller: Tensor) -> Tensor:
    """Return the smaller or the mean of the critics' values.  [C, ...], bool [] -> [...]"""
    # LaTeX: Q_{min} = \min_c Q_c
    lowest = values.amin(0)
    # LaTeX: Q_{mean} = \frac{1}{C} \sum_c Q_c
    mean = values.mean(0)
    # LaTeX: Q = \begin{cases} Q_{min} & q = 1 \\ Q_{mean} & \text{otherwise} \end{cases}
    return torch.where(smaller, lowest, mean)


# --- E-step -----------------------------------------------------------------------------------------------------


def out_of_bounds_scores(actions: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return minus the distance of actions outside their bounds, in half-ranges.  [N, B, D], [D], [D] -> [N, B]"""
    # LaTeX: h_j = \frac{1}{2} (a_j^{high} - a_j^{low})
    half = 0.5 * (high - low)
    # LaTeX: x_{b,i,j} = \frac{1}{h_j} (a_{b,i,j} - \operatorname{clip}(a_{b,i,j}, a_j^{low}, a_j^{high}))
    excess = (actions - torch.clamp(actions, low, high)) / half
    # detached: the root's gradient is NaN for an action within its bounds, and no sampled action needs one
    # LaTeX: C_{b,i} = -\sqrt{\sum_j \operatorname{sg}(x_{b,i,j})^2}
    scores = -torch.sqrt((excess.detach() ** 2).sum(-1))
    return scores


def weights(scores: Tensor, temperature: Tensor) -> Tensor:
    """Return the E-step's weights (eq. 8), which sum to one over the samples of a state.  [N, B], [] -> [N, B]"""
    # LaTeX: \psi_{b,i} = \frac{\exp(Q_{b,i} / \eta)}{\sum_k \exp(Q_{b,k} / \eta)}
    psi = torch.softmax(scores / temperature, 0)
    return psi


def weights_kl(psi: Tensor) -> Tensor:
    """Return the KL of the weights from uniform ones, averaged over states, which the E-step bounds.  [N, B] -> []"""
    # LaTeX: D_\psi = \frac{1}{B} \sum_b \sum_i \psi_{b,i} \log(N \psi_{b,i})
    kl = torch.xlogy(psi, psi.shape[0] * psi).sum(0).mean()
    return kl


def weights_entropy(psi: Tensor) -> Tensor:
    """Return the entropy of the weights, averaged over states.  [N, B] -> []"""
    # LaTeX: \mathcal{H}_\psi = -\frac{1}{B} \sum_b \sum_i \psi_{b,i} \log\psi_{b,i}
    entropy = -torch.xlogy(psi, psi).sum(0).mean()
    return entropy


def temperature_loss(scores: Tensor, temperature: Tensor, bound: Tensor) -> Tensor:
    """Return the temperature's dual (eq. 9), whose derivative is bound - KL of the weights.  [N, B], [], [] -> []"""
    # LaTeX: \mathcal{L}_\eta = \eta (\epsilon_\eta + \frac{1}{B} \sum_b \log \sum_i \exp(Q_{b,i} / \eta) - \log N)
    loss = temperature * (bound + torch.logsumexp(scores / temperature, 0).mean() - math.log(scores.shape[0]))
    return loss


# --- E-step over all C choices of a discrete action, exact instead of sampled: [C, B] -----------------------------


def exact_weights(values: Tensor, log_prior: Tensor, temperature: Tensor) -> Tensor:
    """Return the E-step's policy, nonparametric in each state (eq. 8).  [C, B], [C, B], [] -> [C, B]"""
    # LaTeX: \psi_{b,c} = \frac{\exp(\log p'_{b,c} + Q_{b,c} / \eta)}{\sum_k \exp(\log p'_{b,k} + Q_{b,k} / \eta)}
    psi = torch.softmax(log_prior + values / temperature, 0)
    return psi


def exact_weights_kl(psi: Tensor, log_prior: Tensor) -> Tensor:
    """Return the KL of the E-step's policy from the target policy, averaged over states.  [C, B], [C, B] -> []"""
    # LaTeX: D_\psi = \frac{1}{B} \sum_b \sum_c \psi_{b,c} (\log\psi_{b,c} - \log p'_{b,c})
    kl = (torch.xlogy(psi, psi) - psi * log_prior).sum(0).mean()
    return kl


def exact_temperature_loss(values: Tensor, log_prior: Tensor, temperature: Tensor, bound: Tensor) -> Tensor:
    """Return the temperature's dual (eq. 9), with the expectation as a sum.  [C, B], [C, B], [], [] -> []"""
    # LaTeX: \mathcal{L}_\eta = \eta (\epsilon_\eta + \frac{1}{B} \sum_b \log \sum_c \exp(\log p'_{b,c} + Q_{b,c} / \eta))
    loss = temperature * (bound + torch.logsumexp(log_prior + values / temperature, 0).mean())
    return loss


# --- M-step -----------------------------------------------------------------------------------------------------


def weighted_nll(psi: Tensor, log_prob: Tensor) -> Tensor:
    """Return the weighted negative log-likelihood of the samples, averaged over states.  [N, B], [N, B] -> []

    The M-step has one for each trust region: L_{pi,mu} of the new mean with the old standard deviation, and
    L_{pi,sigma} of the old mean with the new standard deviation.
    """
    # LaTeX: \mathcal{L}_\pi = -\frac{1}{B} \sum_b \sum_i \psi_{b,i} \log\pi(a_{b,i}|s_b)
    loss = -(psi * log_prob).sum(0).mean()
    return loss


def mean_over_states(kls: Tensor) -> Tensor:
    """Return the KL of a trust region in each dimension, averaged over states.  [B, D] -> [D]"""
    # LaTeX: D_j = \frac{1}{B} \sum_b D_{b,j}
    kl = kls.mean(0)
    return kl


def dual_residual(kls: Tensor, bound: Tensor, multipliers: Tensor) -> Tensor:
    """Return the largest relative distance of a KL from its bound: 0 if multipliers are in equilibrium.  [D] -> []

    A multiplier at its lower limit cannot fall further: there a KL below the bound counts as distance 0.
    """
    # LaTeX: x_j = \frac{D_j - \epsilon}{\epsilon}
    excess = (kls - bound) / bound
    # LaTeX: F_j = \mathbf{1}[\alpha_j \leq \alpha_{min}]
    at_floor = multipliers <= MULTIPLIER_FLOOR
    # LaTeX: x_{max} = \max_j \begin{cases} \max(x_j, 0) & F_j = 1 \\ |x_j| & \text{otherwise} \end{cases}
    largest = torch.where(at_floor, torch.clamp(excess, min=0), torch.abs(excess)).max()
    return largest
