"""Networks of a user's own: the modules that take the place of Minerva's, and what such a module must be."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from minerva.config import Activation, LayerSizes
from minerva.errors import ConfigError
from minerva.networks.encoders import MakeLayers, widths, with_activation

PARTS = ("encoder", "policy", "critic")
"""Parts of the networks that a user's own module can replace."""
OwnNetworks = Mapping[str, Callable[..., nn.Module]]
"""A factory for some of `PARTS`.

That of the encoder makes a module of the spec of the observations; those of policy and critic, which make the layers
between the features and the last layer, of the number of inputs and of the widths in the config.
"""
HiddenLayers = Callable[[str, MakeLayers], MakeLayers]
"""Chooses what makes the hidden layers of "policy" or "critic", given what usually does."""
NOT_PURE = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout),
)
"""Modules that keep statistics or draw random numbers while they compute."""


def checked_parts(own: OwnNetworks | None) -> OwnNetworks:
    """Return the given factories; raise ConfigError if one is for no part."""
    if own is None:
        return {}
    if not isinstance(own, Mapping):
        raise ConfigError(f"own_networks is {own!r}: give a mapping such as {{'policy': factory}}.")
    for part in own:
        if part not in PARTS:
            raise ConfigError(f"own_networks names {part!r}: give factories for {', '.join(PARTS)}.")
    return own


def usual_layers(part: str, usual: MakeLayers) -> MakeLayers:
    """Choose what usually makes the hidden layers."""
    return usual


def hidden_layers(own: OwnNetworks, part: str, usual: MakeLayers, activation: Activation) -> MakeLayers:
    """Return what makes the hidden layers of policy or critic: a user's factory, or else the algorithm's `usual` one.

    The activation is that of the usual layers.
    """
    factory = own.get(part)
    if factory is None:
        return with_activation(usual, activation)

    def make(inputs: int, layer_sizes: LayerSizes) -> nn.Module:
        *_, (_, outputs) = widths(inputs, layer_sizes)
        with explained(part, f"{inputs} inputs and the widths {tuple(layer_sizes)}"):
            return OwnLayers(part, factory(inputs, tuple(layer_sizes)), inputs, outputs)

    return make


class OwnLayers(nn.Module):
    """A user's hidden layers. Their module receives a batch [B, inputs] and returns [B, outputs]."""

    def __init__(self, part: str, module: nn.Module, inputs: int, outputs: int) -> None:
        super().__init__()
        check_module(part, module)
        self.part, self.module, self.outputs = part, module, outputs
        with torch.no_grad():
            self(torch.zeros(2, inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return what the user's module makes of the inputs.  [..., inputs] -> [..., outputs]"""
        flat = inputs.reshape(-1, inputs.shape[-1])
        features = self.module(flat)
        if not isinstance(features, Tensor) or features.shape != (flat.shape[0], self.outputs):
            shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise ConfigError(
                f"The layers of the {self.part} gave {shape} for a batch of {flat.shape[0]}: they must give [batch, "
                f"{self.outputs}], the last of the widths that the factory receives."
            )
        return features.reshape(*inputs.shape[:-1], self.outputs)


@contextmanager
def explained(part: str, given: str) -> Iterator[None]:
    """Raise ConfigError for what a user's factory, or its module on a first batch of zeros, raises."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError, LookupError, AttributeError, AssertionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"The {part}'s factory, given {given}, or its module on a batch of zeros raised {type(error).__name__}: "
            f"{error}"
        ) from error


def check_module(part: str, module: Any) -> None:
    """Raise ConfigError if a user's module is none, or if its `forward` would do more than compute."""
    if not isinstance(module, nn.Module):
        raise ConfigError(f"The {part}'s factory returned a {type(module).__name__}: it must return a torch.nn.Module.")
    for name, inner in module.named_modules():
        if isinstance(inner, NOT_PURE):
            raise ConfigError(
                f"The {part}'s {name or 'module'} is a {type(inner).__name__}, and an update is a function of its "
                "inputs alone: use LayerNorm or GroupNorm, and no dropout."
            )
