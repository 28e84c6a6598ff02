"""Running statistics, the size of weighted samples, and schedules."""

from torch import Tensor


def combine_moments(mean: Tensor, var: Tensor, count: Tensor, batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and count after seeing `batch` [n, D] too."""
    return merge_moments(mean, var, count, batch.mean(0), batch.var(0, correction=0), batch.shape[0])


def merge_moments(
    mean: Tensor, var: Tensor, count: Tensor, batch_mean: Tensor, batch_var: Tensor, n: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and count after seeing n rows with these moments too (Chan et al. 1979); exact in any order."""
    # LaTeX: \Delta_j = \bar{x}_j - \mu_j
    delta = batch_mean - mean
    # LaTeX: c' = c + n
    new_count = count + n
    # LaTeX: \mu'_j = \mu_j + \frac{n}{c'} \Delta_j
    new_mean = mean + n / new_count * delta
    # LaTeX: v'_j = \frac{c v_j + n \bar{v}_j + \frac{c n}{c'} \Delta_j^2}{c'}
    new_var = (count * var + n * batch_var + count * n / new_count * delta**2) / new_count
    return new_mean, new_var, new_count


def remaining_fraction(update: int, updates: int) -> float:
    """Linear schedule from 1 at the first update towards 0 after the last."""
    # LaTeX: f_u = 1 - \frac{u - 1}{U}
    fraction = 1 - (update - 1) / updates
    return fraction


def effective_samples(weights: Tensor) -> Tensor:
    """How many equally weighted samples would be as noisy, along the first axis.  [N, ...] -> [...]"""
    # LaTeX: n_{eff} = \frac{1}{\sum_i \psi_i^2}
    samples = 1 / (weights**2).sum(0)
    return samples
