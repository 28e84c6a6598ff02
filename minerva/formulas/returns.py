"""Returns and advantages along time. Shapes: T steps of E environments, [T, E] unless it says otherwise.

`terminated` marks e_t: the episode really ended and nothing follows. `dones` marks d_t: it ended or was cut by
a time limit, so the next row belongs to another episode. `next_values` are those of the true next observation,
also where the episode was cut.
"""

import torch
from torch import Tensor

EPS_0 = 1e-8


def td_errors(rewards: Tensor, values: Tensor, next_values: Tensor, terminated: Tensor, gamma: Tensor) -> Tensor:
    """One-step temporal differences: a time limit bootstraps, a termination does not."""
    # LaTeX: \delta_t = r_t + \gamma (1 - e_t) V(s_{t+1}) - V(s_t)
    deltas = rewards + gamma * (1 - terminated) * next_values - values
    return deltas


def gae(deltas: Tensor, dones: Tensor, gamma: Tensor, gae_lambda: Tensor) -> Tensor:
    """Generalised advantage estimates (Schulman et al. 2016, eq. 16), cut at every episode's end."""
    advantages = []
    advantage = torch.zeros_like(deltas[0])
    for delta, done in zip(deltas.flip(0), dones.flip(0), strict=True):
        # LaTeX: A_t = \delta_t + \gamma \lambda (1 - d_t) A_{t+1}
        advantage = delta + gamma * gae_lambda * (1 - done) * advantage
        advantages.append(advantage)
    return torch.stack(advantages).flip(0)


def discounted_returns(
    rewards: Tensor, next_values: Tensor, terminated: Tensor, dones: Tensor, gamma: Tensor
) -> Tensor:
    """Discounted return to the end of the rollout, bootstrapped there and wherever a time limit cut."""
    returns = []
    following = next_values[-1]
    steps = (rewards.flip(0), next_values.flip(0), terminated.flip(0), dones.flip(0))
    for reward, next_value, end, done in zip(*steps, strict=True):
        # LaTeX: G_t = r_t + \gamma ((1 - d_t) G_{t+1} + d_t (1 - e_t) V(s_{t+1}))
        following = reward + gamma * ((1 - done) * following + done * (1 - end) * next_value)
        returns.append(following)
    return torch.stack(returns).flip(0)


def discounted_sums(rewards: Tensor, dones: Tensor, before: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """Reward summed forward with discount since each episode's start.

    `before` [E] is the sum carried into the first row; the sums of all rows and the one to carry on are returned.
    """
    sums = []
    running = before
    for reward, done in zip(rewards, dones, strict=True):
        # LaTeX: R_t = r_t + \gamma R_{t-1}
        total = reward + gamma * running
        sums.append(total)
        # LaTeX: R_t = (1 - d_t) R_t
        running = (1 - done) * total
    return torch.stack(sums), running


def normalize(advantages: Tensor) -> Tensor:
    """Zero mean and unit (unbiased) standard deviation over all rows; a single row becomes zero."""
    correction = 1 if advantages.numel() > 1 else 0
    # LaTeX: \bar{A} = \mathbb{E}_t[A_t]
    mean = advantages.mean()
    # LaTeX: \sigma_A = \operatorname{Std}(A_t)
    std = advantages.std(correction=correction)
    # LaTeX: \hat{A}_t = \frac{A_t - \bar{A}}{\sigma_A + \varepsilon_0}
    normalized = (advantages - mean) / (std + EPS_0)
    return normalized


def explained_variance(values: Tensor, returns: Tensor) -> Tensor:
    """Share of the returns' variance that the values explain: 1 is perfect, 0 is no better than a constant."""
    # LaTeX: EV = 1 - \frac{\operatorname{Var}(G_t - V_t)}{\operatorname{Var}(G_t) + \varepsilon_0}
    explained = 1 - (returns - values).var(correction=0) / (returns.var(correction=0) + EPS_0)
    return explained
