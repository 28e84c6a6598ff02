"""One optimiser step as a pure function of tensors; tests compare each with torch.optim.

Parameters and gradients are vectors; `learning_rate` is a scalar or a vector with one rate per parameter.
"""

import torch
from torch import Tensor

BETA_1, BETA_2 = 0.9, 0.999
ADAM_EPS = 1e-5
CLIP_EPS = 1e-6


def clip_by_norm(gradient: Tensor, max_norm: Tensor) -> Tensor:
    """Clip a gradient to the norm `max_norm`."""
    # LaTeX: |g| = \sqrt{\sum_k g_k^2}
    norm = torch.sqrt((gradient**2).sum())
    # LaTeX: g'_k = g_k \min(1, \frac{g_{max}}{|g| + 10^{-6}})
    clipped = gradient * torch.clamp(max_norm / (norm + CLIP_EPS), max=1.0)
    return clipped


# LaTeX[slack float32=1e-4 "1 - 0.999^n keeps four digits in single precision while n is small"]: \theta_k = \theta'_k - \beta \frac{\frac{\beta_1 m'_k + (1 - \beta_1) g_k}{1 - \beta_1^{n'+1}}}{\sqrt{\frac{\beta_2 v'_k + (1 - \beta_2) g_k^2}{1 - \beta_2^{n'+1}}} + 10^{-5}}
# LaTeX: n = n' + 1
# LaTeX: m_k = \beta_1 m'_k + (1 - \beta_1) g_k
# LaTeX: v_k = \beta_2 v'_k + (1 - \beta_2) g_k^2
def adam(
    parameters: Tensor, gradient: Tensor, moments: dict[str, Tensor], learning_rate: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return parameters and moments after one step of Adam (Kingma and Ba 2015, algorithm 1) with eps 1e-5."""
    # LaTeX: n = n' + 1
    step = moments["step"] + 1
    # LaTeX: m_k = \beta_1 m'_k + (1 - \beta_1) g_k
    first = BETA_1 * moments["first"] + (1 - BETA_1) * gradient
    # LaTeX: v_k = \beta_2 v'_k + (1 - \beta_2) g_k^2
    second = BETA_2 * moments["second"] + (1 - BETA_2) * gradient**2
    # LaTeX: \hat{m}_k = \frac{m_k}{1 - \beta_1^n}
    unbiased_first = first / (1 - BETA_1 ** step.to(first.dtype))
    # LaTeX[slack float32=1e-4 "1 - 0.999^n keeps four digits in single precision while n is small"]: \hat{v}_k = \frac{v_k}{1 - \beta_2^n}
    unbiased_second = second / (1 - BETA_2 ** step.to(second.dtype))
    # LaTeX: \theta_k = \theta'_k - \beta \frac{\hat{m}_k}{\sqrt{\hat{v}_k} + 10^{-5}}
    moved = parameters - learning_rate * unbiased_first / (torch.sqrt(unbiased_second) + ADAM_EPS)
    return moved, {"step": step, "first": first, "second": second}


def decayed(moved: Tensor, before: Tensor, decay: Tensor, learning_rate: Tensor) -> Tensor:
    """Return parameters after a step with decoupled weight decay (AdamW, Loshchilov and Hutter 2019).

    `moved` are the parameters after the optimiser's step, `before` those before it; `decay` is a vector, zero where a
    parameter does not decay.
    """
    # LaTeX: \theta_k = \theta''_k - \beta \omega_k \theta'_k
    smaller = moved - learning_rate * decay * before
    return smaller


# LaTeX: \theta_k = \theta'_k - \beta (\kappa m'_k + g_k)
# LaTeX: n = n' + 1
# LaTeX: m_k = \kappa m'_k + g_k
def sgd(
    parameters: Tensor, gradient: Tensor, moments: dict[str, Tensor], learning_rate: Tensor, momentum: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return parameters and moments after one step of SGD with heavy-ball momentum."""
    # LaTeX: m_k = \kappa m'_k + g_k
    first = momentum * moments["first"] + gradient
    # LaTeX: \theta_k = \theta'_k - \beta m_k
    moved = parameters - learning_rate * first
    return moved, {"step": moments["step"] + 1, "first": first}
