"""From the rows in which observations are stored to what a network's hidden layers receive."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from minerva.config import ImageEncoderName
from minerva.errors import ConfigError
from minerva.layout import CHOICES, NUMBER_BYTES, Layout, is_image, leaves, structured, vector_sizes
from minerva.networks.images import image_encoder
from minerva.networks.masks import without_mask
from minerva.networks.own import check_module, explained
from minerva.spec import ObservationSpec

EncoderFactory = Callable[[ObservationSpec], nn.Module]
"""Makes a user's encoder for observations of a spec: a module from them, as the environment gives them, to features."""


class Observed(NamedTuple):
    """Observations, taken apart."""

    numbers: Tensor
    """All numbers, those of one-hot vectors too.  [..., N]"""
    images: tuple[Tensor, ...]
    """Images as the environment gives them.  [..., *shape] each"""
    mask: Tensor | None
    """1 for each choice that is possible, 0 for the others; None if the environment gives no masks.  [..., C]"""


class ObservationEncoder(nn.Module):
    """Takes rows apart, and joins the numbers with the features of each image; vectors pass unchanged.

    Between the two, the network that owns it normalises the numbers. A user's own encoder replaces the joining.
    """

    def __init__(
        self,
        observation: ObservationSpec,
        mask_size: int = 0,
        images: ImageEncoderName = "auto",
        own: EncoderFactory | None = None,
    ) -> None:
        super().__init__()
        self.observation, self.mask_size = observation, mask_size
        self.numbers = observation.numbers - mask_size
        """Number of numbers, without those of the mask."""
        self.images = nn.ModuleList()
        self.own: OwnEncoder | None = None
        self.size = 0
        """Number of features."""
        if own is None:
            self.images.extend(image_encoder(images, highest, shape) for highest, *shape in observation.images)
            self.size = self._size()
        else:
            with explained("encoder", "the spec of the observations"):
                self.own = OwnEncoder(observation.layout, self.numbers, own(observation))
                self.size = self._size()

    @classmethod
    def of(cls, observation: "int | ObservationEncoder") -> "ObservationEncoder":
        """Return an encoder unchanged, or one of vectors of this many numbers."""
        if isinstance(observation, ObservationEncoder):
            return observation
        return cls(ObservationSpec.of(observation))

    def split(self, rows: Tensor | Observed) -> Observed:
        """Take rows apart; what is taken apart already stays as it is.  [..., row]"""
        if isinstance(rows, Observed):
            return rows
        numbers, images = rows, []
        if self.observation.images:
            first = self.observation.numbers * NUMBER_BYTES
            numbers = rows[..., :first].view(torch.float32)
            for _, *shape in self.observation.images:
                size = torch.Size(shape).numel()
                images.append(rows[..., first : first + size].unflatten(-1, shape))
                first += size
        numbers, mask = without_mask(numbers, self.mask_size)
        return Observed(numbers, tuple(images), mask)

    def changed(self, rows: Tensor | Observed, change: Callable[[Tensor], Tensor]) -> Any:
        """Return observations with changed numbers, but for those of the mask, in the form that they are given in."""
        numbers, _, mask = self.split(rows)
        numbers = change(numbers)
        if isinstance(rows, Observed):
            return rows._replace(numbers=numbers)
        whole = numbers if mask is None else torch.cat((numbers, mask), -1)
        if not self.observation.images:
            return whole
        return torch.cat((whole.view(torch.uint8), rows[..., self.observation.numbers * NUMBER_BYTES :]), -1)

    def encoded(self, rows: Tensor | Observed) -> Tensor:
        """Return the features of observations whose numbers are normalised already.  [..., row] -> [..., size]"""
        numbers, images, _ = self.split(rows)
        features: Tensor = self(numbers, images)
        return features

    def forward(self, numbers: Tensor, images: tuple[Tensor, ...]) -> Tensor:
        """Return the features of observations with these normalised numbers.  [..., N], ... -> [..., size]"""
        if self.own is not None:
            features: Tensor = self.own(numbers, images)
            return features
        if not self.images:
            return numbers
        encoded = [encode(image) for encode, image in zip(self.images, images, strict=True)]
        return torch.cat(([numbers] if self.numbers else []) + encoded, -1)

    def _size(self) -> int:
        """Return the number of features; raise ConfigError if a user's encoder does not give [B, features]."""
        with torch.no_grad():
            zeros = [torch.zeros(2, *shape, dtype=torch.uint8) for _, *shape in self.observation.images]
            features = self(torch.zeros(2, self.numbers), tuple(zeros))
        return int(features.shape[-1])


class OwnEncoder(nn.Module):
    """A user's encoder. It receives a batch [B, ...] of observations in the structure that the environment gives.

    Numbers are normalised, choices are one-hot vectors, and images are divided by their largest value.
    """

    def __init__(self, layout: Layout, numbers: int, module: nn.Module) -> None:
        super().__init__()
        check_module("encoder", module)
        self.layout, self.module = layout, module
        self.sizes = [numbers] if layout is None else vector_sizes(layout)

    def forward(self, numbers: Tensor, images: tuple[Tensor, ...]) -> Tensor:
        """Return what the user's module makes of observations.  [..., N], images -> [..., features]"""
        lead = numbers.shape[:-1]
        flat = numbers.reshape(-1, numbers.shape[-1])
        rows = flat.shape[0]
        pictures = iter(image.reshape(rows, *image.shape[len(lead) :]) for image in images)
        vectors = iter(flat.split(self.sizes, -1))
        given = flat if self.layout is None else structured(self.layout, _parts(self.layout, vectors, pictures))
        features = self.module(given)
        if not isinstance(features, Tensor) or features.ndim != 2 or features.shape[0] != rows:
            shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise ConfigError(
                f"The encoder gave {shape} for a batch of {rows} observations: it must give [batch, features]."
            )
        return features.reshape(*lead, features.shape[-1])


def _parts(layout: Layout, vectors: Iterator[Tensor], images: Iterator[Tensor]) -> Iterator[Tensor]:
    """Yield each array of a batch of observations: a vector in the environment's shape, or an image in [0, 1]."""
    for leaf in leaves(layout):
        if is_image(leaf):
            yield next(images).to(torch.get_default_dtype()) / leaf[1]
        elif leaf[:1] == [CHOICES]:
            yield next(vectors)
        else:
            yield next(vectors).unflatten(-1, leaf or (1,))
