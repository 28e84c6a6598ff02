"""How far ahead rewards count: the horizon that a task's episodes allow, and the discount and traces that it gives."""

import torch
from torch import Tensor

SHORTEST, LONGEST, LONGEST_WITH_ENDS = 100, 1000, 200
"""Limits of the horizon, in steps: the shortest, the longest, and the longest once an episode has terminated."""


def horizon(steps: Tensor, truncated: Tensor, terminated: Tensor) -> Tensor:
    """Return the mean length of episodes, within limits; the longest is less once an episode has terminated.

    `steps` is the number n of steps so far, `truncated` the number k of episodes that a time limit has ended,
    `terminated` the number m of those that the task has.
    """
    # LaTeX: L = \begin{cases} 200 & m > 0 \\ 1000 & \text{otherwise} \end{cases}
    longest = torch.where(terminated > 0, LONGEST_WITH_ENDS, LONGEST)
    # LaTeX: H = \operatorname{clip}(\frac{n}{\max(k + m, 1)}, 100, L)
    steps_ahead = torch.clamp(steps / torch.clamp(truncated + terminated, min=1), min=SHORTEST).minimum(longest)
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
