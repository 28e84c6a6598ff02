"""Networks: they hold parameters and map observations to numbers; no algorithm is in here."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from minerva.config import LayerSizes
from minerva.data.normalizers import RunningNorm
from minerva.errors import ConfigError
from minerva.formulas.gaussian import gaussian_entropy, gaussian_log_prob, sampled_actions

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0


def orthogonal_linear(in_features: int, out_features: int, gain: float) -> nn.Linear:
    """Linear layer with orthogonal weights and zero bias."""
    layer = nn.Linear(in_features, out_features)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def tanh_layers(in_dim: int, layer_sizes: LayerSizes) -> nn.Sequential:
    """Orthogonal Linear and tanh for each layer."""
    if not layer_sizes:
        raise ConfigError("layer_sizes is empty: it must list at least one layer width, for example (64, 64).")
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise((in_dim, *layer_sizes)):
        layers += [orthogonal_linear(before, after, math.sqrt(2)), nn.Tanh()]
    return nn.Sequential(*layers)


def tanh_mlp(in_dim: int, layer_sizes: LayerSizes, out_dim: int, out_gain: float) -> nn.Sequential:
    """`tanh_layers`, then an orthogonal Linear of gain `out_gain`."""
    return nn.Sequential(*tanh_layers(in_dim, layer_sizes), orthogonal_linear(layer_sizes[-1], out_dim, out_gain))


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
            action = sampled_actions(mean, log_std, torch.randn_like(mean))
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


Bound = float | Sequence[float] | np.ndarray | Tensor
"""A bound of the actions: one number for all dimensions, or one for each."""


def action_bounds(low: Bound | None, high: Bound | None, act_dim: int) -> tuple[Tensor, Tensor]:
    """Both bounds as vectors [D]; None is -1 and 1."""
    ends = []
    for name, bound, default in (("action_low", low, -1.0), ("action_high", high, 1.0)):
        end = torch.as_tensor(default if bound is None else bound, dtype=torch.get_default_dtype()).cpu()
        if end.shape not in ((), (act_dim,)):
            raise ConfigError(
                f"{name} has shape {tuple(end.shape)}: give one number, or one for each of {act_dim} actions."
            )
        ends.append(end * torch.ones(act_dim))
    if not bool(torch.isfinite(torch.cat(ends)).all() and (ends[0] < ends[1]).all()):
        raise ConfigError(f"action_low {ends[0].tolist()} must be finite and below action_high {ends[1].tolist()}.")
    return ends[0], ends[1]


class Critic(nn.Module):
    """Q(s, a) on the executed action. With `outputs` above 1 it returns that many logits instead of one value."""

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
    ) -> None:
        super().__init__()
        low, high = action_bounds(action_low, action_high, act_dim)
        self.register_buffer("action_low", low)
        self.register_buffer("action_high", high)
        self.encoder = LayerNormMLP(obs_dim + act_dim, layer_sizes, activate_final=True)
        self.head = SmallInitLinear(layer_sizes[-1], outputs)

    def forward(self, obs: Tensor, act: Tensor) -> Tensor:
        """Value of each pair, the action clipped to its bounds.  [..., O], [..., D] -> [..., 1]

        Whoever calls it with an encoder of lower precision gets a value of the head's.
        """
        executed = torch.clamp(act, self.action_low, self.action_high)
        precision = next(self.encoder.parameters()).dtype
        features = self.encoder(torch.cat((obs, executed), -1).to(precision))
        value: Tensor = self.head(features.to(self.head.weight.dtype))
        return value


class DiagonalGaussianPolicy(nn.Module):
    """MPO's policy. The *raw* action is the Gaussian sample; the *executed* one is clipped to the bounds."""

    action_low: Tensor
    action_high: Tensor

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        layer_sizes: LayerSizes,
        action_low: Bound | None = None,
        action_high: Bound | None = None,
        initial_std: float | None = None,
    ) -> None:
        super().__init__()
        low, high = action_bounds(action_low, action_high, act_dim)
        self.register_buffer("action_low", low)
        self.register_buffer("action_high", high)
        self.encoder = LayerNormMLP(obs_dim, layer_sizes, activate_final=True)
        self.policy_mean = nn.Linear(layer_sizes[-1], act_dim)
        nn.init.kaiming_normal_(self.policy_mean.weight, mode="fan_in", nonlinearity="linear")
        nn.init.zeros_(self.policy_mean.bias)
        self.policy_logstd = nn.Linear(layer_sizes[-1], act_dim)
        if initial_std is not None:
            nn.init.zeros_(self.policy_logstd.weight)
            nn.init.constant_(self.policy_logstd.bias, math.log(initial_std))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of the raw action.  [..., O] -> [..., D], [..., D]"""
        return self.forward_with_features(self.encoder(obs))

    def forward_with_features(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The same from the encoder's output."""
        mean = _finite_or_zero(self.policy_mean(features))
        log_std = torch.clamp(_finite_or_zero(self.policy_logstd(features)), LOG_STD_MIN, LOG_STD_MAX)
        return mean, log_std

    def head_parameters(self) -> list[nn.Parameter]:
        """Parameters of both heads, without the encoder's."""
        return [*self.policy_mean.parameters(), *self.policy_logstd.parameters()]

    def log_prob(self, mean: Tensor, log_std: Tensor, actions_raw: Tensor) -> Tensor:
        """Log-density of raw actions.  [B, D] -> [B, 1]"""
        return gaussian_log_prob(mean, log_std, actions_raw).unsqueeze(-1)

    def execute(self, actions_raw: Tensor) -> Tensor:
        """What the environment and the critic see of raw actions."""
        return torch.clamp(actions_raw, self.action_low, self.action_high)

    def sample_action_raw_and_exec(
        self, mean: Tensor, log_std: Tensor, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """One raw action for each mean, and its executed form. Deterministic: the mean.  [..., D] -> [..., D] twice"""
        raw = mean if deterministic else sampled_actions(mean, log_std, _noise_like(mean, generator))
        return raw, self.execute(raw)

    def sample_action(
        self, mean: Tensor, log_std: Tensor, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """One executed action for each mean."""
        return self.sample_action_raw_and_exec(mean, log_std, deterministic, generator)[1]

    def sample_actions_raw_and_exec(
        self, obs: Tensor, num_actions: int, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """`num_actions` raw actions in each state, and their executed form.  [B, O] -> [B, N, D] twice"""
        mean, log_std = (part.unsqueeze(-2).expand(-1, num_actions, -1) for part in self(obs))
        return self.sample_action_raw_and_exec(mean, log_std, generator=generator)

    def sample_actions(self, obs: Tensor, num_actions: int, generator: torch.Generator | None = None) -> Tensor:
        """`num_actions` executed actions in each state.  [B, O] -> [B, N, D]"""
        return self.sample_actions_raw_and_exec(obs, num_actions, generator)[1]


def _finite_or_zero(outputs: Tensor) -> Tensor:
    return torch.nan_to_num(outputs, nan=0.0, posinf=0.0, neginf=0.0)


def _noise_like(mean: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
