"""V-MPO's networks: a Gaussian policy, squashed into the action bounds, with a value head."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from minerva.config import LayerSizes
from minerva.data.normalizers import RunningNorm
from minerva.errors import ConfigError
from minerva.formulas.gaussian import gaussian_log_prob, squash_log_det, squashed, unsquashed
from minerva.networks import LayerNormMLP, orthogonal_linear, tanh_layers

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0

Bounds = Sequence[float] | Tensor | None


class SquashedGaussianPolicy(nn.Module):
    """A Gaussian squashed by tanh and scaled to the bounds; with `squash=False` its sample is clipped to them.

    Two actions are kept apart. The *raw* one is the Gaussian's sample; the *executed* one is what the environment
    gets of it. With `shared_encoder` policy and value share one encoder, of `policy_layer_sizes`.
    `initial_log_std` is log sigma before training, in every state; None leaves it to the layers' initialisation.
    """

    action_low: Tensor
    action_high: Tensor
    policy_logstd: nn.Linear | nn.Parameter

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        policy_layer_sizes: LayerSizes = (256, 256),
        value_layer_sizes: LayerSizes = (256, 256),
        action_low: Bounds = None,
        action_high: Bounds = None,
        shared_encoder: bool = False,
        ppo_like_backbone: bool = False,
        *,
        squash: bool = True,
        normalize_observations: bool = False,
        initial_log_std: float | None = None,
    ) -> None:
        super().__init__()
        self.shared_encoder = shared_encoder
        self.squash = squash
        self._register_bounds(act_dim, action_low, action_high)
        self.obs_normalizer: nn.Module = RunningNorm(obs_dim) if normalize_observations else nn.Identity()
        encoder = tanh_layers if ppo_like_backbone else _torso
        self.policy_encoder = encoder(obs_dim, tuple(policy_layer_sizes))
        self.value_encoder = None if shared_encoder else encoder(obs_dim, tuple(value_layer_sizes))
        features = policy_layer_sizes[-1]
        value_features = features if shared_encoder else value_layer_sizes[-1]
        if ppo_like_backbone:
            self.policy_mean = orthogonal_linear(features, act_dim, gain=0.01)
            self.policy_logstd = nn.Parameter(torch.full((1, act_dim), float(initial_log_std or 0.0)))
            self.value_head = orthogonal_linear(value_features, 1, gain=1.0)
        else:
            self.policy_mean = nn.Linear(features, act_dim)
            self.policy_logstd = nn.Linear(features, act_dim)
            self.value_head = nn.Linear(value_features, 1)
            if initial_log_std is not None:
                nn.init.zeros_(self.policy_logstd.weight)
                nn.init.constant_(self.policy_logstd.bias, initial_log_std)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of the raw action.  [..., O] -> [..., D] each"""
        return self._heads(self.policy_encoder(self.obs_normalizer(obs)))

    def forward_all(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, log standard deviation and value.  [..., O] -> [..., D], [..., D], [..., 1]"""
        normalized = self.obs_normalizer(obs)
        features = self.policy_encoder(normalized)
        value_features = features if self.value_encoder is None else self.value_encoder(normalized)
        return *self._heads(features), self.value_head(value_features)

    def get_value(self, obs: Tensor) -> Tensor:
        """Value of each observation.  [..., O] -> [..., 1]"""
        encoder = self.policy_encoder if self.value_encoder is None else self.value_encoder
        return cast(Tensor, self.value_head(encoder(self.obs_normalizer(obs))))

    def log_prob(self, mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
        """Log-density of executed actions.  [..., D] -> [..., 1]

        An action on a bound has lost what it was sampled as: where that is known, use `log_prob_raw`.
        """
        return self.log_prob_raw(mean, log_std, self.recover(actions))

    def log_prob_raw(self, mean: Tensor, log_std: Tensor, raw: Tensor) -> Tensor:
        """Log-density, over executed actions, of those that were sampled as `raw`.  [..., D] -> [..., 1]"""
        log_prob = gaussian_log_prob(mean, log_std, raw)
        if self.squash:
            log_prob = log_prob - squash_log_det(raw, self.action_low, self.action_high)
        return log_prob.unsqueeze(-1)

    def execute(self, raw: Tensor) -> Tensor:
        """What the environment gets of a sample.  [..., D] -> [..., D]"""
        if self.squash:
            return squashed(raw, self.action_low, self.action_high)
        return torch.clamp(raw, self.action_low, self.action_high)

    def recover(self, actions: Tensor) -> Tensor:
        """A sample that is executed as `actions`.  [..., D] -> [..., D]"""
        return unsquashed(actions, self.action_low, self.action_high) if self.squash else actions

    def sample_action(self, mean: Tensor, log_std: Tensor, deterministic: bool) -> tuple[Tensor, Tensor]:
        """An executed action and its log-density.  [..., D] -> [..., D], [..., 1]"""
        raw = mean if deterministic else mean + torch.exp(log_std) * torch.randn_like(mean)
        return self.execute(raw), self.log_prob_raw(mean, log_std, raw)

    def policy_logstd_parameters(self) -> list[nn.Parameter]:
        """What decides the standard deviation: a layer's parameters, or one number per action dimension."""
        if isinstance(self.policy_logstd, nn.Parameter):
            return [self.policy_logstd]
        return list(self.policy_logstd.parameters())

    def _heads(self, features: Tensor) -> tuple[Tensor, Tensor]:
        mean: Tensor = self.policy_mean(features)
        if isinstance(self.policy_logstd, nn.Linear):
            log_std = self.policy_logstd(features)
        else:
            log_std = self.policy_logstd.reshape(-1).expand_as(mean)
        return mean, torch.clamp(log_std, LOG_STD_MIN, LOG_STD_MAX)

    def _register_bounds(self, act_dim: int, low: Bounds, high: Bounds) -> None:
        for name, bound, default in (("action_low", low, -1.0), ("action_high", high, 1.0)):
            dtype = torch.get_default_dtype()
            values = torch.full((act_dim,), default) if bound is None else torch.as_tensor(bound, dtype=dtype).clone()
            if values.shape != (act_dim,) or not torch.isfinite(values).all():
                raise ConfigError(f"{name} is {bound}: it must be one finite number for each of {act_dim} actions.")
            self.register_buffer(name, values, persistent=False)
        if not (self.action_low < self.action_high).all():
            raise ConfigError("action_low must be below action_high in every dimension.")


def _torso(obs_dim: int, layer_sizes: LayerSizes) -> nn.Sequential:
    """MPO's encoder."""
    return LayerNormMLP(obs_dim, layer_sizes, activate_final=True)


class AllOutputs(nn.Module):
    """The policy with `forward_all` as its forward, which is what `functional_call` calls."""

    def __init__(self, policy: SquashedGaussianPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, log standard deviation and value."""
        return self.policy.forward_all(obs)
