"""MPO's hyperparameters."""

from dataclasses import dataclass
from typing import Annotated, Literal

from minerva.config import AT_LEAST_ONE, FRACTION, NOT_NEGATIVE, POSITIVE, Config, LayerSizes
from minerva.errors import ConfigError
from minerva.utils.optim import OptimizerType


@dataclass(frozen=True)
class MPOConfig(Config):
    """Every hyperparameter of MPO with its default."""

    # Networks
    policy_layer_sizes: LayerSizes = (256, 256, 256)
    """Widths of the policy's hidden layers."""
    critic_layer_sizes: LayerSizes = (256, 256, 256)
    """Widths of the critic's hidden layers."""
    initial_std: Annotated[float | None, POSITIVE] = None
    """Standard deviation of the untrained policy; None: what the initialisation gives, about 1."""
    acting_policy: Literal["online", "target"] = "online"
    """Which policy collects experience."""

    # Loop
    num_envs: Annotated[int, AT_LEAST_ONE] = 1
    """E: environments stepped together."""
    replay_size: Annotated[int, AT_LEAST_ONE] = 1_000_000
    """Transitions kept."""
    batch_size: Annotated[int, AT_LEAST_ONE] = 256
    """B: transitions (or sequences) per update."""
    update_after: Annotated[int, AT_LEAST_ONE] = 1_000
    """Environment steps before the first update."""
    warmup: Literal["random", "policy"] = "random"
    """How actions are chosen until update_after."""
    updates_per_step: Annotated[float, POSITIVE] = 0.25
    """Updates per environment step; the published settings make one per four."""

    # Critic
    gamma: Annotated[float, FRACTION] = 0.99
    """Discount."""
    n_step: Annotated[int, AT_LEAST_ONE] = 1
    """Steps of reward before the target bootstraps."""
    use_retrace: bool = False
    """Retrace targets along sequences instead of n-step ones."""
    retrace_steps: Annotated[int, AT_LEAST_ONE] = 2
    """Length of the sequences that Retrace is given."""
    retrace_mc_actions: Annotated[int, AT_LEAST_ONE] = 8
    """K: actions over which the state value in Retrace is averaged."""
    retrace_lambda: Annotated[float, FRACTION] = 0.95
    """Trace parameter lambda of Retrace."""
    critic: Literal["scalar", "categorical"] = "scalar"
    """What the critic predicts: the return's mean, or its distribution over fixed atoms."""
    critic_atoms: Annotated[int, AT_LEAST_ONE] = 51
    """Atoms of the categorical critic."""
    critic_range: Annotated[float, POSITIVE] = 150.0
    """The atoms span minus to plus this; 150 is published for dm_control, 1600 for Gym."""
    target_networks_update_period: Annotated[int, AT_LEAST_ONE] = 100
    """Updates between hard copies of both networks into their targets."""

    # E-step
    action_samples: Annotated[int, AT_LEAST_ONE] = 20
    """N: actions sampled per state."""
    kl_epsilon: Annotated[float, POSITIVE] = 0.1
    """epsilon_eta: bound of the E-step."""
    temperature: Literal["gradient", "solved"] = "gradient"
    """Move the temperature by gradient, or solve its one-dimensional dual in each update."""
    temperature_init: float = 1.0
    """Initial unconstrained temperature."""
    temperature_lr: Annotated[float, POSITIVE] = 3e-4
    """Learning rate of the temperature."""
    epsilon_penalty: Annotated[float, NOT_NEGATIVE] = 0.001
    """Bound of the penalty on actions outside their bounds; 0: no penalty."""

    # M-step
    m_steps: Annotated[int, AT_LEAST_ONE] = 1
    """M: gradient steps on the policy per update."""
    mstep_kl_epsilon: Annotated[float, POSITIVE] = 0.1
    """epsilon_mu: bound on the mean's KL, per action dimension."""
    mstep_kl_epsilon_std: Annotated[float | None, POSITIVE] = None
    """epsilon_sigma: bound on the spread's KL, per action dimension; None: the same as the mean's."""
    lambda_init: Annotated[float, POSITIVE] = 1.0
    """Factor on both initial multipliers."""
    lambda_lr: Annotated[float, POSITIVE] = 3e-4
    """Learning rate of the multipliers."""
    init_log_alpha_mean: float = 10.0
    """Initial unconstrained multiplier of the mean's KL."""
    init_log_alpha_stddev: float = 1000.0
    """Initial unconstrained multiplier of the spread's KL."""

    # Optimiser
    policy_lr: Annotated[float, POSITIVE] = 3e-4
    """Learning rate of the policy; divided by m_steps."""
    q_lr: Annotated[float, POSITIVE] = 3e-4
    """Learning rate of the critic."""
    max_grad_norm: Annotated[float, POSITIVE] = 1.0
    """Gradients of critic, duals and policy are each shortened to this length; inf: never."""
    optimizer_type: OptimizerType = "adam"
    """"adam" (eps 1e-5) or "sgd"."""
    sgd_momentum: Annotated[float, FRACTION] = 0.9
    """Momentum of "sgd"."""

    def check(self) -> None:
        """Rules between fields."""
        if self.replay_size < self.batch_size:
            raise ConfigError(
                f"replay_size {self.replay_size} is smaller than batch_size {self.batch_size}: raise replay_size."
            )
        if self.use_retrace and self.retrace_steps < 2:
            raise ConfigError("use_retrace needs sequences: set retrace_steps to 2 or more.")
        if self.use_retrace and self.n_step > 1:
            raise ConfigError("use_retrace and n_step are two ways to the same target: leave n_step at 1.")
