"""Categorical distributions: over discrete actions, and over the atoms of a distributional critic.

Shapes: C choices; D choices at once; A atoms, evenly spaced; B rows; leading axes are free. Atoms z_k span
[-range, range] with spacing Delta; a target outside that range is clipped to it.
"""

import math

import torch
from torch import Tensor

HISTOGRAM_STD = 0.75
"""Standard deviation of HL-Gauss in units of the atom spacing, as Farebrother et al. (2024) recommend."""


# --- actions ----------------------------------------------------------------------------------------------------


def sampled_choices(logits: Tensor, noise: Tensor) -> Tensor:
    """Sample choices by the Gumbel-max trick, one or more per state.  [B, C], [..., B, C] -> [..., B]"""
    # LaTeX: x_c = \ell_c + \xi_c
    perturbed = logits + noise
    # LaTeX: a = \arg\max_c x_c
    return perturbed.argmax(-1)


def categorical_log_prob(logits: Tensor, choices: Tensor) -> Tensor:
    """Return the log-probability of each choice, of which a state may have several.  [..., C], [N, ...] -> [N, ...]"""
    # LaTeX: \log\bar{Z} = \log \sum_c \exp(\ell_c)
    log_total = torch.logsumexp(logits, -1)
    # LaTeX: \ell_a = \sum_c \mathbf{1}[c = a] \ell_c
    chosen = torch.take_along_dim(logits.expand(*choices.shape, -1), choices.unsqueeze(-1), -1).squeeze(-1)
    # LaTeX: \log\pi(a|s) = \ell_a - \log\bar{Z}
    log_prob = chosen - log_total
    return log_prob


def categorical_entropy(logits: Tensor) -> Tensor:
    """Return the entropy of each categorical distribution.  [..., C] -> [...]"""
    # LaTeX: \log p_c = \ell_c - \log \sum_l \exp(\ell_l)
    log_probabilities = torch.log_softmax(logits, -1)
    # LaTeX: \mathcal{H} = -\sum_c \exp(\log p_c) \log p_c
    entropy = -(torch.exp(log_probabilities) * log_probabilities).sum(-1)
    return entropy


def categorical_kl(logits: Tensor, old_logits: Tensor) -> Tensor:
    """Return KL(old || new) of categorical distributions.  [..., C], [..., C] -> [...]"""
    # LaTeX: \log p_c = \ell_c - \log \sum_l \exp(\ell_l)
    log_probabilities = torch.log_softmax(logits, -1)
    # LaTeX: \log p'_c = \ell'_c - \log \sum_l \exp(\ell'_l)
    old_log_probabilities = torch.log_softmax(old_logits, -1)
    # LaTeX: D = \sum_c \exp(\log p'_c) (\log p'_c - \log p_c)
    kl = (torch.exp(old_log_probabilities) * (old_log_probabilities - log_probabilities)).sum(-1)
    return kl


def expectation(values: Tensor, log_probabilities: Tensor) -> Tensor:
    """Return the expected value of one of C choices.  [C, ...], [C, ...] -> [...]"""
    # LaTeX: V = \sum_c \exp(\log p_c) Q_c
    expected = (torch.exp(log_probabilities) * values).sum(0)
    return expected


def joint(parts: Tensor) -> Tensor:
    """Return log-probability, entropy or KL of D independent choices, from that of each.  [D, ...] -> [...]"""
    # LaTeX: x = \sum_j x_j
    total = parts.sum(0)
    return total


# --- values -----------------------------------------------------------------------------------------------------


def expected_value(logits: Tensor, atoms: Tensor) -> Tensor:
    """Return the mean of the distribution over atoms that the logits describe.  [..., A], [A] -> [...]"""
    # LaTeX: p_k = \frac{\exp(\ell_k)}{\sum_l \exp(\ell_l)}
    probabilities = torch.softmax(logits, -1)
    # LaTeX: Q = \sum_k p_k z_k
    value = (probabilities * atoms).sum(-1)
    return value


def projection(positions: Tensor, probabilities: Tensor, atoms: Tensor) -> Tensor:
    """Project a distribution over arbitrary positions onto the atoms (C51; Bellemare et al. 2017, eq. 7).

    With a single position this is the two-hot encoding, whose mean is that position.  [B, P], [B, P], [A] -> [B, A]
    """
    # LaTeX: \Delta = z_2 - z_{min}
    spacing = atoms[1] - atoms[0]
    # LaTeX: x_{b,j} = \operatorname{clip}(y_{b,j}, z_{min}, z_{max})
    inside = torch.clamp(positions, atoms[0], atoms[-1])
    # LaTeX: w_{b,j,k} = \max(1 - \frac{|x_{b,j} - z_k|}{\Delta}, 0)
    shares = torch.clamp(1 - torch.abs(inside.unsqueeze(-1) - atoms) / spacing, min=0)
    # LaTeX: m_{b,k} = \sum_j p_{b,j} w_{b,j,k}
    projected = (probabilities.unsqueeze(-1) * shares).sum(-2)
    return projected


def gaussian_histogram(targets: Tensor, atoms: Tensor) -> Tensor:
    """Encode a scalar target as a Gaussian histogram over atoms (HL-Gauss, Imani and White 2018).  [B], [A] -> [B, A]

    Several neighbouring atoms share every target, so their spacing matters little.
    """
    # LaTeX: \Delta = z_2 - z_{min}
    spacing = atoms[1] - atoms[0]
    # LaTeX: u'_k = z_k - \frac{1}{2} \Delta
    lower = atoms - 0.5 * spacing
    # LaTeX: u_{max} = z_{max} + \frac{1}{2} \Delta
    last = atoms[-1] + 0.5 * spacing
    edges = torch.cat((lower, last.unsqueeze(0)))
    # LaTeX: x_b = \operatorname{clip}(y_b, z_{min}, z_{max})
    inside = torch.clamp(targets, atoms[0], atoms[-1])
    # LaTeX: F_{b,k} = \frac{1}{2} (1 + \operatorname{erf}(\frac{u_k - x_b}{\sqrt{2} \varsigma \Delta}))
    below = 0.5 * (1 + torch.erf((edges - inside.unsqueeze(-1)) / (math.sqrt(2) * HISTOGRAM_STD * spacing)))
    # LaTeX: f_{b,k} = F_{b,k+1} - F_{b,k}
    mass = below[..., 1:] - below[..., :-1]
    # LaTeX: m_{b,k} = \frac{f_{b,k}}{\sum_l f_{b,l}}
    histogram = mass / mass.sum(-1, keepdim=True)
    return histogram


def cross_entropy(logits: Tensor, probabilities: Tensor) -> Tensor:
    """Return the cross-entropy of the predicted from the target distribution, averaged over rows.  [B, A] -> []"""
    # LaTeX: \log p_{b,k} = \ell_{b,k} - \log \sum_l \exp(\ell_{b,l})
    log_probabilities = torch.log_softmax(logits, -1)
    # LaTeX: \mathcal{L}_Q = -\mathbb{E}_b[\sum_k m_{b,k} \log p_{b,k}]
    loss = -(probabilities * log_probabilities).sum(-1).mean()
    return loss
