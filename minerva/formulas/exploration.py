"""How widely the actions of PPO and V-MPO vary before training."""

import math


def first_log_std(actions: int) -> float:
    """Return the log standard deviation of each action; with three and more, all together vary by a length of one."""
    # LaTeX: \log\sigma_0 = -\frac{1}{2} \max(1, \log D)
    log_std = -0.5 * max(1.0, math.log(actions))
    return log_std
