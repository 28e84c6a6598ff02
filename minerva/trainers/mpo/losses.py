"""MPO's losses. Shapes: B states, N actions sampled in each, D action dimensions; samples come first, [N, B, ...]."""

import math

import torch
from torch import Tensor

AT_FLOOR = 1e-7
"""A multiplier this small is at the floor of its unconstrained parameter, or as good as there."""


def critic_loss(values: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error of the critic.  [B], [B] -> []"""
    # LaTeX: \mathcal{L}_Q = \mathbb{E}_b[(Q(s_b, a_b) - y_b)^2]
    loss = ((values - targets) ** 2).mean()
    return loss


# --- E-step -----------------------------------------------------------------------------------------------------


def out_of_bounds_scores(actions: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Minus the distance of each action to its bounds, in units of half their width.  [N, B, D], [D], [D] -> [N, B]"""
    # LaTeX: h_j = \frac{1}{2} (a_j^{high} - a_j^{low})
    half = 0.5 * (high - low)
    # LaTeX: x_{b,i,j} = \frac{1}{h_j} (a_{b,i,j} - \operatorname{clip}(a_{b,i,j}, a_j^{low}, a_j^{high}))
    excess = (actions - torch.clamp(actions, low, high)) / half
    # LaTeX: C_{b,i} = -\sqrt{\sum_j x_{b,i,j}^2}
    scores = -torch.sqrt((excess**2).sum(-1))
    return scores


def weights(scores: Tensor, temperature: Tensor) -> Tensor:
    """How much each sample counts; those of a state add up to one.  [N, B], [] -> [N, B]"""
    # LaTeX: \psi_{b,i} = \frac{\exp(Q_{b,i} / \eta)}{\sum_k \exp(Q_{b,k} / \eta)}
    psi = torch.softmax(scores / temperature, 0)
    return psi


def weights_kl(psi: Tensor) -> Tensor:
    """KL of the weights from equal ones, the mean over states: what the E-step's bound limits.  [N, B] -> []"""
    n = psi.shape[0]
    # LaTeX: D_\psi = \frac{1}{B} \sum_b \sum_i \psi_{b,i} \log(N \psi_{b,i})
    kl = torch.xlogy(psi, n * psi).sum(0).mean()
    return kl


def weights_entropy(psi: Tensor) -> Tensor:
    """Entropy of the weights, the mean over states.  [N, B] -> []"""
    # LaTeX: \mathcal{H}_\psi = -\frac{1}{B} \sum_b \sum_i \psi_{b,i} \log\psi_{b,i}
    entropy = -torch.xlogy(psi, psi).sum(0).mean()
    return entropy


def temperature_loss(scores: Tensor, temperature: Tensor, bound: Tensor) -> Tensor:
    """The temperature's dual: its derivative is the bound minus the KL of the weights.  [N, B], [], [] -> []"""
    log_n = math.log(scores.shape[0])
    # LaTeX: \mathcal{L}_\eta = \eta (\epsilon_\eta + \frac{1}{B} \sum_b \log \sum_i \exp(Q_{b,i} / \eta) - \log N)
    loss = temperature * (bound + torch.logsumexp(scores / temperature, 0).mean() - log_n)
    return loss


# --- M-step -----------------------------------------------------------------------------------------------------


def weighted_nll(psi: Tensor, log_prob: Tensor) -> Tensor:
    """Weighted negative log-likelihood of the samples, the mean over states.  [N, B], [N, B] -> []

    The M-step has one for each trust region: L_{pi,mu} of the new mean with the old standard deviation, and
    L_{pi,sigma} of the old mean with the new standard deviation.
    """
    # LaTeX: \mathcal{L}_\pi = -\frac{1}{B} \sum_b \sum_i \psi_{b,i} \log\pi(a_{b,i}|s_b)
    loss = -(psi * log_prob).sum(0).mean()
    return loss


def mean_over_states(kls: Tensor) -> Tensor:
    """KL of a trust region in each dimension, which its bound limits.  [B, D] -> [D]"""
    # LaTeX: D_j = \frac{1}{B} \sum_b D_{b,j}
    kl = kls.mean(0)
    return kl


def dual_residual(kls: Tensor, bound: Tensor, multipliers: Tensor) -> Tensor:
    """The largest distance of a KL from its bound, relative to it: 0 where multipliers have come to rest.  [D] -> []

    A multiplier at its floor has nothing left to give: there a KL below the bound is no distance.
    """
    # LaTeX: x_j = \frac{D_j - \epsilon}{\epsilon}
    excess = (kls - bound) / bound
    at_floor = multipliers <= AT_FLOOR
    return torch.where(at_floor, torch.clamp(excess, min=0), torch.abs(excess)).max()
