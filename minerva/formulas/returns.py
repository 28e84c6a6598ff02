"""Returns, advantages and the value loss.

Shapes: T steps of E environments, [T, E] unless stated otherwise.

`terminated` is e_t: the task ended and no reward follows. `ended` is d_t: terminated or truncated by a time limit, so
the next row belongs to another episode. `next_values` are the values of the true next observations, also where an
episode was truncated.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

EPS_0 = 1e-8


def td_errors(rewards: Tensor, values: Tensor, next_values: Tensor, terminated: Tensor, gamma: Tensor) -> Tensor:
    """Return one-step temporal differences; a truncated step bootstraps, a terminated one does not."""
    # LaTeX: \delta_t = r_t + \gamma (1 - e_t) V(s_{t+1}) - V(s_t)
    deltas = rewards + gamma * (1 - terminated) * next_values - values
    return deltas


# LaTeX: A_t = \sum_{k \geq t} (\gamma \lambda)^{k-t} \delta_k \prod_{l=t}^{k-1} (1 - d_l)
def gae(deltas: Tensor, ended: Tensor, gamma: Tensor, gae_lambda: Tensor) -> Tensor:
    """Return generalised advantage estimates (Schulman et al. 2016, eq. 16), cut at every episode's end."""
    advantages = []
    advantage = torch.zeros_like(deltas[0])
    for delta, step_ended in zip(deltas.flip(0), ended.flip(0), strict=True):
        # LaTeX: A_t = \delta_t + \gamma \lambda (1 - d_t) A_{t+1}
        advantage = delta + gamma * gae_lambda * (1 - step_ended) * advantage
        advantages.append(advantage)
    return torch.stack(advantages).flip(0)


# LaTeX: G_t = \sum_{k \geq t} \gamma^{k-t} (r_k + \gamma (d_k (1 - e_k) + (1 - d_k) \mathbf{1}[k = T - 1]) V(s_{k+1})) \prod_{l=t}^{k-1} (1 - d_l)
def discounted_returns(
    rewards: Tensor, next_values: Tensor, terminated: Tensor, ended: Tensor, gamma: Tensor
) -> Tensor:
    """Return discounted returns to the end of the rollout, bootstrapped there and at truncations."""
    returns = []
    next_return = next_values[-1]
    steps = (rewards.flip(0), next_values.flip(0), terminated.flip(0), ended.flip(0))
    for reward, next_value, step_terminated, step_ended in zip(*steps, strict=True):
        # LaTeX: G_t = r_t + \gamma ((1 - d_t) G_{t+1} + d_t (1 - e_t) V(s_{t+1}))
        next_return = reward + gamma * (
            (1 - step_ended) * next_return + step_ended * (1 - step_terminated) * next_value
        )
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
    """Return advantages and returns of a rollout, which holds `rewards`, `terminated` and `ended`.

    Advantages by `estimator`: "returns", the bootstrapped discounted return minus the value; "gae", generalised
    advantage estimation; "dae", the one-step temporal difference.
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


# LaTeX: R = \sum_t \gamma^t r_t \prod_{k<t} (1 - d_k)
# LaTeX: \Gamma = \gamma^{\sum_t \prod_{k<t} (1 - d_k)}
# LaTeX: n = \sum_t \prod_{k<t} (1 - d_k)
def n_step_sums(rewards: Tensor, ended: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the n-step discounted reward, the discount of the bootstrap value, and n.  [T, E] -> [E] each

    n is T, or fewer where an episode ends earlier: rows after an episode's end are not used. The value to bootstrap
    from is that of the state after the last row used.
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


def n_step_transition(batch: Mapping[str, Tensor], gamma: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the n-step reward, and discount, `terminated` and observation of the state to bootstrap from.

    `batch` has time first: `rewards`, `ended`, `terminated` [T, B], `next_obs` [T, B, O].  -> [B] thrice, [B, O]
    """
    rewards, discount, used = n_step_sums(batch["rewards"], batch["ended"], gamma)
    last = used.long().unsqueeze(0) - 1
    terminated = torch.take_along_dim(batch["terminated"], last, 0).squeeze(0)
    next_obs = torch.take_along_dim(batch["next_obs"], last.unsqueeze(-1), 0).squeeze(0)
    return rewards, discount, terminated, next_obs


