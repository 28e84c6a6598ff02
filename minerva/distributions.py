"""Action distributions: pure functions of a dict of parameter tensors and of noise.

A distribution object holds only constants (bounds, sizes); the parameters are arguments of every method. A new kind of
policy is therefore one class here, a network head and a spec. The *raw* action is the sample, for which the
log-probability is computed; the *executed* action is what the environment receives: the raw one clipped or squashed
into the bounds.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from minerva.formulas.categorical import (
    categorical_entropy,
    categorical_kl,
    categorical_log_prob,
    joint,
    sampled_choices,
)
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
    def recovered(self, actions: Tensor) -> Tensor:
        """Return raw actions whose executed form is `actions`."""

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
    """D independent choices, the n-th among `counts[n]`; logits [..., C] of all of them, actions integers [..., D].

    Actions may also come as floats, as they do from storage that holds other numbers beside them.
    """

    parameters = ("logits",)

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = list(counts)
        self.noise_size = sum(self.counts)
        self.trust_regions = {"choice": 1}

    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Draw standard Gumbel noise.  -> [*shape, C]"""
        size = (*shape, self.noise_size)
        exponential = torch.empty(size, device=generator.device, dtype=dtype).exponential_(generator=generator)
        return -torch.log(exponential)

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        """Return choices sampled by the Gumbel-max trick.  [..., C] -> [..., D]"""
        each = zip(self._each(params["logits"]), self._each(noise), strict=True)
        return _columns([sampled_choices(logits, part) for logits, part in each])

    def mode(self, params: Params) -> Tensor:
        """Return the most probable choices.  -> [..., D]"""
        return _columns([logits.argmax(-1) for logits in self._each(params["logits"])])

    def executed(self, raw: Tensor) -> Tensor:
        """Return the choices unchanged.  [..., D] -> [..., D]"""
        return raw

    def recovered(self, actions: Tensor) -> Tensor:
        """Return the choices unchanged.  [..., D] -> [..., D]"""
        return actions

    def log_prob(self, params: Params, raw: Tensor) -> Tensor:
        """Return the log-probability of all choices together.  [..., D] -> [...]"""
        each = zip(self._each(params["logits"]), raw.long().unbind(-1), strict=True)
        return joint(torch.stack([categorical_log_prob(logits, chosen) for logits, chosen in each]))

    def entropy(self, params: Params) -> Tensor:
        """Return the entropy of all choices together.  -> [...]"""
        return joint(torch.stack([categorical_entropy(logits) for logits in self._each(params["logits"])]))

    def kls(self, old: Params, new: Params) -> Params:
        """Return KL(old || new) of all choices together, under the name of the only trust region.  -> [..., 1]"""
        each = zip(self._each(new["logits"]), self._each(old["logits"]), strict=True)
        together = joint(torch.stack([categorical_kl(logits, before) for logits, before in each]))
        return {"choice": together.unsqueeze(-1)}

    def decoupled(self, old: Params, new: Params) -> dict[str, Params]:
        """Return the new parameters: the only trust region bounds them all."""
        return {"choice": new}

    def _each(self, logits: Tensor) -> Sequence[Tensor]:
        """Split the logits, or their noise, of all choices into those of each."""
        return [logits] if len(self.counts) == 1 else logits.split(self.counts, -1)


class Mixed(Distribution):
    """A Gaussian and choices at once, independent of each other: raw actions are the Gaussian's columns, then choices.

    The choices are whole numbers in the Gaussian's dtype.
    """

    def __init__(self, gaussian: Gaussian, categorical: Categorical) -> None:
        self.gaussian, self.categorical = gaussian, categorical
        self.parameters = (*gaussian.parameters, *categorical.parameters)  # type: ignore[misc]
        self.trust_regions = {**gaussian.trust_regions, **categorical.trust_regions}
        self.noise_size = gaussian.noise_size + categorical.noise_size

    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Draw the Gaussian's noise, then the choices'.  -> [*shape, D + C]"""
        return torch.cat([part.draw_noise(shape, generator, dtype) for part in (self.gaussian, self.categorical)], -1)

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        """Return raw actions of both parts.  -> [..., D + choices]"""
        first, second = noise.tensor_split([self.gaussian.noise_size], -1)
        return self._joined(self.gaussian.sample(params, first), self.categorical.sample(params, second))

    def mode(self, params: Params) -> Tensor:
        """Return the mean and the most probable choices.  -> [..., D + choices]"""
        return self._joined(self.gaussian.mode(params), self.categorical.mode(params))

    def executed(self, raw: Tensor) -> Tensor:
        """Return raw actions clipped or squashed, with choices unchanged."""
        numbers, choices = self._parts(raw)
        return self._joined(self.gaussian.executed(numbers), choices)

    def recovered(self, actions: Tensor) -> Tensor:
        """Return raw actions whose executed form is `actions`."""
        numbers, choices = self._parts(actions)
        return self._joined(self.gaussian.recovered(numbers), choices)

    def log_prob(self, params: Params, raw: Tensor) -> Tensor:
        """Return the log-density of both parts together.  -> [...]"""
        numbers, choices = self._parts(raw)
        each = self.gaussian.log_prob(params, numbers), self.categorical.log_prob(params, choices)
        return joint(torch.stack(each))

    def entropy(self, params: Params) -> Tensor:
        """Return the entropy of both parts together.  -> [...]"""
        return joint(torch.stack((self.gaussian.entropy(params), self.categorical.entropy(params))))

    def kls(self, old: Params, new: Params) -> Params:
        """Return the KLs of both parts by trust region.  -> [..., D] twice, [..., 1]"""
        return {**self.gaussian.kls(old, new), **self.categorical.kls(old, new)}

    def decoupled(self, old: Params, new: Params) -> dict[str, Params]:
        """Return, for each trust region, the parameters with its own part new and all others old."""
        parts = {**self.gaussian.decoupled(old, new), "choice": {"logits": new["logits"]}}
        return {region: {**old, **part} for region, part in parts.items()}

    def _parts(self, actions: Tensor) -> tuple[Tensor, ...]:
        return actions.tensor_split([self.gaussian.noise_size], -1)

    def _joined(self, numbers: Tensor, choices: Tensor) -> Tensor:
        return torch.cat((numbers, choices.to(numbers.dtype)), -1)


def distribution_of(gaussian: Gaussian, counts: Sequence[int]) -> Distribution:
    """Return the distribution of the Gaussian's dimensions, which may be none, and of choices among `counts`."""
    if not counts:
        return gaussian
    return Mixed(gaussian, Categorical(counts)) if gaussian.noise_size else Categorical(counts)


def _columns(choices: Sequence[Tensor]) -> Tensor:
    """Return choices [...] as the columns of one tensor.  -> [..., D]"""
    return choices[0].unsqueeze(-1) if len(choices) == 1 else torch.stack(list(choices), -1)
