"""Distributions of actions: parameters are a dict of tensors, noise goes in and an action comes out.

A distribution object holds no parameters, only what never changes (bounds, sizes); every method is a function of
tensors. So a policy of another kind is one class here, a head of a network and a spec. Two actions are kept apart: the
*raw* one is the sample, which has the log-density, and the *executed* one is what the environment gets of it.
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
"""Parameters of a distribution by name, each [..., size]."""


class Distribution(ABC):
    """Functions of a distribution's parameters. Shapes: leading axes are free, of which the noise may have more."""

    parameters: ClassVar[tuple[str, ...]]
    """The names of the parameters, in the order in which a network gives them."""
    trust_regions: dict[str, int]
    """The parts of KL(old || new) that are bounded apart, by name, and how many numbers each consists of."""
    noise_size: int
    """How many random numbers one action is made of."""

    def params(self, *outputs: Tensor) -> Params:
        """Return a network's outputs as parameters by name."""
        return dict(zip(self.parameters, outputs, strict=True))

    @abstractmethod
    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Return the noise of actions of this shape.  -> [*shape, noise_size]"""

    @abstractmethod
    def sample(self, params: Params, noise: Tensor) -> Tensor:
        """Return raw actions made of noise."""

    @abstractmethod
    def mode(self, params: Params) -> Tensor:
        """Return the likeliest raw actions."""

    @abstractmethod
    def executed(self, raw: Tensor) -> Tensor:
        """Return what the environment gets of raw actions."""

    @abstractmethod
    def log_prob(self, params: Params, raw: Tensor) -> Tensor:
        """Return the log-probability of raw actions.  -> [...]"""

    @abstractmethod
    def entropy(self, params: Params) -> Tensor:
        """Return the entropy.  -> [...]"""

    @abstractmethod
    def kls(self, old: Params, new: Params) -> Params:
        """Return KL(old || new) by trust region; its parts add up to the whole.  -> [..., size] each"""

    @abstractmethod
    def decoupled(self, old: Params, new: Params) -> dict[str, Params]:
        """Return, for each trust region, parameters that are new in what it bounds and old in all else."""


class Gaussian(Distribution):
    """A diagonal Gaussian [..., D] whose samples are executed clipped to the bounds [D]."""

    parameters = ("mean", "log_std")

    def __init__(self, action_low: Tensor, action_high: Tensor) -> None:
        self.action_low, self.action_high = action_low, action_high
        self.noise_size = action_low.shape[0]
        self.trust_regions = {"mean": self.noise_size, "std": self.noise_size}

    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Return standard-normal noise.  -> [*shape, D]"""
        return torch.randn((*shape, self.noise_size), generator=generator, device=generator.device, dtype=dtype)

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        """Return raw actions made of noise.  [..., D] -> [..., D]"""
        return sampled_actions(params["mean"], params["log_std"], noise)

    def mode(self, params: Params) -> Tensor:
        """Return the mean.  -> [..., D]"""
        return params["mean"]

    def executed(self, raw: Tensor) -> Tensor:
        """Return raw actions clipped to the bounds.  [..., D] -> [..., D]"""
        return torch.clamp(raw, self.action_low, self.action_high)

    def recovered(self, actions: Tensor) -> Tensor:
        """Return raw actions that are executed as `actions`.  [..., D] -> [..., D]"""
        return actions

    def log_prob(self, params: Params, raw: Tensor) -> Tensor:
        """Return the log-density of raw actions.  [..., D] -> [...]"""
        return gaussian_log_prob(params["mean"], params["log_std"], raw)

    def entropy(self, params: Params) -> Tensor:
        """Return the entropy of the raw action.  -> [...]"""
        return gaussian_entropy(params["log_std"])

    def kls(self, old: Params, new: Params) -> Params:
        """Return KL(old || new) by the mean and by the standard deviation, per dimension.  -> [..., D] twice"""
        return {
            "mean": gaussian_kl_mean(new["mean"], old["mean"], old["log_std"]),
            "std": gaussian_kl_std(new["log_std"], old["log_std"]),
        }

    def decoupled(self, old: Params, new: Params) -> dict[str, Params]:
        """Return the new mean with the old standard deviation, and the old mean with the new one."""
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
        """Return the log-density, over executed actions, of those that were sampled as `raw`.  [..., D] -> [...]"""
        return super().log_prob(params, raw) - squash_log_det(raw, self.action_low, self.action_high)


class Categorical(Distribution):
    """One of C choices with logits [..., C]; actions are whole numbers [...], executed as they are."""

    parameters = ("logits",)

    def __init__(self, choices: int) -> None:
        self.noise_size = choices
        self.trust_regions = {"policy": 1}

    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Return standard Gumbel noise.  -> [*shape, C]"""
        size = (*shape, self.noise_size)
        exponential = torch.empty(size, device=generator.device, dtype=dtype).exponential_(generator=generator)
        return -torch.log(exponential)

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        """Return choices made of noise.  [..., C] -> [...]"""
        return sampled_choices(params["logits"], noise)

    def mode(self, params: Params) -> Tensor:
        """Return the likeliest choices.  -> [...]"""
        return params["logits"].argmax(-1)

    def executed(self, raw: Tensor) -> Tensor:
        """Return the choices themselves.  [...] -> [...]"""
        return raw

    def log_prob(self, params: Params, raw: Tensor) -> Tensor:
        """Return the log-probability of choices.  [...] -> [...]"""
        return categorical_log_prob(params["logits"], raw)

    def entropy(self, params: Params) -> Tensor:
        """Return the entropy.  -> [...]"""
        return categorical_entropy(params["logits"])

    def kls(self, old: Params, new: Params) -> Params:
        """Return KL(old || new) as the only trust region's.  -> [..., 1]"""
        return {"policy": categorical_kl(new["logits"], old["logits"]).unsqueeze(-1)}

    def decoupled(self, old: Params, new: Params) -> dict[str, Params]:
        """Return the new parameters: there is but one trust region."""
        return {"policy": new}