def bootstrapped(rewards: Tensor, discount: Tensor, next_values: Tensor, terminated: Tensor) -> Tensor:
    """Return the TD target: reward plus the discounted next value, unless terminated.  [E] -> [E]"""
    # LaTeX: y = R + \Gamma (1 - e) V(s')
    target = rewards + discount * (1 - terminated) * next_values
    return target


def trace_coefficients(log_prob: Tensor, behaviour_log_prob: Tensor, retrace_lambda: Tensor) -> Tensor:
    """Return Retrace's trace coefficients: lambda times the importance ratio, truncated at 1."""
    # LaTeX: \rho_t = \exp(\log\pi'(a_t|s_t) - \log b(a_t|s_t))
    ratio = torch.exp(log_prob - behaviour_log_prob)
    # LaTeX: c_t = \lambda \min(1, \rho_t)
    traces = retrace_lambda * torch.clamp(ratio, max=1.0)
    return traces


# LaTeX: Q^{ret} = Q'(s_0, a_0) + \sum_t \gamma^t \delta_t \prod_{k<t} c_{k+1} (1 - d_k)
def retrace(values: Tensor, deltas: Tensor, traces: Tensor, ended: Tensor, gamma: Tensor) -> Tensor:
    """Return Retrace's target for the first row (Munos et al. 2016, eq. 4); an episode's end cuts the trace.  -> [E]

    `values` are Q' of the stored actions. The sum over time is accumulated backwards, so the weights gamma^t c_1...c_t
    are built up factor by factor and nothing overflows.
    """
    following = torch.zeros_like(deltas[0])
    next_trace = torch.zeros_like(deltas[0])
    for delta, trace, step_ended in zip(deltas.flip(0), traces.flip(0), ended.flip(0), strict=True):
        # LaTeX: \Delta_t = \delta_t + \gamma c_{t+1} (1 - d_t) \Delta_{t+1}
        following = delta + gamma * next_trace * (1 - step_ended) * following
        next_trace = trace
    # LaTeX: Q^{ret} = Q'(s_0, a_0) + \Delta_0
    target = values[0] + following
    return target


