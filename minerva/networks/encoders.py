"""Encoders: MLPs from an observation to features, and the layers they are built from."""

import itertools
import math
from collections.abc import Callable

from torch import Tensor, nn

from minerva.config import Activation, LayerSizes
from minerva.errors import ConfigError

MakeLayers = Callable[[int, LayerSizes], nn.Module]
"""Makes the hidden layers from the number of inputs and the widths; the last width is that of the features."""
ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU, "gelu": nn.GELU}
"""Activations by their names in a config."""


def with_activation(make_layers: MakeLayers, activation: Activation) -> MakeLayers:
    """Return what makes the same layers with another activation; "default" keeps theirs."""
    if activation == "default":
        return make_layers

    def make(in_dim: int, layer_sizes: LayerSizes) -> nn.Module:
        layers = make_layers(in_dim, layer_sizes)
        for module in list(layers.modules()):
            for name, part in module.named_children():
                if isinstance(part, tuple(ACTIVATIONS.values())):
                    setattr(module, name, ACTIVATIONS[activation]())
        return layers

    return make


def orthogonal_linear(in_features: int, out_features: int, gain: float) -> nn.Linear:
    """Return a linear layer with orthogonal weights of this gain and zero bias."""
    layer = nn.Linear(in_features, out_features)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def widths(in_dim: int, layer_sizes: LayerSizes) -> list[tuple[int, int]]:
    """Return inputs and outputs of each layer; raise ConfigError if there is none."""
    if not layer_sizes:
        raise ConfigError("layer_sizes is empty: it must list at least one layer width, for example (256, 256).")
    return list(itertools.pairwise((in_dim, *layer_sizes)))


def tanh_layers(in_dim: int, layer_sizes: LayerSizes) -> nn.Sequential:
    """Return an orthogonal Linear and a tanh for each layer width."""
    layers: list[nn.Module] = []
    for before, after in widths(in_dim, layer_sizes):
        layers += [orthogonal_linear(before, after, math.sqrt(2)), nn.Tanh()]
    return nn.Sequential(*layers)


def mlp(
    in_dim: int, layer_sizes: LayerSizes, out_dim: int, out_gain: float, make_layers: MakeLayers = tanh_layers
) -> nn.Sequential:
    """Return hidden layers followed by an orthogonal Linear of gain `out_gain`."""
    layers = make_layers(in_dim, layer_sizes)
    each = layers if isinstance(layers, nn.Sequential) else [layers]
    return nn.Sequential(*each, orthogonal_linear(layer_sizes[-1], out_dim, out_gain))


def relu_layers(in_dim: int, layer_sizes: LayerSizes) -> nn.Sequential:
    """Return a Linear with PyTorch's own initial weights and a ReLU for each layer width."""
    layers: list[nn.Module] = []
    for before, after in widths(in_dim, layer_sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers)


class ResidualBlock(nn.Module):
    """Adds Linear, LayerNorm, ReLU, Linear and LayerNorm of the input to the input (Nauman et al. 2024)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        first, second = (orthogonal_linear(width, width, math.sqrt(2)) for _ in range(2))
        self.layers = nn.Sequential(first, nn.LayerNorm(width), nn.ReLU(), second, nn.LayerNorm(width))

    def forward(self, features: Tensor) -> Tensor:
        """Return the features plus what the layers make of them.  [..., width] -> [..., width]"""
        changed: Tensor = features + self.layers(features)
        return changed


def residual_layers(in_dim: int, layer_sizes: LayerSizes) -> nn.Sequential:
    """Return Linear, LayerNorm and ReLU for the first layer width, and a residual block for each further one."""
    (_, width), *_ = widths(in_dim, layer_sizes)
    if set(layer_sizes) != {width}:
        raise ConfigError(
            f"layer_sizes is {tuple(layer_sizes)}: residual layers need equal widths, for example (256, 256)."
        )
    first = (orthogonal_linear(in_dim, width, math.sqrt(2)), nn.LayerNorm(width), nn.ReLU())
    return nn.Sequential(*first, *(ResidualBlock(width) for _ in layer_sizes[1:]))


class SmallInitLinear(nn.Linear):
    """Linear layer with small truncated-normal weights and zero bias."""

    def __init__(self, in_features: int, out_features: int, std: float = 0.01) -> None:
        super().__init__(in_features, out_features)
        nn.init.trunc_normal_(self.weight, std=std)
        nn.init.zeros_(self.bias)


def layer_norm_layers(in_dim: int, layer_sizes: LayerSizes) -> "LayerNormMLP":
    """Return MPO's encoder with an activation after every layer."""
    return LayerNormMLP(in_dim, layer_sizes, activate_final=True)


class LayerNormMLP(nn.Sequential):
    """MPO's encoder: Linear, LayerNorm and tanh first, then Linear and ELU for each further layer."""

    def __init__(self, in_dim: int, layer_sizes: LayerSizes, activate_final: bool = False) -> None:
        (_, first), *others = widths(in_dim, layer_sizes)
        layers: list[nn.Module] = [nn.Linear(in_dim, first), nn.LayerNorm(first), nn.Tanh()]
        for before, after in others:
            layers += [nn.Linear(before, after), nn.ELU()]
        if not activate_final and len(layer_sizes) > 1:
            layers.pop()
        super().__init__(*layers)
