"""MPO's hyperparameters."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from minerva.config import (
    AT_LEAST_ONE,
    DIVIDED,
    FRACTION,
    LOOP,
    NOT_NEGATIVE,
    POSITIVE,
    TENSOR,
    Activation,
    AlsoCalled,
    ImageEncoderName,
    LayerSizes,
    OptimizerConfig,
    Within,
)
from minerva.errors import ConfigError


@dataclass(frozen=True)
class MPOConfig(OptimizerConfig):
    """Every hyperparameter of MPO with its default."""

    # Networks
    encoder: Literal["plain", "residual"] = "residual"
    """Hidden layers: one LayerNorm after the first and none after the others (the published networks), or residual
    blocks with a LayerNorm after each Linear."""
    policy_layer_sizes: Annotated[LayerSizes, AlsoCalled("net_arch hidden_sizes hidden_layer_sizes")] = (256, 256)
    """Widths of the policy's hidden layers; residual: of the first layer, and of each block."""
    critic_layer_sizes: Annotated[LayerSizes, AlsoCalled("net_arch hidden_sizes hidden_layer_sizes")] = (256, 256, 256)
    """Widths of each critic's hidden layers; residual: of the first layer, and of each block."""
    activation: Annotated[Activation, AlsoCalled("activation_fn")] = "default"
    """Activation of the hidden layers of policy and critics; "default": ReLU, and in plain layers
    tanh, then ELU."""
    image_encoder: ImageEncoderName = "auto"
    """Convolutions for images: "nature", for about 84 x 84; "impala", deeper and slower; "small", for about 10 x 10.
    "auto": "nature", and "small" below 36 x 36."""
    normalize_observations: Annotated[bool, AlsoCalled("norm_obs")] = True
    """Shift and scale observations by the running mean and variance of those collected."""
    initial_std: Annotated[float | Literal["auto"] | None, POSITIVE] = "auto"
    """Standard deviation before training. "auto": 0.3, or 0.7 / sqrt(D) if that is less, for D actions; None: from the
    layers' initialisation, about 1."""
    acting_policy: Literal["online", "target"] = "target"
    """Which policy collects experience."""
    exploration_noise: Literal["pink", "white"] = "pink"
    """Noise of the actions that collect experience. "pink": an action's deviation resembles those of the steps before,
    over 1 to 256 steps (Eberhard et al. 2023); "white": it is independent of them. It always is of choices, with
    use_retrace, whose probabilities are those of independent noise, and with `explore` in a loop of your own."""

    # Loop
    num_envs: Annotated[int, AT_LEAST_ONE, LOOP, DIVIDED, AlsoCalled("n_envs num_actors num_workers")] = 4
    """E: environments stepped together."""
    replay_size: Annotated[
        int, AT_LEAST_ONE, LOOP, DIVIDED, AlsoCalled("buffer_size max_replay_size replay_capacity")
    ] = 1_000_000
    """Capacity of the replay, in transitions."""
    batch_size: Annotated[int, AT_LEAST_ONE, LOOP, DIVIDED] = 256
    """B: transitions (or sequences) per update."""
    update_after: Annotated[int, AT_LEAST_ONE, LOOP, AlsoCalled("learning_starts min_replay_size start_steps")] = 2_500
    """Environment steps before the first update."""
    warmup: Annotated[Literal["random", "policy"], LOOP] = "random"
    """How actions are chosen until update_after. The first policy of a discrete action is itself uniform."""
    updates_per_step: Annotated[float, POSITIVE, LOOP, AlsoCalled("gradient_steps utd_ratio samples_per_insert")] = 0.5
    """Updates per environment step, each of critic_steps critic steps; published settings use one per four steps."""
    scale_rewards: Annotated[bool, LOOP] = True
    """Divide rewards by a third of the largest discounted return so far, so that values lie between -5 and 5."""

    # Critic
    gamma: Annotated[float, FRACTION, TENSOR, AlsoCalled("discount discount_factor")] = 0.995
    """gamma: discount."""
    n_step: Annotated[int, AT_LEAST_ONE, AlsoCalled("n_steps")] = 3
    """n: rewards that are summed before the target bootstraps."""
    use_retrace: bool = False
    """Use Retrace targets along sequences instead of n-step targets."""
    retrace_steps: Annotated[int, AT_LEAST_ONE] = 2
    """Length of the sequences for Retrace; 1 is the one-step target."""
    retrace_mc_actions: Annotated[int, AT_LEAST_ONE] = 8
    """K: actions over which the state value in Retrace is averaged."""
    retrace_lambda: Annotated[float, FRACTION, TENSOR] = 0.95
    """lambda: trace parameter of Retrace."""
    critics: Annotated[int, Within("[1, 2]")] = 2
    """C: critics, each with its own weights and the same target."""
    critic_reduction: Literal["mean", "min", "auto"] = "mean"
    """Value of an action from two critics: their mean, or the smaller. "auto": the mean until a step has terminated an
    episode, the smaller from then on."""
    critic_steps: Annotated[int, AT_LEAST_ONE] = 2
    """K: gradient steps on the critics per update, each on a batch of its own."""
    bootstrap_samples: Annotated[int | None, AT_LEAST_ONE] = 4
    """Actions sampled in the next state for the critic's target; None: as many as for the E-step."""
    critic: Literal["scalar", "categorical", "hl_gauss"] = "hl_gauss"
    """Prediction: the mean return, its distribution over atoms (C51), or the mean as a histogram (HL-Gauss)."""
    critic_atoms: Annotated[int, Within("[2, inf)")] = 101
    """Atoms of the "categorical" and "hl_gauss" critics."""
    critic_range: Annotated[float, POSITIVE] = 5.0
    """The atoms span minus to plus this: 5 with scale_rewards; published values without are 150 for dm_control and 1600
    for Gym."""
    target_networks_update_period: Annotated[
        int,
        AT_LEAST_ONE,
        TENSOR,
        AlsoCalled(
            "target_update_period target_policy_update_period target_critic_update_period target_update_interval"
        ),
    ] = 50
    """Updates between hard copies of both networks into their targets."""
    bfloat16_targets: bool | None = None
    """Evaluate the target critic's hidden layers, most of an update's computation, in bfloat16. None: where the
    processor has units for it, NVIDIA's since Ampere and Intel's with AMX."""

    # E-step
    action_samples: Annotated[int, AT_LEAST_ONE, AlsoCalled("num_samples")] = 16
    """N: actions sampled per state."""
    mirrored_samples: bool = True
    """Sample actions in pairs that lie opposite each other around the mean, at a mean square distance of one standard
    deviation: where all of an even number count the same, they move neither mean nor standard deviation."""
    kl_epsilon: Annotated[float, POSITIVE, TENSOR, AlsoCalled("epsilon")] = 0.1
    """epsilon_eta: bound on the E-step's KL."""
    temperature: Literal["gradient", "solved"] = "gradient"
    """Update the temperature by a gradient step, or solve its one-dimensional dual in each update."""
    temperature_init: Annotated[float, AlsoCalled("init_log_temperature")] = -3.0
    """Initial unconstrained parameter of the temperature, which is its softplus."""
    temperature_lr: Annotated[float, POSITIVE, TENSOR, AlsoCalled("dual_lr dual_learning_rate")] = 0.01
    """Learning rate of the temperature."""
    epsilon_penalty: Annotated[float, NOT_NEGATIVE, TENSOR] = 0.001
    """KL bound of the penalty on sampled actions out of bounds (Abdolmaleki et al. 2020); 0: no penalty."""

    # M-step
    m_steps: Annotated[int, AT_LEAST_ONE] = 1
    """M: gradient steps on the policy per update."""
    mstep_kl_epsilon: Annotated[float, POSITIVE, TENSOR, AlsoCalled("epsilon_mean")] = 0.01
    """epsilon_mu: bound on the mean's KL, per action dimension, or on the KL of a discrete action."""
    mstep_kl_epsilon_std: Annotated[float | None, POSITIVE, TENSOR, AlsoCalled("epsilon_stddev")] = 1e-5
    """epsilon_sigma: bound on the standard deviation's KL, per action dimension; None: that of the mean. Published
    values are 1,000 to 10,000 times smaller than the mean's."""
    lambda_init: Annotated[float, POSITIVE] = 1.0
    """Factor by which both initial multipliers are scaled."""
    lambda_lr: Annotated[float, POSITIVE, TENSOR] = 0.01
    """Learning rate of the multipliers."""
    init_log_alpha_mean: float = 10.0
    """Initial unconstrained parameter of the mean's multipliers, or of a discrete action's."""
    init_log_alpha_stddev: float = 60.0
    """Initial unconstrained parameter of the standard deviation's multipliers. Published settings start at 1000, which
    nearly freezes the std until they have fallen: 3.3 million updates at lambda_lr 3e-4, 100,000 at 0.01."""

    # Optimiser
    policy_lr: Annotated[float, POSITIVE, TENSOR, AlsoCalled("learning_rate lr actor_lr policy_learning_rate")] = 3e-4
    """Learning rate of the policy; divided by m_steps."""
    q_lr: Annotated[float, POSITIVE, TENSOR, AlsoCalled("learning_rate lr critic_lr critic_learning_rate qf_lr")] = 3e-4
    """Learning rate of the critics."""
    weight_decay: Annotated[float, NOT_NEGATIVE, TENSOR] = 0.01
    """Share of the critics' weights, times their learning rate, that decays in each step (AdamW); biases do not."""
    anneal_lr: Annotated[bool, LOOP] = False
    """Anneal the learning rates of policy and critic linearly to 0 over the run."""
    max_grad_norm: Annotated[
        float, Within("(0, inf]"), TENSOR, AlsoCalled("grad_clip max_gradient_norm gradient_clip")
    ] = 40.0
    """Largest gradient norm, for critic, duals and policy each; longer ones are clipped to it. inf: no clipping."""

    @property
    def sequence_length(self) -> int:
        """Number of rows that one target is computed from."""
        return self.retrace_steps if self.use_retrace else self.n_step

    @classmethod
    def published_as(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Return DMPO, then MPO, for a distributional critic; MPO otherwise."""
        return ("DMPO", "MPO") if settings.get("critic") == "categorical" else ("MPO",)

    def first_std(self, actions: int) -> float | None:
        """Return the standard deviation before training, of so many actions; None: from the layers."""
        if self.initial_std != "auto":
            return self.initial_std
        # LaTeX: \sigma_0 = \min(0.3, \frac{0.7}{\sqrt{D}})
        std = min(0.3, 0.7 / math.sqrt(actions))
        return std

    def derived(self, actions: int) -> dict[str, str]:
        """Return the rules for the first spread, the critics' reduction, scales, and the precision of targets."""
        std = (self.first_std(actions) if actions else None) or 0.0
        rules = {
            "initial_std": f"{std:.3g}, the smaller of 0.3 and 0.7 / sqrt({actions} actions), "
            "because many actions that vary at once explore too widely",
            "E-step": "exact, a sum over all choices, because there are no actions to sample",
            "critic_reduction": "the mean of both critics until an episode terminates, the smaller from then on, "
            "because values that are too high make a policy fall, and the smaller one hides sparse rewards",
            "scale_rewards": "rewards in thirds of the largest discounted return so far, because the critics' range is "
            f"{-self.critic_range:g} to {self.critic_range:g}",
            "normalize_observations": "zero mean and unit variance over all that were collected, because units differ",
            "bfloat16_targets": "bfloat16 on processors with units for it (NVIDIA's since Ampere, Intel's with AMX), "
            "because targets are most of an update",
        }
        used = {
            "initial_std": self.initial_std == "auto" and actions > 0,
            "E-step": actions == 0,
            "critic_reduction": self.critics > 1 and self.critic_reduction == "auto",
            "scale_rewards": self.scale_rewards,
            "normalize_observations": self.normalize_observations,
            "bfloat16_targets": self.bfloat16_targets is None,
        }
        return {name: rule for name, rule in rules.items() if used[name]}

    MANY_ENVS = 1024

    @classmethod
    def at_scale(cls, num_envs: int) -> dict[str, Any]:
        """Return the defaults for thousands of environments: large batches, and rates that are higher by as much.

        On dm_control's walker/run twice as many updates on half the rows, with rates of 6e-4, learn no more from a step
        and take twice as long, and critics twice as wide are no better. Noise, discount, reduction and multiplier are
        those that this was measured with: what fewer environments gained from others was not tried here.
        """
        return {
            **cls.replay_at_scale(num_envs, updates=8, rows=2),
            "critic_reduction": "auto",
            "exploration_noise": "white",
            "gamma": 0.99,
            "init_log_alpha_stddev": 10.0,
            "policy_lr": 1e-3,
            "q_lr": 1e-3,
            "target_networks_update_period": 25,
        }

    def check(self) -> None:
        """Raise ConfigError if replay_size is too small, or if use_retrace and n_step are combined."""
        for name in ("batch_size", "num_envs"):
            if self.replay_size < getattr(self, name):
                raise ConfigError(
                    f"replay_size {self.replay_size} is smaller than {name} {getattr(self, name)}: raise replay_size."
                )
        if self.critic == "categorical" and self.critics > 1:
            raise ConfigError(
                "A categorical critic predicts a distribution, of which two have no smaller: set critics to 1."
            )
        if self.use_retrace and self.n_step > 1:
            raise ConfigError("use_retrace and n_step are alternative targets: set n_step to 1.")
