"""Networks for one choice among several: a policy with a logit and a critic with a value for each of them.

With `mask_size`, a mask of the possible choices follows the `obs_dim` numbers of an observation.
"""

from torch import Tensor, nn

from minerva.config import LayerSizes
from minerva.distributions import Categorical
from minerva.networks.encoders import MakeLayers, SmallInitLinear, layer_norm_layers
from minerva.networks.masks import masked, without_mask


class ChoicePolicy(nn.Module):
    """A categorical policy. Before training, every possible choice is equally likely in every state."""

    def __init__(
        self,
        obs_dim: int,
        choices: int,
        layer_sizes: LayerSizes,
        make_layers: MakeLayers = layer_norm_layers,
        mask_size: int = 0,
    ) -> None:
        super().__init__()
        self.choices, self.mask_size = choices, mask_size
        self.encoder = make_layers(obs_dim, layer_sizes)
        self.policy_logits = nn.Linear(layer_sizes[-1], choices)
        nn.init.zeros_(self.policy_logits.weight)
        nn.init.zeros_(self.policy_logits.bias)

    @property
    def distribution(self) -> Categorical:
        """The action distribution that the network parameterises."""
        return Categorical([self.choices])

    def forward(self, obs: Tensor) -> tuple[Tensor]:
        """Return the logits of all choices.  [..., O] -> [..., C]"""
        seen, mask = without_mask(obs, self.mask_size)
        return (masked(self.policy_logits(self.encoder(seen)), mask),)


class ChoiceCritic(nn.Module):
    """Q(s, a) of every choice at once. With `outputs` above 1 it returns that many logits instead of each value."""

    def __init__(
        self,
        obs_dim: int,
        choices: int,
        layer_sizes: LayerSizes,
        outputs: int = 1,
        make_layers: MakeLayers = layer_norm_layers,
        mask_size: int = 0,
    ) -> None:
        super().__init__()
        self.choices, self.mask_size = choices, mask_size
        self.encoder = make_layers(obs_dim, layer_sizes)
        self.head = SmallInitLinear(layer_sizes[-1], choices * outputs)

    def forward(self, obs: Tensor) -> Tensor:
        """Return the outputs of all choices.  [..., O] -> [..., C, outputs]

        The encoder may have a lower precision than the head; the outputs have the head's.
        """
        seen, _ = without_mask(obs, self.mask_size)
        features = self.encoder(seen.to(next(self.encoder.parameters(), self.head.weight).dtype))
        values: Tensor = self.head(features.to(self.head.weight.dtype))
        return values.unflatten(-1, (self.choices, -1))
