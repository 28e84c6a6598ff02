"""Networks as a user writes them, importable by name."""

from typing import Any

import torch
from torch import Tensor, nn

from minerva.spec import ObservationSpec


class Glance(nn.Module):
    """Sees the brightness of each column of the camera of `Seeing`, the gear, and the state."""

    def __init__(self, observation: ObservationSpec) -> None:
        super().__init__()
        self.columns = nn.Linear(4, 3)
        self.others = nn.Linear(2 + 2 + 3, 5)

    def forward(self, observations: dict[str, Any]) -> Tensor:
        """Return eight features.  -> [B, 8]"""
        numbers, flags = observations["state"]
        assert numbers.shape[1:] == (1, 2)
        columns = self.columns(observations["camera"].mean((1, 3)))
        others = self.others(torch.cat((observations["gear"], numbers.flatten(1), flags), -1))
        return torch.tanh(torch.cat((columns, others), -1))


def swish(observation: ObservationSpec) -> nn.Module:
    """Another activation than Minerva's, for vectors."""
    return nn.Sequential(nn.Linear(observation.size, 16), nn.SiLU())


def scalar(observation: ObservationSpec) -> nn.Module:
    """Lose the features: a mistake."""
    return nn.Sequential(nn.Linear(observation.size, 1), nn.Flatten(0))


def noisy(observation: ObservationSpec) -> nn.Module:
    """Draw random numbers: a mistake."""
    return nn.Sequential(nn.Linear(observation.size, 4), nn.Dropout())


def forgotten(observation: ObservationSpec) -> Any:
    """Return no module: a mistake."""
    return observation.size


class Skip(nn.Module):
    """Hidden layers of another activation, around which the inputs go, too."""

    def __init__(self, inputs: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.around = nn.Linear(inputs, widths[-1])
        sizes = (inputs, *widths)
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in zip(sizes, widths, strict=False))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the features.  [B, inputs] -> [B, widths[-1]]"""
        assert inputs.ndim == 2
        features = inputs
        for layer in self.layers:
            features = nn.functional.silu(layer(features))
        return features + self.around(inputs)


def narrow(inputs: int, widths: tuple[int, ...]) -> nn.Module:
    """Forget the widths: a mistake."""
    return nn.Linear(inputs, 3)
