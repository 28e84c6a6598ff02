"""Encoders of images: convolutions from bytes to features."""

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from minerva.config import ImageEncoderName
from minerva.errors import ConfigError
from minerva.networks.encoders import orthogonal_linear

NATURE_SIDE = 36
"""Shortest side of an image for which the strides of "nature" leave anything; "auto" takes "small" below it."""


def image_encoder(name: ImageEncoderName, highest: int, shape: Sequence[int]) -> "ImageEncoder":
    """Return an encoder of images of this shape, with values up to `highest`."""
    sides = [shape[n] for n in range(len(shape)) if n != _channel_axis(shape)]
    chosen = ("nature" if min(sides) >= NATURE_SIDE else "small") if name == "auto" else name
    if chosen == "nature" and min(sides) < NATURE_SIDE:
        raise ConfigError(f"image_encoder is nature, and an image is {sides[0]} x {sides[1]}: use small or impala.")
    return ImageEncoder(highest, shape, *ENCODERS[chosen])


def _channel_axis(shape: Sequence[int]) -> int | None:
    """Return the axis of the channels: the shorter of the first and the last; None for a grey image without."""
    if len(shape) == 2:
        return None
    return 0 if shape[0] < shape[2] else 2


class ImageEncoder(nn.Module):
    """Divides bytes by the largest, so that they lie in [0, 1], and encodes them by convolutions and a linear layer."""

    def __init__(
        self, highest: int, shape: Sequence[int], convolutions: Callable[[int], nn.Module], features: int
    ) -> None:
        super().__init__()
        self.highest, self.shape, self.size = highest, tuple(shape), features
        channels = _channel_axis(shape)
        self.convolutions = convolutions(1 if channels is None else shape[channels])
        with torch.no_grad():
            found = self.convolutions(self._channels_first(torch.zeros(1, *shape)))
        self.linear = orthogonal_linear(found[0].numel(), features, math.sqrt(2))

    def forward(self, images: Tensor) -> Tensor:
        """Return features of images as the environment gives them.  [..., *shape] -> [..., features]"""
        lead = images.shape[: images.ndim - len(self.shape)]
        numbers = images.reshape(-1, *self.shape).to(self.linear.weight.dtype) / self.highest
        features = self.convolutions(self._channels_first(numbers)).flatten(1)
        return torch.relu(self.linear(features)).reshape(*lead, self.size)

    def _channels_first(self, images: Tensor) -> Tensor:
        """Return images in the order of PyTorch's convolutions.  [B, *shape] -> [B, channels, height, width]"""
        axis = _channel_axis(self.shape)
        return images.unsqueeze(1) if axis is None else images.movedim(axis + 1, 1)


def _convolution(channels: int, filters: int, kernel: int, stride: int = 1, padding: int = 0) -> nn.Conv2d:
    """Return a convolution with orthogonal weights and zero bias."""
    layer = nn.Conv2d(channels, filters, kernel, stride, padding)
    nn.init.orthogonal_(layer.weight, math.sqrt(2))
    nn.init.zeros_(cast(Tensor, layer.bias))
    return layer


def nature_convolutions(channels: int) -> nn.Sequential:
    """Return the three convolutions of Mnih et al. (2015), for images of about 84 x 84."""
    layers: list[nn.Module] = []
    for filters, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
        layers += [_convolution(channels, filters, kernel, stride), nn.ReLU()]
        channels = filters
    return nn.Sequential(*layers)


def small_convolutions(channels: int) -> nn.Sequential:
    """Return the single convolution of Young and Tian (2019), for MinAtar's images of 10 x 10."""
    return nn.Sequential(_convolution(channels, 16, 3, padding=1), nn.ReLU())


class _ResidualConvolutions(nn.Module):
    """Adds two convolutions of the input, each after a ReLU, to the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.ReLU(), _convolution(channels, channels, 3, padding=1)),
            *(nn.ReLU(), _convolution(channels, channels, 3, padding=1)),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the images plus what the layers make of them, in the same shape."""
        changed: Tensor = images + self.layers(images)
        return changed


def impala_convolutions(channels: int) -> nn.Sequential:
    """Return the fifteen convolutions of Espeholt et al. (2018), which halve the image three times."""
    layers: list[nn.Module] = []
    for filters in (16, 32, 32):
        layers += [_convolution(channels, filters, 3, padding=1), nn.MaxPool2d(3, 2, 1)]
        layers += [_ResidualConvolutions(filters), _ResidualConvolutions(filters)]
        channels = filters
    return nn.Sequential(*layers, nn.ReLU())


ENCODERS: dict[str, tuple[Callable[[int], nn.Module], int]] = {
    "nature": (nature_convolutions, 512),
    "impala": (impala_convolutions, 256),
    "small": (small_convolutions, 128),
}
"""The convolutions and the number of features of each encoder."""
