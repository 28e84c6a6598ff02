"""Observation and reward normalisers: running statistics in float64, saved with the weights."""

import torch
from torch import Tensor, nn

from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.tree import Tree, copy_
from minerva.formulas.returns import discounted_sums, largest_return, without_outliers
from minerva.formulas.statistics import active_share, merge_moments, within_reach

CLIP = 10.0
EPS = 1e-12
"""Added to variances: so little that a change of units changes nothing."""
ACTIVE_MIN = 1e-3
"""Smallest share of active values that a variance is divided by."""
VALUE_RANGE, LARGEST_SCALED = 5.0, 3.0
"""Scaled values lie within plus or minus the first; the largest return seen is scaled to the second."""
HALF_LIFE = 100_000
"""Environment steps after which a return that was never reached again counts half."""


def refreshed(statistics: dict[str, Tensor], rows: Tensor, ranks: Ranks = SINGLE) -> dict[str, Tensor]:
    """Return an observation normaliser's statistics updated with the `rows` [n, D] of all ranks.

    One observation out of all proportion counts little. Empty statistics stay empty.
    """
    if not statistics:
        return statistics
    seen, before = rows.double(), statistics["count"].double()
    known = torch.where(before > 0, torch.sqrt(statistics["var"]), torch.zeros_like(statistics["var"]))
    new = _merged(statistics, within_reach(seen, known), ranks)
    if "active" in statistics:
        share, none = ranks.mean(active_share(seen)), torch.zeros_like(known)
        active = merge_moments(statistics["active"], none, before, share, none, ranks.count * seen.shape[0])[0]
        return {**new, "active": active}
    return new


def begun(statistics: dict[str, Tensor], rows: Tensor, ranks: Ranks = SINGLE) -> dict[str, Tensor]:
    """Return statistics that have seen nothing yet updated with the `rows` [n, D] of all ranks, others unchanged."""
    first = refreshed(statistics, rows, ranks)
    return {name: torch.where(statistics["count"] > 0, value, first[name]) for name, value in statistics.items()}


