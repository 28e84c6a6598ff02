"""How far ahead rewards count: the horizon that a task's episodes allow, and the discount and traces that it gives."""

import torch
from torch import Tensor

SHORTEST, LONGEST = 100, 1000
"""Limits of the horizon, in steps."""


def horizon(steps: Tensor, truncated: Tensor, terminated: Tensor) -> Tensor:
    """Return the mean length of episodes, within limits; the shortest once an episode has terminated.

    `steps` is the number n of steps so far, `truncated` the number k of episodes that a time limit has ended,
    `terminated` the number m of those that the task has.
    """
    # LaTeX: H = \begin{cases} 100 & m > 0 \\ \operatorname{clip}(\frac{n}{\max(k, 1)}, 100, 1000) & \text{otherwise} \end{cases}
    steps_ahead = torch.where(
        terminated > 0,
        torch.full_like(steps, SHORTEST),
        torch.clamp(steps / torch.clamp(truncated, min=1), SHORTEST, LONGEST),
    )
    return steps_ahead


def discount(steps_ahead: Tensor) -> Tensor:
    """Return the discount whose weights sum to the horizon."""
    # LaTeX: \gamma = 1 - \frac{1}{H}
    gamma = 1 - 1 / steps_ahead
    return gamma


def trace(steps_ahead: Tensor) -> Tensor:
    """Return the trace parameter of GAE: advantages reach further ahead with a longer horizon, but less than it does.

    It is 0.95 for 100 steps and 0.984 for 1,000.
    """
    # LaTeX: \lambda = 1 - \frac{1}{2 \sqrt{H}}
    gae_lambda = 1 - 1 / (2 * torch.sqrt(steps_ahead))
    return gae_lambda
