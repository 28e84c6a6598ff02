"""V-MPO's E-step and M-step (Song et al. 2019, section 4).

Shapes: n rows of a batch, D action dimensions; every argument and result is [n] unless it says otherwise. A mask is
1.0 in the rows it marks and 0.0 elsewhere.
"""

import torch
from torch import Tensor

from minerva.formulas.gaussian import gaussian_kl_mean, gaussian_kl_std
from minerva.formulas.returns import discounted_returns, gae, td_errors

# --- evaluate ---------------------------------------------------------------------------------------------------


def estimated(
    estimator: str, rollout: dict[str, Tensor], values: Tensor, next_values: Tensor, hyper: dict[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """Advantages and returns of a rollout by the estimator "returns", "gae" or "dae".  [T, E] each"""
    rewards, terminated, ended = rollout["rewards"], rollout["terminated"], rollout["ended"]
    if estimator == "returns":
        returns = discounted_returns(rewards, next_values, terminated, ended, hyper["gamma"])
        # LaTeX: A_t = G_t - V(s_t)
        advantages = returns - values
        return advantages, returns
    advantages = td_errors(rewards, values, next_values, terminated, hyper["gamma"])
    if estimator == "gae":
        advantages = gae(advantages, ended, hyper["gamma"], hyper["gae_lambda"])
    # LaTeX: G_t = A_t + V(s_t)
    returns = advantages + values
    return advantages, returns


# --- E-step -----------------------------------------------------------------------------------------------------


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
    """KL of the weights to the selected rows as they were drawn: the dual's slope is the bound minus this.  []"""
    # LaTeX: D_\psi = \sum_t \psi_t s_t - \log\bar{Z} + \log \sum_t \bar{w}_t
    kl = (weights * score).sum() - log_total + torch.log(counted.sum())
    return kl


def effective_sample_size(weights: Tensor) -> Tensor:
    """How many equally weighted rows would be as noisy.  []"""
    # LaTeX: ESS = \frac{1}{\sum_t \psi_t^2}
    size = 1 / (weights**2).sum()
    return size


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


def divergences(mean: Tensor, log_std: Tensor, old_mean: Tensor, old_log_std: Tensor) -> tuple[Tensor, Tensor]:
    """KL(old || new) of each row by its mean and by its spread.  [n, D] -> [n], [n]"""
    kl_mean = gaussian_kl_mean(mean, old_mean, old_log_std)
    kl_std = gaussian_kl_std(log_std, old_log_std)
    # LaTeX: D_{\mu,t} = \sum_j D_{\mu,t,j}
    by_mean = kl_mean.sum(-1)
    # LaTeX: D_{\sigma,t} = \sum_j D_{\sigma,t,j}
    by_std = kl_std.sum(-1)
    return by_mean, by_std


def mean_over(rows: Tensor, selected: Tensor, count: Tensor) -> Tensor:
    """Mean over the selected rows, of which there are `count`; the others may hold anything.  []"""
    # LaTeX: \bar{x} = \mathbb{E}_{t \in S}[x_t]
    mean = torch.where(selected > 0, rows, 0.0).sum() / count
    return mean


def constraints(
    mean: Tensor, log_std: Tensor, batch: dict[str, Tensor], selected: Tensor, count: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Both KLs over the selected rows, which are what is constrained, and as metrics also over all.  [2]"""
    by_mean, by_std = divergences(mean, log_std, batch["old_means"], batch["old_log_stds"])
    # LaTeX: D_\mu = \mathbb{E}_{t \in S}[D_{\mu,t}]
    kl_mu = mean_over(by_mean, selected, count)
    # LaTeX: D_\sigma = \mathbb{E}_{t \in S}[D_{\sigma,t}]
    kl_sigma = mean_over(by_std, selected, count)
    metrics = {"kl/mean": by_mean.mean(), "kl/std": by_std.mean(), "kl/mean_sel": kl_mu, "kl/std_sel": kl_sigma}
    return torch.stack([kl_mu, kl_sigma]), metrics


def constraint_loss(multipliers: Tensor, kls: Tensor, bounds: Tensor) -> Tensor:
    """Its gradient raises the multiplier of a KL over its bound and lowers that of one under it.  [2] each -> []"""
    alpha_mu, alpha_sigma = multipliers.unbind()
    kl_mu, kl_sigma = kls.unbind()
    epsilon_mu, epsilon_sigma = bounds.unbind()
    # LaTeX: \mathcal{L}_\alpha = \alpha_\mu (\epsilon_\mu - \operatorname{sg}(D_\mu)) + \alpha_\sigma (\epsilon_\sigma - \operatorname{sg}(D_\sigma))
    loss = alpha_mu * (epsilon_mu - kl_mu.detach()) + alpha_sigma * (epsilon_sigma - kl_sigma.detach())
    return loss


def penalized(nll: Tensor, multipliers: Tensor, kls: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The policy's loss and what the two constraints add to it.  [], [2], [2] -> []"""
    alpha_mu, alpha_sigma = multipliers.unbind()
    kl_mu, kl_sigma = kls.unbind()
    # LaTeX: P_\mu = \operatorname{sg}(\alpha_\mu) D_\mu
    mean_penalty = alpha_mu.detach() * kl_mu
    # LaTeX: P_\sigma = \operatorname{sg}(\alpha_\sigma) D_\sigma
    std_penalty = alpha_sigma.detach() * kl_sigma
    # LaTeX: \mathcal{L}_\pi = \mathcal{L}_\pi^{NLL} + P_\mu + P_\sigma
    loss = nll + mean_penalty + std_penalty
    return loss, mean_penalty, std_penalty


def value_loss(values: Tensor, returns: Tensor) -> Tensor:
    """Half the mean squared error of the values, over all rows.  []"""
    # LaTeX: \mathcal{L}_V = \frac{1}{2} \mathbb{E}_t[(V(s_t) - G_t)^2]
    loss = 0.5 * ((values - returns) ** 2).mean()
    return loss


# --- what an update learned from --------------------------------------------------------------------------------


def spreads(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    """Mean and biased standard deviation of each column, as metrics.  [] each"""
    means = {f"{name}_mean": rows.mean() for name, rows in columns.items()}
    return {**means, **{f"{name}_std": rows.std(correction=0) for name, rows in columns.items()}}
