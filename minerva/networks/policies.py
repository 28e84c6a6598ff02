"""Policy networks: from an observation to the parameters of an action distribution, and for some also to a value."""

import math
from collections.abc import Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from minerva.compute.functional import FunctionalModule
from minerva.config import LayerSizes
from minerva.data.normalizers import RunningNorm
from minerva.distributions import Distribution, Gaussian, Params, SquashedGaussian, distribution_of
from minerva.errors import ConfigError
from minerva.formulas.gaussian import gaussian_log_prob, sampled_actions
from minerva.networks.bounds import LOG_STD_MAX, LOG_STD_MIN, Bound, action_bounds
from minerva.networks.encoders import MakeLayers, layer_norm_layers, mlp, orthogonal_linear, tanh_layers
from minerva.networks.masks import masked
from minerva.networks.observations import ObservationEncoder
from minerva.networks.own import HiddenLayers, usual_layers


class ActorCritic(nn.Module):
    """PPO's networks: an observation normaliser, a policy and a value function that share no layers but the encoder's.

    Observations are vectors of `obs` numbers, or what the given encoder takes. The policy is a Gaussian of `act_dim`
    dimensions, and a categorical distribution for each of several choices, the n-th one of `counts[n]`; one of the two
    may be missing.
    """

    def __init__(
        self,
        obs: int | ObservationEncoder,
        act_dim: int,
        policy_layer_sizes: LayerSizes,
        value_layer_sizes: LayerSizes,
        initial_log_std: float = 0.0,
        counts: Sequence[int] = (),
        hidden: HiddenLayers = usual_layers,
    ) -> None:
        super().__init__()
        self.obs_encoder = ObservationEncoder.of(obs)
        for name, sizes in (("policy_layer_sizes", policy_layer_sizes), ("value_layer_sizes", value_layer_sizes)):
            if not sizes:
                raise ConfigError(f"{name} is empty: it must list at least one layer width, for example (64, 64).")
        self.obs_normalizer = normalizer_of(self.obs_encoder)
        self.act_dim, self.counts = act_dim, tuple(counts)
        features, of_policy = self.obs_encoder.size, hidden("policy", tanh_layers)
        if act_dim:
            self.actor_mean = mlp(features, policy_layer_sizes, act_dim, 0.01, of_policy)
            self.actor_logstd = nn.Parameter(torch.full((act_dim,), float(initial_log_std)))
        if counts:
            self.actor_logits = mlp(features, policy_layer_sizes, sum(counts), 0.01, of_policy)
        self.critic = mlp(features, value_layer_sizes, 1, 1.0, hidden("critic", tanh_layers))

    @property
    def distribution(self) -> Distribution:
        """The action distribution that the network parameterises; a Gaussian's samples are clipped to [-1, 1]."""
        ones = next(self.critic.parameters()).new_ones(self.act_dim)
        return distribution_of(Gaussian(-ones, ones), self.counts)

    def forward_policy(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return mean and log standard deviation of the raw action, and logits.  [..., O] -> [..., D] twice, [..., C]

        The first two are missing without a Gaussian, the last without choices.
        """
        return self._heads(*self._encoded(x))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the distribution's parameters as `forward_policy` does, and the value.  [..., O] -> ..., [...]"""
        features, mask = self._encoded(x)
        return *self._heads(features, mask), self.critic(features).squeeze(-1)

    def _encoded(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the features of observations, and their masks."""
        numbers, images, mask = self.obs_encoder.split(x)
        return self.obs_encoder(self.obs_normalizer(numbers), images), mask

    def _heads(self, features: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        outputs: tuple[Tensor, ...] = ()
        if self.act_dim:
            mean = self.actor_mean(features)
            outputs = (mean, self.actor_logstd.expand_as(mean))
        return (*outputs, masked(self.actor_logits(features), mask)) if self.counts else outputs

    def get_value(self, x: Tensor) -> Tensor:
        """Return the value of each observation.  [..., O] -> [...]"""
        value: Tensor = self.critic(self._encoded(x)[0]).squeeze(-1)
        return value

    def get_deterministic_action(self, x: Tensor) -> Tensor:
        """Return the mean of the raw action, or the most probable choices.  [..., O] -> [..., D]"""
        return self.distribution.mode(self.distribution.params(*self.forward_policy(x)))

    def get_action_and_value(self, x: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return (action, log-probability, entropy, value); the raw action is sampled unless one is given."""
        *outputs, value = self(x)
        distribution = self.distribution
        params = distribution.params(*outputs)
        if action is None:
            noise = distribution.draw_noise(x.shape[:-1], torch.default_generator, value.dtype)
            action = distribution.sample(params, noise.to(value.device))
        return action, distribution.log_prob(params, action), distribution.entropy(params), value


class DiagonalGaussianPolicy(nn.Module):
    """MPO's policy. The *raw* action is the Gaussian sample; the *executed* one is it clipped to the bounds.

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
        initial_std: float | None = None,
        make_layers: MakeLayers = layer_norm_layers,
        mean_gain: float | None = None,
    ) -> None:
        """Make the layers. `mean_gain` is the gain of the mean's orthogonal initial weights; None: Gaussian weights."""
        super().__init__()
        low, high = action_bounds(action_low, action_high, act_dim)
        self.register_buffer("action_low", low)
        self.register_buffer("action_high", high)
        self.obs_encoder = ObservationEncoder.of(obs)
        self.encoder = make_layers(self.obs_encoder.size, layer_sizes)
        if mean_gain is None:
            self.policy_mean = nn.Linear(layer_sizes[-1], act_dim)
            nn.init.kaiming_normal_(self.policy_mean.weight, mode="fan_in", nonlinearity="linear")
            nn.init.zeros_(self.policy_mean.bias)
        else:
            self.policy_mean = orthogonal_linear(layer_sizes[-1], act_dim, mean_gain)
        self.policy_logstd = nn.Linear(layer_sizes[-1], act_dim)
        if initial_std is not None:
            nn.init.zeros_(self.policy_logstd.weight)
            nn.init.constant_(self.policy_logstd.bias, math.log(initial_std))

    @property
    def distribution(self) -> Gaussian:
        """The action distribution that the network parameterises."""
        return Gaussian(self.action_low, self.action_high)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log standard deviation of the raw action.  [..., O] -> [..., D], [..., D]"""
        return self.forward_with_features(self.encoder(self.obs_encoder.encoded(obs)))

    def forward_with_features(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log standard deviation of the raw action from the encoder's output."""
        mean = _finite_or_zero(self.policy_mean(features))
        log_std = torch.clamp(_finite_or_zero(self.policy_logstd(features)), LOG_STD_MIN, LOG_STD_MAX)
        return mean, log_std

    def head_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of both heads, without the encoder's."""
        return [*self.policy_mean.parameters(), *self.policy_logstd.parameters()]

    def log_prob(self, mean: Tensor, log_std: Tensor, actions_raw: Tensor) -> Tensor:
        """Return the log-density of raw actions.  [B, D] -> [B, 1]"""
        return gaussian_log_prob(mean, log_std, actions_raw).unsqueeze(-1)

    def execute(self, actions_raw: Tensor) -> Tensor:
        """Return the executed form of raw actions, which the environment and the critic receive."""
        return self.distribution.executed(actions_raw)

    def sample_action_raw_and_exec(
        self, mean: Tensor, log_std: Tensor, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return a raw action for each mean (or the mean itself) and its executed form.  [..., D] -> [..., D] twice"""
        raw = mean if deterministic else sampled_actions(mean, log_std, _noise_like(mean, generator))
        return raw, self.execute(raw)

    def sample_action(
        self, mean: Tensor, log_std: Tensor, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return an executed action for each mean.  [..., D] -> [..., D]"""
        return self.sample_action_raw_and_exec(mean, log_std, deterministic, generator)[1]

    def sample_actions_raw_and_exec(
        self, obs: Tensor, num_actions: int, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return `num_actions` raw actions per state, and their executed form.  [B, O] -> [B, N, D] twice"""
        mean, log_std = (part.unsqueeze(-2).expand(-1, num_actions, -1) for part in self(obs))
        return self.sample_action_raw_and_exec(mean, log_std, generator=generator)

    def sample_actions(self, obs: Tensor, num_actions: int, generator: torch.Generator | None = None) -> Tensor:
        """Return `num_actions` executed actions per state.  [B, O] -> [B, N, D]"""
        return self.sample_actions_raw_and_exec(obs, num_actions, generator)[1]


class SquashedGaussianPolicy(nn.Module):
    """V-MPO's policy and value network: a Gaussian squashed by tanh into the bounds; with `squash=False`, clipped.

    The *raw* action is the Gaussian sample; the *executed* action is what the environment receives: the sample
    squashed or clipped. With `shared_encoder`, policy and value share one encoder of `policy_layer_sizes`.
    `initial_log_std` is the log standard deviation before training, in every state; None leaves it to the layers'
    initialisation. With `counts` the policy also has a categorical distribution for each of several choices, the n-th
    one of `counts[n]`, which are executed as they are; then `act_dim` may be 0. Observations are vectors of `obs`
    numbers, or what the given encoder takes, whose features policy and value share.
    """

    action_low: Tensor
    action_high: Tensor
    policy_logstd: nn.Linear | nn.Parameter

    def __init__(
        self,
        obs: int | ObservationEncoder,
        act_dim: int,
        policy_layer_sizes: LayerSizes = (256, 256),
        value_layer_sizes: LayerSizes = (256, 256),
        action_low: Bound | None = None,
        action_high: Bound | None = None,
        shared_encoder: bool = False,
        ppo_like_backbone: bool = False,
        *,
        squash: bool = True,
        normalize_observations: bool = False,
        initial_log_std: float | None = None,
        counts: Sequence[int] = (),
        hidden: HiddenLayers = usual_layers,
    ) -> None:
        super().__init__()
        self.obs_encoder = ObservationEncoder.of(obs)
        self.shared_encoder = shared_encoder
        self.squash = squash
        self.act_dim, self.counts = act_dim, tuple(counts)
        low, high = action_bounds(action_low, action_high, act_dim)
        self.register_buffer("action_low", low, persistent=False)
        self.register_buffer("action_high", high, persistent=False)
        self.obs_normalizer = normalizer_of(self.obs_encoder) if normalize_observations else nn.Identity()
        usual, encoded = tanh_layers if ppo_like_backbone else layer_norm_layers, self.obs_encoder.size
        self.policy_encoder = hidden("policy", usual)(encoded, policy_layer_sizes)
        self.value_encoder = None if shared_encoder else hidden("critic", usual)(encoded, value_layer_sizes)
        features = policy_layer_sizes[-1]
        value_features = features if shared_encoder else value_layer_sizes[-1]
        self._make_policy_head(features, act_dim, ppo_like_backbone, initial_log_std)
        self.value_head = (
            orthogonal_linear(value_features, 1, 1.0) if ppo_like_backbone else nn.Linear(value_features, 1)
        )

    def _make_policy_head(
        self, features: int, act_dim: int, ppo_like_backbone: bool, initial_log_std: float | None
    ) -> None:
        def head(size: int) -> nn.Linear:
            return orthogonal_linear(features, size, gain=0.01) if ppo_like_backbone else nn.Linear(features, size)

        if act_dim:
            self.policy_mean = head(act_dim)
            if ppo_like_backbone:
                self.policy_logstd = nn.Parameter(torch.full((1, act_dim), float(initial_log_std or 0.0)))
            else:
                self.policy_logstd = nn.Linear(features, act_dim)
                if initial_log_std is not None:
                    nn.init.zeros_(self.policy_logstd.weight)
                    nn.init.constant_(self.policy_logstd.bias, initial_log_std)
        if self.counts:
            self.policy_logits = head(sum(self.counts))

    @property
    def distribution(self) -> Distribution:
        """The action distribution that the network parameterises."""
        kind = SquashedGaussian if self.squash else Gaussian
        return distribution_of(kind(self.action_low, self.action_high), self.counts)

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """Return mean and log standard deviation of the raw action, and logits.  [..., O] -> [..., D] twice, [..., C]

        The first two are missing without a Gaussian, the last without choices.
        """
        encoded, mask = self._encoded(obs)
        return self._heads(self.policy_encoder(encoded), mask)

    def forward_all(self, obs: Tensor) -> tuple[Tensor, ...]:
        """Return the distribution's parameters as `forward` does, and the value.  [..., O] -> ..., [..., 1]"""
        encoded, mask = self._encoded(obs)
        features = self.policy_encoder(encoded)
        value_features = features if self.value_encoder is None else self.value_encoder(encoded)
        return *self._heads(features, mask), self.value_head(value_features)

    def get_value(self, obs: Tensor) -> Tensor:
        """Return the value of each observation.  [..., O] -> [..., 1]"""
        encoder = self.policy_encoder if self.value_encoder is None else self.value_encoder
        return cast(Tensor, self.value_head(encoder(self._encoded(obs)[0])))

    def _encoded(self, obs: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the features of observations, and their masks."""
        numbers, images, mask = self.obs_encoder.split(obs)
        return self.obs_encoder(self.obs_normalizer(numbers), images), mask

    def log_prob(self, mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
        """Return the log-density of executed actions.  [..., D] -> [..., 1]

        The raw action cannot be recovered exactly from one on a bound: where it is known, use `log_prob_raw`.
        """
        return self.log_prob_raw(mean, log_std, self.recover(actions))

    def log_prob_raw(self, mean: Tensor, log_std: Tensor, raw: Tensor) -> Tensor:
        """Return the log-density of the executed actions, given as the raw samples.  [..., D] -> [..., 1]"""
        return self.distribution.log_prob(self.distribution.params(mean, log_std), raw).unsqueeze(-1)

    def execute(self, raw: Tensor) -> Tensor:
        """Return the executed form of raw actions, which the environment receives.  [..., D] -> [..., D]"""
        return self.distribution.executed(raw)

    def recover(self, actions: Tensor) -> Tensor:
        """Return raw actions whose executed form is `actions`.  [..., D] -> [..., D]"""
        return self.distribution.recovered(actions)

    def sample_action(self, mean: Tensor, log_std: Tensor, deterministic: bool) -> tuple[Tensor, Tensor]:
        """Return an executed action for each mean (deterministic: of the mean itself), and its log-density.

        [..., D] -> [..., D], [..., 1]
        """
        raw = mean if deterministic else sampled_actions(mean, log_std, torch.randn_like(mean))
        return self.execute(raw), self.log_prob_raw(mean, log_std, raw)

    def policy_logstd_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of the log standard deviation: those of its layer, or one per action dimension."""
        if isinstance(self.policy_logstd, nn.Parameter):
            return [self.policy_logstd]
        return list(self.policy_logstd.parameters())

    def _heads(self, features: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        outputs: tuple[Tensor, ...] = ()
        if self.act_dim:
            mean: Tensor = self.policy_mean(features)
            if isinstance(self.policy_logstd, nn.Linear):
                log_std = self.policy_logstd(features)
            else:
                log_std = self.policy_logstd.reshape(-1).expand_as(mean)
            outputs = (mean, torch.clamp(log_std, LOG_STD_MIN, LOG_STD_MAX))
        return (*outputs, masked(self.policy_logits(features), mask)) if self.counts else outputs


def normalizer_of(encoder: ObservationEncoder) -> nn.Module:
    """Return the normaliser of the numbers that an encoder receives; of images alone, there are none."""
    return RunningNorm(encoder.numbers) if encoder.numbers else nn.Identity()


def _finite_or_zero(outputs: Tensor) -> Tensor:
    return torch.nan_to_num(outputs, nan=0.0, posinf=0.0, neginf=0.0)


def _noise_like(mean: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)


class _PolicyNetwork(Protocol):
    """A module that returns the parameters of an action distribution."""

    @property
    def distribution(self) -> Distribution:
        """The action distribution that the module parameterises."""


class FunctionalPolicy(FunctionalModule):
    """A policy network as a function of a flat parameter vector, with its outputs as named distribution parameters.

    `policy` names the module's method that returns the distribution's parameters, `everything` the one that returns
    these and the value.
    """

    def __init__(
        self,
        module: nn.Module,
        distribution: Distribution | None = None,
        policy: str = "forward",
        everything: str = "forward",
    ) -> None:
        """Wrap `module`; with `distribution` None, use the module's own."""
        super().__init__(module, policy, everything)
        self.distribution = distribution or cast(_PolicyNetwork, module).distribution
        self._policy, self._everything = policy, everything

    def params(self, parameters: Tensor, obs: Tensor, normalizer: Params | None = None) -> Params:
        """Return the distribution's parameters in each state.  [..., O] -> [..., size] each"""
        return self.distribution.params(*self._call_module(self._policy, parameters, obs, normalizer))

    def params_and_values(
        self, parameters: Tensor, obs: Tensor, normalizer: Params | None = None
    ) -> tuple[Params, Tensor]:
        """Return the distribution's parameters and the value in each state.  [..., O] -> [..., size] each, [...]"""
        *outputs, values = self._call_module(self._everything, parameters, obs, normalizer)
        return self.distribution.params(*outputs), values if values.ndim < obs.ndim else values.squeeze(-1)

    def _call_module(
        self, method: str, parameters: Tensor, obs: Tensor, normalizer: Params | None
    ) -> tuple[Tensor, ...]:
        buffers = {"obs_normalizer": normalizer or {}}
        outputs: tuple[Tensor, ...] = self.with_tensors(
            self.flat.by_name(parameters), obs, buffers=buffers, method=method
        )
        return outputs
