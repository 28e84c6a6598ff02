"""Running mean and variance, effective sample size, and the linear schedule."""

import torch
from torch import Tensor

SORTED_ROWS = 4096
"""About as many rows show how far apart values lie."""


# LaTeX: \mu'_j = \mu_j + \frac{n}{c + n} (\mathbb{E}_i[x_{i,j}] - \mu_j)
# LaTeX: v'_j = \frac{c v_j + n \operatorname{Var}_i(x_{i,j})}{c + n} + \frac{c n}{(c + n)^2} (\mathbb{E}_i[x_{i,j}] - \mu_j)^2
# LaTeX: c' = c + n
def combine_moments(mean: Tensor, var: Tensor, count: Tensor, batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return running mean, variance and count, updated with the rows of `batch` [n, D]."""
    return merge_moments(mean, var, count, batch.mean(0), batch.var(0, correction=0), batch.shape[0])


# LaTeX: \mu'_j = \mu_j + \frac{n}{c + n} (\bar{x}_j - \mu_j)
# LaTeX: v'_j = \frac{c v_j + n \bar{v}_j}{c + n} + \frac{c n}{(c + n)^2} (\bar{x}_j - \mu_j)^2
# LaTeX: c' = c + n
def merge_moments(
    mean: Tensor, var: Tensor, count: Tensor, batch_mean: Tensor, batch_var: Tensor, n: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return running mean, variance and count, merged with those of n rows (Chan et al. 1979); exact in any order."""
    # LaTeX: \Delta_j = \bar{x}_j - \mu_j
    delta = batch_mean - mean
    # LaTeX: c' = c + n
    new_count = count + n
    # LaTeX: \mu'_j = \mu_j + \frac{n}{c'} \Delta_j
    new_mean = mean + n / new_count * delta
    # LaTeX: v'_j = \frac{c v_j + n \bar{v}_j + \frac{c n}{c'} \Delta_j^2}{c'}
    new_var = (count * var + n * batch_var + count * n / new_count * delta**2) / new_count
    return new_mean, new_var, new_count


def within_reach(rows: Tensor, std: Tensor) -> Tensor:
    """Return rows whose outliers are clipped, those out of all proportion to the other rows.  [n, D], [D] -> [n, D]

    A value may lie ten times as far from all but the outer twentieths as these are apart, or ten times `std`, what the
    standard deviation was before. Where they are all equal, as those of a sensor that is mostly silent, it is a hundred
    times `std`, and without limit in a dimension that has never changed.
    """
    ordered = rows[:: max(1, rows.shape[0] // SORTED_ROWS)].sort(0).values  # half a million rows take long to sort
    outer = ordered.shape[0] // 20
    low, high = ordered[outer], ordered[-1 - outer]
    # LaTeX: d_j = \max(u_j - \ell_j, \sigma_j)
    spread = torch.maximum(high - low, std)
    of_silent = torch.where(std > 0, 100 * std, torch.inf)
    # LaTeX: h_j = \begin{cases} 10 d_j & u_j > \ell_j \\ o_j & \text{otherwise} \end{cases}
    reach = torch.where(high > low, 10 * spread, of_silent)
    # LaTeX: x'_{i,j} = \operatorname{clip}(x_{i,j}, \ell_j - h_j, u_j + h_j)
    clipped = torch.clamp(rows, low - reach, high + reach)
    return clipped


def active_share(rows: Tensor) -> Tensor:
    """Return the share of values that differ from their dimension's median.  [n, D] -> [D]

    It is 1 for a continuous quantity, and small for one that rests at a constant but for a few rows.
    """
    rest = rows.median(0, keepdim=True).values
    # LaTeX: x_{i,j} = \mathbf{1}[r_{i,j} \neq \tilde{r}_j]
    differs = (rows != rest).to(rows.dtype)
    # LaTeX: p_j = \frac{1}{n} \sum_i x_{i,j}
    share = differs.mean(0)
    return share


def remaining_fraction(update: int, updates: int) -> float:
    """Return the factor of a linear schedule: 1 at the first update, falling to 0 after the last."""
    # LaTeX: f_u = 1 - \frac{u - 1}{U}
    fraction = 1 - (update - 1) / updates
    return fraction


def effective_samples(weights: Tensor) -> Tensor:
    """Return the effective sample size of normalised weights along the first axis.  [N, ...] -> [...]"""
    # LaTeX: n_{eff} = \frac{1}{\sum_i \psi_i^2}
    samples = 1 / (weights**2).sum(0)
    return samples
