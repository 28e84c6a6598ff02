"""Adam, and a regression for it to solve. Shapes: N examples of K features."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

SLOW, FAST = 0.999, 0.9


class Moments(NamedTuple):
    """Running means of a gradient and of its square, and how many gradients there were."""

    first: Array
    second: Array
    count: int


def squared_error(weights: Array, inputs: Array, targets: Array) -> Array:
    """Half the mean squared error of a linear prediction.  [K], [N, K], [N] -> []"""
    # LaTeX: e_n = t_n - \sum_k x_{n,k} \theta_k
    errors = targets - inputs @ weights
    # LaTeX: \mathcal{L} = \frac{1}{2} \mathbb{E}_n[e_n^2]
    loss = 0.5 * jnp.mean(errors**2)
    return loss


@jax.jit
def adam_step(weights: Array, gradient: Array, moments: Moments, rate: float) -> tuple[Array, Moments]:
    """The next weights and moments."""
    # LaTeX: c = c_0 + 1
    count = moments.count + 1
    # LaTeX: m'_k = \beta_1 m_k + (1 - \beta_1) g_k
    first = FAST * moments.first + (1 - FAST) * gradient
    # LaTeX: v'_k = \beta_2 v_k + (1 - \beta_2) g_k^2
    second = SLOW * moments.second + (1 - SLOW) * gradient**2
    # LaTeX: \hat{m}_k = \frac{m'_k}{1 - \beta_1^c}
    unbiased = first / (1 - FAST**count)
    # LaTeX: \theta'_k = \theta_k - \alpha \frac{\hat{m}_k}{\sqrt{v'_k / (1 - \beta_2^c)} + 10^{-8}}
    weights = weights - rate * unbiased / (jnp.sqrt(second / (1 - SLOW**count)) + 1e-8)
    return weights, Moments(first, second, count)


@jax.jit
def train_step(weights: Array, moments: Moments, inputs: Array, targets: Array, rate: float) -> tuple[Array, Moments]:
    """One step of Adam on the squared error."""
    gradient = jax.grad(squared_error)(weights, inputs, targets)
    return adam_step(weights, gradient, moments, rate)
