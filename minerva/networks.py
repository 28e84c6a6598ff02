"""Networks: they hold parameters and map observations to numbers; no algorithm is in here."""

import itertools
import math

import torch
from torch import Tensor, nn

from minerva.config import LayerSizes
from minerva.errors import ConfigError
from minerva.formulas.gaussian import gaussian_entropy, gaussian_log_prob
from minerva.utils.running_norm import RunningNorm


def orthogonal_linear(in_features: int, out_features: int, gain: float) -> nn.Linear:
    """Linear layer with orthogonal weights and zero bias."""
    layer = nn.Linear(in_features, out_features)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def tanh_mlp(in_dim: int, layer_sizes: LayerSizes, out_dim: int, out_gain: float) -> nn.Sequential:
    """Orthogonal Linear and tanh for each hidden layer, then an orthogonal Linear of gain `out_gain`."""
    layers: list[nn.Module] = []
    for size in layer_sizes:
        layers += [orthogonal_linear(in_dim, size, math.sqrt(2)), nn.Tanh()]
        in_dim = size
    return nn.Sequential(*layers, orthogonal_linear(in_dim, out_dim, out_gain))


class ActorCritic(nn.Module):
    """PPO's networks: an observation normaliser, a Gaussian policy and a value function, nothing shared."""

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        policy_layer_sizes: LayerSizes,
        value_layer_sizes: LayerSizes,
        initial_log_std: float = 0.0,
    ) -> None:
        super().__init__()
        for name, sizes in (
            ("policy_layer_sizes", policy_layer_sizes),
            ("value_layer_sizes", value_layer_sizes),
        ):
            if not sizes:
                raise ConfigError(f"{name} is empty: it must list at least one layer width, for example (64, 64).")
        self.obs_normalizer = RunningNorm(obs_dim)
        self.actor_mean = tanh_mlp(obs_dim, policy_layer_sizes, act_dim, out_gain=0.01)
        self.actor_logstd = nn.Parameter(torch.full((act_dim,), float(initial_log_std)))
        self.critic = tanh_mlp(obs_dim, value_layer_sizes, 1, out_gain=1.0)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean [..., D], log standard deviation [..., D] and value [...] of each observation."""
        normalized = self.obs_normalizer(x)
        mean = self.actor_mean(normalized)
        return mean, self.actor_logstd.expand_as(mean), self.critic(normalized).squeeze(-1)

    def get_value(self, x: Tensor) -> Tensor:
        """Value of each observation.  [..., O] -> [...]"""
        value: Tensor = self.critic(self.obs_normalizer(x)).squeeze(-1)
        return value

    def get_deterministic_action(self, x: Tensor) -> Tensor:
        """The policy's mean.  [..., O] -> [..., D]"""
        mean: Tensor = self.actor_mean(self.obs_normalizer(x))
        return mean

    def get_action_and_value(self, x: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(action, log-probability, entropy, value); the action is sampled unless one is given."""
        mean, log_std, value = self(x)
        if action is None:
            action = mean + torch.exp(log_std) * torch.randn_like(mean)
        return action, gaussian_log_prob(mean, log_std, action), gaussian_entropy(log_std), value


class SmallInitLinear(nn.Linear):
    """Linear layer with small truncated-normal weights and zero bias."""

    def __init__(self, in_features: int, out_features: int, std: float = 0.01) -> None:
        super().__init__(in_features, out_features)
        nn.init.trunc_normal_(self.weight, std=std)
        nn.init.zeros_(self.bias)


class LayerNormMLP(nn.Sequential):
    """MPO's torso: Linear, LayerNorm and tanh first, then Linear and ELU for each further layer."""

    def __init__(self, in_dim: int, layer_sizes: LayerSizes, activate_final: bool = False) -> None:
        if not layer_sizes:
            raise ConfigError("layer_sizes is empty: it must list at least one layer width, for example (256, 256).")
        layers: list[nn.Module] = [nn.Linear(in_dim, layer_sizes[0]), nn.LayerNorm(layer_sizes[0]), nn.Tanh()]
        for before, after in itertools.pairwise(layer_sizes):
            layers += [nn.Linear(before, after), nn.ELU()]
        if not activate_final and len(layer_sizes) > 1:
            layers.pop()
        super().__init__(*layers)