def blind(statistics: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return statistics by which everything is normalised to 0 as long as nothing was seen, others unchanged."""
    if not statistics:
        return statistics
    variance = torch.where(statistics["count"] > 0, statistics["var"], torch.inf)
    return {**statistics, "var": variance}


def _merged(statistics: dict[str, Tensor], rows: Tensor, ranks: Ranks) -> dict[str, Tensor]:
    """Return mean, variance and count updated with the `rows` [n, ...] of all ranks."""
    mean, var, count = statistics["mean"], statistics["var"], statistics["count"].double()
    for batch_mean, batch_var in ranks.each(rows.mean(0), rows.var(0, correction=0)):
        mean, var, count = merge_moments(mean, var, count, batch_mean, batch_var, rows.shape[0])
    return {"mean": mean, "var": var, "count": count.to(statistics["count"].dtype)}


def standardized(statistics: dict[str, Tensor], x: Tensor, eps: float = EPS, clip: float = CLIP) -> Tensor:
    """Return `x` with zero mean and unit variance in each dimension, clipped, in its dtype.  [..., D] -> [..., D]

    Where the statistics hold the `active` share of a dimension's values, its variance is that of these: a sensor that
    is silent but for a few steps would otherwise be magnified until those steps drown all else.
    """
    mean, var = statistics["mean"], statistics["var"]
    active = statistics.get("active", torch.ones_like(var))
    # LaTeX: v'_j = \frac{v_j}{\max(p_j, p_{min})}
    variance = var / torch.clamp(active, min=ACTIVE_MIN)
    # LaTeX: \hat{s}_j = \operatorname{clip}(\frac{s_j - \mu_j}{\sqrt{v'_j + \varepsilon_0}}, -c, c)
    normalized = torch.clamp((x - mean) / torch.sqrt(variance + eps), -clip, clip)
    return normalized.to(x.dtype)


class RunningNorm(nn.Module):
    """Shifts and scales each dimension to zero mean and unit variance, then clips.

    `forward` only normalises; `update_stats` updates the statistics. Between two calls of `update_stats` equal inputs
    give equal outputs, so a policy's probabilities do not drift while it is being updated.
    """

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, dim: int, clip: float = CLIP, eps: float = EPS, *, active: bool = False) -> None:
        """Start with mean 0 and variance 1. With `active`, the variance is that of a dimension's active values."""
        super().__init__()
        self.clip = clip
        self.eps = eps
        self.register_buffer("mean", torch.zeros(dim, dtype=torch.float64))
        self.register_buffer("var", torch.ones(dim, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))  # as a float, torch.compile would trace twice
        if active:
            self.register_buffer("active", torch.ones(dim, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` normalised and clipped, in its dtype.  [..., D] -> [..., D]"""
        return standardized(dict(self.named_buffers()), x, self.eps, self.clip)

    @torch.no_grad()
    def update_stats(self, x: Tensor) -> None:
        """Update mean, variance and count with the rows of `x` [..., D]."""
        statistics = dict(self.named_buffers())
        for name, value in refreshed(statistics, x.reshape(-1, self.mean.shape[0])).items():
            statistics[name].copy_(value)

    def move(self, statistics: dict[str, Tensor]) -> None:
        """Use these tensors, which hold equal values, as the storage of the statistics."""
        for name, value in statistics.items():
            setattr(self, name, value)


class RewardNorm:
    """Divides rewards by the running standard deviation of the discounted return, then clips to ±10.

    Works on whole rollouts. The running return restarts after every episode, terminated or truncated. A reward out of
    all proportion to those before it counts as ten times the largest of them.
    """

    def __init__(self, num_envs: int, gamma: float, device: torch.device | None = None) -> None:
        self.state = {
            "running": torch.zeros(num_envs, dtype=torch.float64, device=device),
            "mean": torch.zeros((), dtype=torch.float64, device=device),
            "var": torch.ones((), dtype=torch.float64, device=device),
            "count": torch.zeros((), dtype=torch.float64, device=device),
            "largest_reward": torch.zeros((), dtype=torch.float64, device=device),
            "gamma": torch.tensor(gamma, dtype=torch.float64, device=device),
        }

    def __call__(self, rewards: Tensor, ended: Tensor) -> Tensor:
        """Update the statistics with a rollout's rewards [T, E] and return the rewards scaled."""
        state, scaled = self.scaled(self.state, rewards, ended)
        copy_(self.state, state)
        return scaled

    @staticmethod
    def scaled(
        state: Tree, rewards: Tensor, ended: Tensor, gamma: Tensor | None = None, *, ranks: Ranks = SINGLE
    ) -> tuple[Tree, Tensor]:
        """Return the state updated with the rewards [T, E] of all ranks, and this rank's rewards scaled.

        `gamma` replaces the discount of the state.
        """
        discount = state["gamma"] if gamma is None else gamma.double()
        counted, largest = without_outliers(rewards.double(), state["largest_reward"])
        largest = torch.stack([part for (part,) in ranks.each(largest)]).amax(0)
        sums, running = discounted_sums(counted, ended.double(), state["running"], discount)
        before = {name: state[name] for name in ("mean", "var", "count")}
        statistics = _merged(before, sums.reshape(-1), ranks)
        variance = statistics["var"]
        # LaTeX: \tilde{r}_t = \operatorname{clip}(\frac{r_t}{\sqrt{v + \varepsilon_0}}, -c, c)
        scaled = torch.clamp(rewards / torch.sqrt(variance + EPS), -CLIP, CLIP)
        return {**state, **statistics, "running": running, "largest_reward": largest}, scaled.to(rewards.dtype)

    def move(self, state: Tree) -> None:
        """Use these tensors, which hold equal values, as the storage of the state."""
        self.state = state

    def state_dict(self) -> Tree:
        """Return the statistics and the running discounted returns."""
        return {name: value for name, value in self.state.items() if name != "gamma"}

    def load_state_dict(self, state: Tree) -> None:
        """Load a state made by `state_dict`."""
        copy_(self.state, state)


class ReturnScale:
    """Divides rewards by a third of the largest discounted return, so that values lie between -5 and 5.

    Follows single steps, for a replay that keeps raw rewards and scales them when they are sampled. The running return
    restarts after every episode.
    """

    def __init__(self, num_envs: int, gamma: float, device: torch.device | None = None) -> None:
        kept = 0.5 ** (num_envs / HALF_LIFE)
        self.state = {
            "running": torch.zeros(num_envs, dtype=torch.float64, device=device),
            "largest": torch.zeros(num_envs, dtype=torch.float64, device=device),
            "gamma": torch.tensor(gamma, dtype=torch.float64, device=device),
            "kept": torch.tensor(kept, dtype=torch.float64, device=device),
        }

    @staticmethod
    def followed(state: Tree, rewards: Tensor, ended: Tensor) -> Tree:
        """Return the state after one more step of all environments, or that of a stack of agents.  [..., E] twice"""
        constants = (state[name] for name in ("gamma", "kept"))  # a stack has one of each for every agent
        each = (value.unsqueeze(-1) if value.ndim else value for value in constants)
        returns, largest = largest_return(rewards.double(), state["running"], state["largest"], *each)
        # LaTeX: R'_k = (1 - d_k) R_k
        running = returns * (1 - ended.double())
        return {**state, "running": running, "largest": largest}

    @staticmethod
    def scaled(state: Tree, rewards: Tensor, ranks: Ranks = SINGLE) -> Tensor:
        """Return rewards in units of a third of the largest return of all ranks, clipped.  [...] -> [...]"""
        seen = ranks.all_gathered(state["largest"]).max()
        # LaTeX: m = \begin{cases} m' & m' > 0 \\ 1 & \text{otherwise} \end{cases}
        largest = torch.where(seen > 0, seen, torch.ones_like(seen))
        # LaTeX: \tilde{r} = \operatorname{clip}(\frac{3 r}{m}, -c, c)
        scaled = torch.clamp(LARGEST_SCALED * rewards / largest, -VALUE_RANGE, VALUE_RANGE)
        return scaled.to(rewards.dtype)

    def restart(self) -> None:
        """Begin new episodes in all environments."""
        self.state["running"].zero_()

    def move(self, state: Tree) -> None:
        """Use these tensors, which hold equal values, as the storage of the state."""
        self.state = state

    def state_dict(self) -> Tree:
        """Return the largest and the running return of each environment."""
        return {name: self.state[name] for name in ("running", "largest")}

    def load_state_dict(self, state: Tree) -> None:
        """Load a state made by `state_dict`."""
        copy_(self.state, state)
