"""Returns, advantages and the loss of a value network.

Shapes: T steps of E environments, [T, E] unless it says otherwise.

`terminated` marks e_t: the episode really ended and nothing follows. `ended` marks d_t: it ended or was cut by
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


def gae(deltas: Tensor, ended: Tensor, gamma: Tensor, gae_lambda: Tensor) -> Tensor:
    """Generalised advantage estimates (Schulman et al. 2016, eq. 16), cut at every episode's end."""
    advantages = []
    advantage = torch.zeros_like(deltas[0])
    for delta, done in zip(deltas.flip(0), ended.flip(0), strict=True):
        # LaTeX: A_t = \delta_t + \gamma \lambda (1 - d_t) A_{t+1}
        advantage = delta + gamma * gae_lambda * (1 - done) * advantage
        advantages.append(advantage)
    return torch.stack(advantages).flip(0)


def discounted_returns(
    rewards: Tensor, next_values: Tensor, terminated: Tensor, ended: Tensor, gamma: Tensor
) -> Tensor:
    """Discounted return to the end of the rollout, bootstrapped there and wherever a time limit cut."""
    returns = []
    next_return = next_values[-1]
    steps = (rewards.flip(0), next_values.flip(0), terminated.flip(0), ended.flip(0))
    for reward, next_value, end, done in zip(*steps, strict=True):
        # LaTeX: G_t = r_t + \gamma ((1 - d_t) G_{t+1} + d_t (1 - e_t) V(s_{t+1}))
        next_return = reward + gamma * ((1 - done) * next_return + done * (1 - end) * next_value)
        returns.append(next_return)
    return torch.stack(returns).flip(0)


def advantages_and_returns(
    estimator: str,
    rollout: dict[str, Tensor],
    values: Tensor,
    next_values: Tensor,
    gamma: Tensor,
    gae_lambda: Tensor,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns of a rollout's `rewards`, `terminated` and `ended`, by one of three estimators.

    "returns": the bootstrapped discounted return minus the value. "gae": generalised advantage estimates. "dae": the
    one-step temporal difference.
    """
    rewards, terminated, ended = rollout["rewards"], rollout["terminated"], rollout["ended"]
    if estimator == "returns":
        returns = discounted_returns(rewards, next_values, terminated, ended, gamma)
        # LaTeX: A_t = G_t - V(s_t)
        advantages = returns - values
        return advantages, returns
    advantages = td_errors(rewards, values, next_values, terminated, gamma)
    if estimator == "gae":
        advantages = gae(advantages, ended, gamma, gae_lambda)
    # LaTeX: G_t = A_t + V(s_t)
    returns = advantages + values
    return advantages, returns


def n_step_sums(rewards: Tensor, ended: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What T rows say of the first one's return: reward, discount of the state that follows, rows used.  -> [E] each

    Rows count until the first that ends an episode. The state that follows is that of the last row used.
    """
    # LaTeX: x_t = 1 - d_t
    goes_on = 1 - ended
    # LaTeX: m_t = \prod_{k<t} x_k
    counted = torch.cat((torch.ones_like(ended[:1]), torch.cumprod(goes_on, 0)[:-1]))
    steps = torch.arange(rewards.shape[0], dtype=rewards.dtype, device=rewards.device).unsqueeze(-1)
    # LaTeX: R = \sum_t \gamma^t m_t r_t
    total = (gamma**steps * counted * rewards).sum(0)
    # LaTeX: n = \sum_t m_t
    used = counted.sum(0)
    # LaTeX: \Gamma = \gamma^n
    discount = gamma**used
    return total, discount, used


def bootstrapped(rewards: Tensor, discount: Tensor, next_values: Tensor, terminated: Tensor) -> Tensor:
    """Reward and the discounted value of the state that follows it, unless the episode terminated.  [E] -> [E]"""
    # LaTeX: y = R + \Gamma (1 - e) V(s')
    target = rewards + discount * (1 - terminated) * next_values
    return target


def trace_coefficients(log_prob: Tensor, behaviour_log_prob: Tensor, retrace_lambda: Tensor) -> Tensor:
    """How much of what follows a row Retrace believes: the less, the less likely its action has become."""
    # LaTeX: \rho_t = \exp(\log\pi'(a_t|s_t) - \log b(a_t|s_t))
    ratio = torch.exp(log_prob - behaviour_log_prob)
    # LaTeX: c_t = \lambda \min(1, \rho_t)
    traces = retrace_lambda * torch.clamp(ratio, max=1.0)
    return traces


def retrace(values: Tensor, deltas: Tensor, traces: Tensor, ended: Tensor, gamma: Tensor) -> Tensor:
    """Retrace's target for the first row (Munos et al. 2016, eq. 4), the trace cut at an episode's end.  -> [E]

    `values` are Q' of the rows' own actions. The sum over time is taken from its end: each weight gamma^t c_1...c_t
    is then the product of the steps on the way, and nothing overflows.
    """
    following = torch.zeros_like(deltas[0])
    next_trace = torch.zeros_like(deltas[0])
    for delta, trace, done in zip(deltas.flip(0), traces.flip(0), ended.flip(0), strict=True):
        # LaTeX: \Delta_t = \delta_t + \gamma c_{t+1} (1 - d_t) \Delta_{t+1}
        following = delta + gamma * next_trace * (1 - done) * following
        next_trace = trace
    # LaTeX: Q^{ret} = Q'(s_0, a_0) + \Delta_0
    target = values[0] + following
    return target


def discounted_sums(rewards: Tensor, ended: Tensor, before: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """Reward summed forward with discount since each episode's start.

    `before` [E] is the sum carried into the first row; the sums of all rows and the one to carry on are returned.
    """
    sums = []
    running = before
    for reward, done in zip(rewards, ended, strict=True):
        # LaTeX: R_t = r_t + \gamma R'_{t-1}
        total = reward + gamma * running
        sums.append(total)
        # LaTeX: R'_t = (1 - d_t) R_t
        running = (1 - done) * total
    return torch.stack(sums), running


def normalize(advantages: Tensor, correction: int) -> Tensor:
    """Zero mean and unit standard deviation over all rows; a single row becomes zero.

    With `correction` 1 the standard deviation is the unbiased one, with 0 the biased.
    """
    correction = min(correction, advantages.numel() - 1)
    # LaTeX: \bar{A} = \mathbb{E}_t[A_t]
    mean = advantages.mean()
    # LaTeX: \sigma_A = \sqrt{\frac{1}{n - c} \sum_t (A_t - \bar{A})^2}
    std = advantages.std(correction=correction)
    # LaTeX: \hat{A}_t = \frac{A_t - \bar{A}}{\sigma_A + \varepsilon_0}
    normalized = (advantages - mean) / (std + EPS_0)
    return normalized


def value_loss(values: Tensor, returns: Tensor) -> Tensor:
    """Half the mean squared error of a value network, over all rows.  [n], [n] -> []"""
    # LaTeX: \mathcal{L}_V = \frac{1}{2} \mathbb{E}_t[(V(s_t) - G_t)^2]
    loss = 0.5 * ((values - returns) ** 2).mean()
    return loss


def explained_variance(values: Tensor, returns: Tensor) -> Tensor:
    """Share of the returns' variance that the values explain: 1 is perfect, 0 is no better than a constant."""
    # LaTeX: EV = 1 - \frac{\operatorname{Var}_t(G_t - V_t)}{\operatorname{Var}_t(G_t) + \varepsilon_0}
    explained = 1 - (returns - values).var(correction=0) / (returns.var(correction=0) + EPS_0)
    return explained
