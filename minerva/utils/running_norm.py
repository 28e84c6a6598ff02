"""Observation normaliser: running mean and variance in float64, saved with the weights."""

import torch
from torch import Tensor, nn

from minerva.formulas.statistics import merge_moments
from minerva.utils.processes import ALONE, Processes


def refreshed(statistics: dict[str, Tensor], rows: Tensor, processes: Processes = ALONE) -> dict[str, Tensor]:
    """A normaliser's statistics after seeing the `rows` [n, D] of all processes too; none stay none."""
    if not statistics:
        return statistics
    seen = rows.double()
    mean, var, count = statistics["mean"], statistics["var"], statistics["count"]
    for batch_mean, batch_var in processes.each(seen.mean(0), seen.var(0, correction=0)):
        mean, var, count = merge_moments(mean, var, count, batch_mean, batch_var, seen.shape[0])
    return {"mean": mean, "var": var, "count": count}


class RunningNorm(nn.Module):
    """Shifts and scales each dimension to zero mean and unit variance, then clips.

    `forward` only normalises; `update_stats` learns. Between two calls of `update_stats` the same input gives
    the same output, so a policy's probabilities do not drift while it is being updated.
    """

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, dim: int, clip: float = 10.0, eps: float = 1e-8) -> None:
        super().__init__()
        self.clip = clip
        self.eps = eps
        self.register_buffer("mean", torch.zeros(dim, dtype=torch.float64))
        self.register_buffer("var", torch.ones(dim, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Normalised and clipped, in the dtype of `x`.  [..., D] -> [..., D]"""
        # LaTeX: \hat{s}_j = \operatorname{clip}(\frac{s_j - \mu_j}{\sqrt{v_j + \varepsilon_0}}, -c, c)
        normalized = torch.clamp((x - self.mean) / torch.sqrt(self.var + self.eps), -self.clip, self.clip)
        return normalized.to(x.dtype)

    @torch.no_grad()
    def update_stats(self, x: Tensor) -> None:
        """Learn from the rows of `x` [..., D]."""
        statistics = dict(self.named_buffers())
        for name, value in refreshed(statistics, x.reshape(-1, self.mean.shape[0])).items():
            statistics[name].copy_(value)

    def move(self, statistics: dict[str, Tensor]) -> None:
        """Keep the statistics in these tensors, which hold the same numbers, from now on."""
        for name, value in statistics.items():
            setattr(self, name, value)
