"""Critics: networks for the value of an action in a state."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from minerva.config import LayerSizes
from minerva.networks.bounds import Bound, action_bounds
from minerva.networks.encoders import MakeLayers, SmallInitLinear, layer_norm_layers


class Critic(nn.Module):
    """Q(s, a) of executed actions. With `outputs` above 1 it returns that many logits instead of one value."""

    action_low: Tensor
    action_high: Tensor

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        layer_sizes: LayerSizes,
        action_low: Bound | None = None,
        action_high: Bound | None = None,
        outputs: int = 1,
        make_layers: MakeLayers = layer_norm_layers,
    ) -> None:
        super().__init__()
        low, high = action_bounds(action_low, action_high, act_dim)
        self.register_buffer("action_low", low)
        self.register_buffer("action_high", high)
        self.encoder = make_layers(obs_dim + act_dim, layer_sizes)
        self.head = SmallInitLinear(layer_sizes[-1], outputs)

    def forward(self, obs: Tensor, act: Tensor) -> Tensor:
        """Return the value of each pair, with the action clipped to its bounds.  [..., O], [..., D] -> [..., 1]

        The encoder may have a lower precision than the head; the value has the head's.
        """
        executed = torch.clamp(act, self.action_low, self.action_high)
        precision = next(self.encoder.parameters()).dtype
        features = self.encoder(torch.cat((obs, executed), -1).to(precision))
        value: Tensor = self.head(features.to(self.head.weight.dtype))
        return value


class Critics(nn.ModuleList):
    """Several critics of equal shape."""

    def __init__(self, critics: Iterable[Critic]) -> None:
        super().__init__(critics)

    def forward(self, obs: Tensor, act: Tensor) -> Tensor:
        """Return every critic's outputs for each pair.  [..., O], [..., D] -> [C, ..., outputs]"""
        return torch.stack([critic(obs, act) for critic in self])