# LaTeX: R_t = \sum_{k \leq t} \gamma^{t-k} r_k \prod_{l=k}^{t-1} (1 - d_l) + \gamma^{t+1} \bar{R} \prod_{l<t} (1 - d_l)
# LaTeX: \bar{R}' = \sum_t \gamma^{T-1-t} r_t \prod_{l \geq t} (1 - d_l) + \gamma^T \bar{R} \prod_t (1 - d_t)
def discounted_sums(rewards: Tensor, ended: Tensor, before: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """Return discounted reward sums since each episode's start [T, E], and the sum to carry into the next call [E].

    `before` [E] is the sum carried over from the previous call.
    """
    sums = []
    running = before
    for reward, step_ended in zip(rewards, ended, strict=True):
        # LaTeX: R_t = r_t + \gamma R'_{t-1}
        total = reward + gamma * running
        sums.append(total)
        # LaTeX: R'_t = (1 - d_t) R_t
        running = (1 - step_ended) * total
    return torch.stack(sums), running


def without_outliers(rewards: Tensor, largest: Tensor) -> tuple[Tensor, Tensor]:
    """Return rewards clipped to ten times the largest before them, and the largest.  [T, E], [] -> [T, E], []

    One reward out of all proportion then counts little; if they become the rule, a few steps suffice.
    """
    kept = []
    for reward in rewards:
        # LaTeX: \ell = \begin{cases} 10 m' & m' > 0 \\ \infty & \text{otherwise} \end{cases}
        limit = torch.where(largest > 0, 10 * largest, torch.full_like(largest, torch.inf))
        # LaTeX: x_k = \operatorname{clip}(r_k, -\ell, \ell)
        clipped = torch.clamp(reward, -limit, limit)
        kept.append(clipped)
        # LaTeX: m = \max(m', \max_k |x_k|)
        new_largest = torch.maximum(largest, torch.abs(clipped).max())
        largest = new_largest
    return torch.stack(kept), largest


def largest_return(
    rewards: Tensor, before: Tensor, largest: Tensor, gamma: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor]:
    """Return each environment's discounted reward sum after one more step, and its largest, slowly forgotten.

    A reward counts for no more than the largest return: one that is out of all proportion can at most double it, and if
    such rewards are the rule, a few steps suffice.  [E] thrice -> [E] twice
    """
    # LaTeX: \ell_k = \begin{cases} m'_k & m'_k > 0 \\ \infty & \text{otherwise} \end{cases}
    limit = torch.where(largest > 0, largest, torch.full_like(largest, torch.inf))
    # LaTeX: x_k = \operatorname{clip}(r_k, -\ell_k, \ell_k)
    clipped = torch.clamp(rewards, -limit, limit)
    # LaTeX: R_k = x_k + \gamma R'_k
    sums = clipped + gamma * before
    # LaTeX: m_k = \max(\phi m'_k, |R_k|)
    new_largest = torch.maximum(kept * largest, torch.abs(sums))
    return sums, new_largest


def normalize(advantages: Tensor, correction: int) -> Tensor:
    """Normalise advantages to zero mean and unit standard deviation over all rows; a single row becomes zero.

    `correction` is 1 for the unbiased standard deviation (Bessel's correction), 0 for the biased one.
    """
    # LaTeX: c = \min(c', n - 1)
    bessel = min(correction, advantages.numel() - 1)
    # LaTeX: \bar{A} = \mathbb{E}_t[A_t]
    mean = advantages.mean()
    # LaTeX: \sigma_A = \sqrt{\frac{1}{n - c} \sum_t (A_t - \bar{A})^2}
    std = advantages.std(correction=bessel)
    # LaTeX: \hat{A}_t = \frac{A_t - \bar{A}}{\sigma_A + \varepsilon_0}
    normalized = (advantages - mean) / (std + EPS_0)
    return normalized


def mean_square(advantages: Tensor) -> Tensor:
    """Return the mean square of advantages over all rows.  [n] -> []"""
    # LaTeX: m = \mathbb{E}_t[A_t^2]
    square = (advantages**2).mean()
    return square


def usual_square(square: Tensor, before: Tensor, memory: Tensor) -> Tensor:
    """Return the running mean of the mean squares of rollouts' advantages, after one more."""
    # LaTeX: v' = \beta v + (1 - \beta) m
    after = memory * before + (1 - memory) * square
    return after


def pace(square: Tensor, usual: Tensor) -> Tensor:
    """Return the part of a step that a rollout is worth: less than 1 if its advantages are below half the usual."""
    # LaTeX: \kappa = \begin{cases} \frac{4 m}{v} & 4 m < v \\ 1 & \text{otherwise} \end{cases}
    share = torch.where(4 * square < usual, 4 * square / usual, 1.0)
    return share


def value_loss(values: Tensor, returns: Tensor) -> Tensor:
    """Return half the mean squared error of the values over all rows.  [n], [n] -> []"""
    # LaTeX: \mathcal{L}_V = \frac{1}{2} \mathbb{E}_t[(V(s_t) - G_t)^2]
    loss = 0.5 * ((values - returns) ** 2).mean()
    return loss


def explained_variance(values: Tensor, returns: Tensor) -> Tensor:
    """Return the share of the returns' variance that the values explain: 1 is perfect, 0 as good as a constant."""
    # LaTeX: EV = 1 - \frac{\operatorname{Var}_t(G_t - V_t)}{\operatorname{Var}_t(G_t) + \varepsilon_0}
    explained = 1 - (returns - values).var(correction=0) / (returns.var(correction=0) + EPS_0)
    return explained
