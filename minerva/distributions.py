"""Action distributions: pure functions of a dict of parameter tensors and of noise.

A distribution object holds only constants (bounds, sizes); the parameters are arguments of every method. A new kind of
policy is therefore one class here, a network head and a spec. The *raw* action is the sample, for which the
log-probability is computed; the *executed* action is what the environment receives: the raw one clipped or squashed
into the bounds.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from minerva.formulas.categorical import categorical_entropy, categorical_kl, categorical_log_prob, sampled_choices
from minerva.formulas.gaussian import (
    gaussian_entropy,
    gaussian_kl_mean,
    gaussian_kl_std,
    gaussian_log_prob,
    sampled_actions,
    squash_log_det,
    squashed,
    unsquashed,
)

Params = dict[str, Tensor]
"""Distribution parameters by name, each [..., size]."""


class Distribution(ABC):
    """Interface of an action distribution. Leading axes are free; noise may have more of them than parameters."""

    parameters: ClassVar[tuple[str, ...]]
    """Names of the parameters, in the order in which a policy network returns them."""
    trust_regions: dict[str, int]
    """Parts of KL(old || new) that have a bound each, by name, with the number of components of each."""
    noise_size: int
    """Number of random numbers that one sample needs."""

    def params(self, *outputs: Tensor) -> Params:
        """Return a policy network's outputs as a dict of parameters."""
        return dict(zip(self.parameters, outputs, strict=True))

    @abstractmethod
    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Draw the noise for a batch of actions.  -> [*shape, noise_size]"""

    @abstractmethod
    def sample(self, params: Params, noise: Tensor) -> Tensor:
        """Return raw actions, sampled by transforming noise."""

    @abstractmethod
    def mode(self, params: Params) -> Tensor:
        """Return the mode of the raw action: the deterministic action."""

    @abstractmethod
    def executed(self, raw: Tensor) -> Tensor:
        """Return the executed actions, which the environment receives, from raw ones."""

    @abstractmethod
    def log_prob(self, params: Params, raw: Tensor) -> Tensor:
        """Return the log-probability of raw actions.  -> [...]"""

    @abstractmethod
    def entropy(self, params: Params) -> Tensor:
        """Return the entropy of the raw action.  -> [...]"""

    @abstractmethod
    def kls(self, old: Params, new: Params) -> Params:
        """Return KL(old || new) by trust region; the parts add up to the full KL.  -> [..., size] each"""

    @abstractmethod
    def decoupled(self, old: Params, new: Params) -> dict[str, Params]:
        """Return, for each trust region, the parameters with its own part new and all others old."""


class Gaussian(Distribution):
    """A diagonal Gaussian [..., D] whose samples are clipped to the action bounds [D] when executed."""

    parameters = ("mean", "log_std")

    def __init__(self, action_low: Tensor, action_high: Tensor) -> None:
        self.action_low, self.action_high = action_low, action_high
        self.noise_size = action_low.shape[0]
        self.trust_regions = {"mean": self.noise_size, "std": self.noise_size}

    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Draw standard-normal noise.  -> [*shape, D]"""
        return torch.randn((*shape, self.noise_size), generator=generator, device=generator.device, dtype=dtype)

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        """Return raw actions: mean plus standard deviation times noise.  [..., D] -> [..., D]"""
        return sampled_actions(params["mean"], params["log_std"], noise)

    def mode(self, params: Params) -> Tensor:
        """Return the mean.  -> [..., D]"""
        return params["mean"]

    def executed(self, raw: Tensor) -> Tensor:
        """Return raw actions clipped to the bounds.  [..., D] -> [..., D]"""
        return torch.clamp(raw, self.action_low, self.action_high)

    def recovered(self, actions: Tensor) -> Tensor:
        """Return raw actions whose executed form is `actions`: the actions themselves.  [..., D] -> [..., D]"""
        return actions

    def log_prob(self, params: Params, raw: Tensor) -> Tensor:
        """Return the log-density of raw actions.  [..., D] -> [...]"""
        return gaussian_log_prob(params["mean"], params["log_std"], raw)

    def entropy(self, params: Params) -> Tensor:
        """Return the entropy of the raw action.  -> [...]"""
        return gaussian_entropy(params["log_std"])

    def kls(self, old: Params, new: Params) -> Params:
        """Return KL(old || new) due to the mean and to the standard deviation, per dimension.  -> [..., D] twice"""
        return {
            "mean": gaussian_kl_mean(new["mean"], old["mean"], old["log_std"]),
            "std": gaussian_kl_std(new["log_std"], old["log_std"]),
        }

    def decoupled(self, old: Params, new: Params) -> dict[str, Params]:
        """Return the new mean with the old standard deviation, and the old mean with the new standard deviation."""
        return {
            "mean": {"mean": new["mean"], "log_std": old["log_std"]},
            "std": {"mean": old["mean"], "log_std": new["log_std"]},
        }


class SquashedGaussian(Gaussian):
    """A diagonal Gaussian squashed by tanh and scaled to the bounds; `log_prob` is that of the executed action."""

    def executed(self, raw: Tensor) -> Tensor:
        """Return raw actions squashed into the bounds.  [..., D] -> [..., D]"""
        return squashed(raw, self.action_low, self.action_high)

    def recovered(self, actions: Tensor) -> Tensor:
        """Return the raw actions that squashing maps to `actions`.  [..., D] -> [..., D]"""
        return unsquashed(actions, self.action_low, self.action_high)

    def log_prob(self, params: Params, raw: Tensor) -> Tensor:
        """Return the log-density of the executed actions that `raw` is squashed to.  [..., D] -> [...]"""
        of_sample = super().log_prob(params, raw)
        log_volume = squash_log_det(raw, self.action_low, self.action_high)
        # LaTeX: \log\pi(a|s) = \log\pi(u|s) - \log|\frac{da}{du}|
        log_prob = of_sample - log_volume
        return log_prob


class Categorical(Distribution):
    """A choice among C discrete actions with logits [..., C]; actions are integers [...], executed unchanged."""

    parameters = ("logits",)

    def __init__(self, choices: int) -> None:
        self.noise_size = choices
        self.trust_regions = {"policy": 1}

    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Draw standard Gumbel noise.  -> [*shape, C]"""
        size = (*shape, self.noise_size)
        exponential = torch.empty(size, device=generator.device, dtype=dtype).exponential_(generator=generator)
        return -torch.log(exponential)

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        """Return choices sampled by the Gumbel-max trick.  [..., C] -> [...]"""
        return sampled_choices(params["logits"], noise)

    def mode(self, params: Params) -> Tensor:
        """Return the most probable choices.  -> [...]"""
        return params["logits"].argmax(-1)

    def executed(self, raw: Tensor) -> Tensor:
        """Return the choices unchanged.  [...] -> [...]"""
        return raw

    def log_prob(self, params: Params, raw: Tensor) -> Tensor:
        """Return the log-probability of choices.  [...] -> [...]"""
        return categorical_log_prob(params["logits"], raw)

    def entropy(self, params: Params) -> Tensor:
        """Return the entropy of the choice.  -> [...]"""
        return categorical_entropy(params["logits"])

    def kls(self, old: Params, new: Params) -> Params:
        """Return KL(old || new), under the name of the only trust region.  -> [..., 1]"""
        return {"policy": categorical_kl(new["logits"], old["logits"]).unsqueeze(-1)}

    def decoupled(self, old: Params, new: Params) -> dict[str, Params]:
        """Return the new parameters: the only trust region bounds them all."""
        return {"policy": new}
