"""Critics: networks for the value of an action in a state."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from minerva.compute.flat import FlatParameters
from minerva.config import LayerSizes
from minerva.networks.bounds import Bound, action_bounds
from minerva.networks.choices import ChoiceCritic
from minerva.networks.encoders import MakeLayers, SmallInitLinear, layer_norm_layers
from minerva.networks.observations import ObservationEncoder


class Critic(nn.Module):
    """Q(s, a) of executed actions. With `outputs` above 1 it returns that many logits instead of one value.

    Observations are vectors of `obs` numbers, or what the given encoder takes.
    """

    action_low: Tensor
    action_high: Tensor

    def __init__(
        self,
        obs: int | ObservationEncoder,
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
        self.obs_encoder = ObservationEncoder.of(obs)
        self.encoder = make_layers(self.obs_encoder.size + act_dim, layer_sizes)
        self.head = SmallInitLinear(layer_sizes[-1], outputs)

    def forward(self, obs: Tensor, act: Tensor, states: Tensor | None = None) -> Tensor:
        """Return the value of each pair, with the action clipped to its bounds.  [..., O], [..., D] -> [..., 1]

        With `states`, the n-th action is taken in the observation of number `states[n]`, so that one with many actions
        is encoded once.  [S, O], [n, D], [n] -> [n, 1]

        The hidden layers may have a lower precision than the head; the value has the head's.
        """
        executed = torch.clamp(act, self.action_low, self.action_high)
        seen = self.obs_encoder.encoded(obs)
        seen = seen if states is None else seen.index_select(0, states)
        precision = next(self.encoder.parameters(), self.head.weight).dtype
        features = self.encoder(torch.cat((seen, executed), -1).to(precision))
        value: Tensor = self.head(features.to(self.head.weight.dtype))
        return value


class Critics(nn.ModuleList):
    """Several critics of equal shape."""

    def __init__(self, critics: Iterable[Critic | ChoiceCritic]) -> None:
        super().__init__(critics)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return every critic's outputs.  [..., O], and [..., D] but for choices -> [C, ..., outputs]"""
        return torch.stack([critic(*inputs) for critic in self])


class FunctionalCritics:
    """One or more critics as a function of one flat vector of parameters, `flat.vector`.

    On a GPU all critics are evaluated in one batched call, which takes hardly longer than one of them; on a CPU that
    would be a quarter slower than one after the other.
    """

    def __init__(self, critics: Critic | ChoiceCritic | Critics) -> None:
        self.flat = FlatParameters(critics)
        each = list(critics) if isinstance(critics, Critics) else [critics]
        self.count, self._critic = len(each), each[0]
        self._shapes = {name: parameter.shape for name, parameter in each[0].named_parameters()}
        self.batched = self.count > 1 and self.flat.vector.device.type == "cuda"

    def __call__(self, parameters: Tensor, *inputs: Tensor, bfloat16: bool = False) -> Tensor:
        """Return every critic's outputs; with `bfloat16`, the hidden layers have that precision.

        [C * P], [..., O], and [..., D] but for choices -> [C, ..., outputs]
        """

        def outputs(own: Tensor) -> Tensor:
            parts = own.split([shape.numel() for shape in self._shapes.values()])
            named = {name: part.view(shape) for part, (name, shape) in zip(parts, self._shapes.items(), strict=True)}
            if bfloat16:  # with 8 bits in the head, similar actions would have equal values
                named |= {name: part.bfloat16() for name, part in named.items() if name.startswith("encoder.")}
            found: Tensor = functional_call(self._critic, named, inputs)
            return found

        by_critic = parameters.view(self.count, -1)
        if self.batched:
            batched: Tensor = vmap(outputs)(by_critic)
            return batched
        return torch.stack([outputs(own) for own in by_critic])
