"""Networks for one choice among several: a policy with a logit and a critic with a value for each of them.

Observations are vectors of `obs` numbers, or what the given encoder takes: it knows of a mask of the possible choices.
"""

from torch import Tensor, nn

from minerva.config import LayerSizes
from minerva.distributions import Categorical
from minerva.networks.encoders import MakeLayers, SmallInitLinear, layer_norm_layers
from minerva.networks.masks import masked
from minerva.networks.observations import ObservationEncoder


class ChoicePolicy(nn.Module):
    """A categorical policy. Before training, every possible choice is equally likely in every state."""

    def __init__(
        self,
        obs: int | ObservationEncoder,
        choices: int,
        layer_sizes: LayerSizes,
        make_layers: MakeLayers = layer_norm_layers,
    ) -> None:
        super().__init__()
        self.choices = choices
        self.obs_encoder = ObservationEncoder.of(obs)
        self.encoder = make_layers(self.obs_encoder.size, layer_sizes)
        self.policy_logits = nn.Linear(layer_sizes[-1], choices)
        nn.init.zeros_(self.policy_logits.weight)
        nn.init.zeros_(self.policy_logits.bias)

    @property
    def distribution(self) -> Categorical:
        """The action distribution that the network parameterises."""
        return Categorical([self.choices])

    def forward(self, obs: Tensor) -> tuple[Tensor]:
        """Return the logits of all choices.  [..., O] -> [..., C]"""
        seen = self.obs_encoder.split(obs)
        return (masked(self.policy_logits(self.encoder(self.obs_encoder.encoded(seen))), seen.mask),)


class ChoiceCritic(nn.Module):
    """Q(s, a) of every choice at once. With `outputs` above 1 it returns that many logits instead of each value."""

    def __init__(
        self,
        obs: int | ObservationEncoder,
        choices: int,
        layer_sizes: LayerSizes,
        outputs: int = 1,
        make_layers: MakeLayers = layer_norm_layers,
    ) -> None:
        super().__init__()
        self.choices = choices
        self.obs_encoder = ObservationEncoder.of(obs)
        self.encoder = make_layers(self.obs_encoder.size, layer_sizes)
        self.head = SmallInitLinear(layer_sizes[-1], choices * outputs)

    def forward(self, obs: Tensor) -> Tensor:
        """Return the outputs of all choices.  [..., O] -> [..., C, outputs]

        The hidden layers may have a lower precision than the head; the outputs have the head's.
        """
        seen = self.obs_encoder.encoded(obs)
        features = self.encoder(seen.to(next(self.encoder.parameters(), self.head.weight).dtype))
        values: Tensor = self.head(features.to(self.head.weight.dtype))
        return values.unflatten(-1, (self.choices, -1))
