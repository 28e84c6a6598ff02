"""SAC's losses (Haarnoja et al. 2018b). Shapes: B states; K parameters."""

import torch
from torch import Tensor


def soft_values(first: Tensor, second: Tensor, log_prob: Tensor, temperature: Tensor) -> Tensor:
    """Return the soft values of the next states (eq. 3), from both target critics.  [B] thrice, [] -> [B]"""
    # LaTeX: V(s'_b) = \min(Q'_1(s'_b, a'_b), Q'_2(s'_b, a'_b)) - \alpha \log\pi(a'_b|s'_b)
    values = torch.minimum(first, second) - temperature * log_prob
    return values


def critic_loss(first: Tensor, second: Tensor, targets: Tensor) -> Tensor:
    """Return half the mean squared errors of both critics, added (eq. 5).  [B] thrice -> []"""
    # LaTeX: \mathcal{L}_Q = \mathbb{E}_b[\frac{1}{2} (Q_1(s_b, a_b) - y_b)^2 + \frac{1}{2} (Q_2(s_b, a_b) - y_b)^2]
    loss = (0.5 * (first - targets) ** 2 + 0.5 * (second - targets) ** 2).mean()
    return loss


def averaged(target: Tensor, online: Tensor, tau: Tensor) -> Tensor:
    """Return the target critics' parameters, moved towards the online ones.  [K], [K], [] -> [K]"""
    # LaTeX: \theta''_k = \theta'_k + \tau (\theta_k - \theta'_k)
    moved = target + tau * (online - target)
    return moved


def policy_loss(first: Tensor, second: Tensor, log_prob: Tensor, temperature: Tensor) -> Tensor:
    """Return the policy's loss (eq. 9), from both critics' values of its actions.  [B] thrice, [] -> []"""
    # LaTeX: \mathcal{L}_\pi = \mathbb{E}_b[\alpha \log\pi(a_b|s_b) - \min(Q_1(s_b, a_b), Q_2(s_b, a_b))]
    loss = (temperature * log_prob - torch.minimum(first, second)).mean()
    return loss


def positive_temperature(log_temperature: Tensor) -> Tensor:
    """Return the temperature from its logarithm, which is what is learned.  [] -> []"""
    # LaTeX: \alpha = \exp(\log\alpha)
    temperature = torch.exp(log_temperature)
    return temperature


def temperature_loss(temperature: Tensor, log_prob: Tensor, target_entropy: Tensor) -> Tensor:
    """Return the temperature's loss (eq. 18), with the log-densities as constants.  [], [B], [] -> []"""
    # LaTeX: \mathcal{L}_\alpha = -\alpha \mathbb{E}_b[\log\pi(a_b|s_b) + \bar{\mathcal{H}}]
    loss = -temperature * (log_prob + target_entropy).mean()
    return loss
