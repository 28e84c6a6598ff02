"""SAC's hyperparameters."""

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
class SACConfig(OptimizerConfig):
    """Every hyperparameter of SAC with its default."""

    # Networks
    encoder: Literal["plain", "residual"] = "plain"
    """Hidden layers: Linear and ReLU (the published networks), or residual blocks with a LayerNorm after each
    Linear."""
    policy_layer_sizes: Annotated[LayerSizes, AlsoCalled("net_arch hidden_sizes hidden_layer_sizes")] = (256, 256)
    """Widths of the policy's hidden layers; residual: of the first layer, and of each block."""
    critic_layer_sizes: Annotated[LayerSizes, AlsoCalled("net_arch hidden_sizes hidden_layer_sizes")] = (256, 256)
    """Widths of each critic's hidden layers; residual: of the first layer, and of each block."""
    activation: Annotated[Activation, AlsoCalled("activation_fn")] = "default"
    """Activation of the hidden layers of policy and critics; "default": ReLU."""
    image_encoder: ImageEncoderName = "auto"
    """Convolutions for images: "nature", for about 84 x 84; "impala", deeper and slower; "small", for about 10 x 10.
    "auto": "nature", and "small" below 36 x 36."""
    normalize_observations: Annotated[bool, AlsoCalled("norm_obs")] = False
    """Shift and scale observations by the running mean and variance of those collected."""

    # Loop
    num_envs: Annotated[int, AT_LEAST_ONE, LOOP, DIVIDED, AlsoCalled("n_envs num_actors num_workers")] = 1
    """E: environments stepped together."""
    replay_size: Annotated[
        int, AT_LEAST_ONE, LOOP, DIVIDED, AlsoCalled("buffer_size max_replay_size replay_capacity")
    ] = 1_000_000
    """Capacity of the replay, in transitions."""
    batch_size: Annotated[int, AT_LEAST_ONE, LOOP, DIVIDED] = 256
    """B: transitions per update."""
    update_after: Annotated[int, AT_LEAST_ONE, LOOP, AlsoCalled("learning_starts min_replay_size start_steps")] = 1_000
    """Environment steps before the first update."""
    warmup: Annotated[Literal["random", "policy"], LOOP] = "random"
    """How actions are chosen until update_after."""
    updates_per_step: Annotated[float, POSITIVE, LOOP, AlsoCalled("gradient_steps utd_ratio samples_per_insert")] = 1.0
    """Updates per environment step."""
    scale_rewards: Annotated[bool, LOOP] = False
    """Divide rewards by a third of the largest discounted return so far, so that values lie between -5 and 5."""

    # Critics
    gamma: Annotated[float, FRACTION, TENSOR, AlsoCalled("discount discount_factor")] = 0.99
    """gamma: discount."""
    n_step: Annotated[int, AT_LEAST_ONE, AlsoCalled("n_steps")] = 1
    """n: rewards that are summed before the target bootstraps."""
    critic: Literal["scalar", "hl_gauss"] = "scalar"
    """Prediction: the mean return, or the mean as a histogram (HL-Gauss)."""
    critic_atoms: Annotated[int, Within("[2, inf)")] = 101
    """Atoms of the "hl_gauss" critics."""
    critic_range: Annotated[float, POSITIVE] = 5.0
    """The atoms span minus to plus this; 5 fits scale_rewards."""
    weight_decay: Annotated[float, NOT_NEGATIVE, TENSOR] = 0.0
    """Share of the critics' weights, times their learning rate, that decays in each step (AdamW); biases do not."""
    tau: Annotated[float, FRACTION, TENSOR, AlsoCalled("polyak")] = 0.005
    """tau: share of the critics that each update mixes into their targets."""

    # Temperature
    temperature_init: Annotated[float, POSITIVE, AlsoCalled("ent_coef alpha entropy_coef init_temperature")] = 1.0
    """Temperature before training."""
    temperature_lr: Annotated[float, POSITIVE, TENSOR, AlsoCalled("alpha_lr ent_coef_lr")] = 3e-4
    """Learning rate of the temperature."""
    target_entropy: Annotated[float | None, TENSOR] = None
    """Entropy that the temperature holds the policy at; None: minus the number of action dimensions."""

    # Optimiser
    policy_lr: Annotated[float, POSITIVE, TENSOR, AlsoCalled("learning_rate lr actor_lr policy_learning_rate")] = 3e-4
    """Learning rate of the policy."""
    q_lr: Annotated[float, POSITIVE, TENSOR, AlsoCalled("learning_rate lr critic_lr critic_learning_rate qf_lr")] = 3e-4
    """Learning rate of the critics."""
    anneal_lr: Annotated[bool, LOOP] = False
    """Anneal the learning rates of policy and critics linearly to 0 over the run."""
    max_grad_norm: Annotated[
        float, Within("(0, inf]"), TENSOR, AlsoCalled("grad_clip max_gradient_norm gradient_clip")
    ] = float("inf")
    """Largest gradient norm of policy and critics; longer ones are clipped to it. inf: no clipping."""

    def derived(self, actions: int) -> dict[str, str]:
        """Return the rule for the entropy, and for the scales of rewards and observations."""
        rules = {
            "target_entropy": f"{-actions}, minus the number of actions, as published",
            "scale_rewards": "rewards in thirds of the largest discounted return so far, because the critics' range is "
            f"{-self.critic_range:g} to {self.critic_range:g}",
            "normalize_observations": "zero mean and unit variance over all that were collected, because units differ",
        }
        used = {
            "target_entropy": self.target_entropy is None,
            "scale_rewards": self.scale_rewards,
            "normalize_observations": self.normalize_observations,
        }
        return {name: rule for name, rule in rules.items() if used[name]}

    MANY_ENVS = 1024

    @classmethod
    def at_scale(cls, num_envs: int) -> dict[str, Any]:
        """Return the defaults for thousands of environments: large batches, targets that follow sooner, wider critics.

        For 1,024 environments, FastTD3 (Seo et al. 2025) has 2 updates on 32,768 rows; it mixes a tenth of the critics
        into their targets and normalises observations. MuJoCo Playground's SAC has 8 on 512 for 128.
        """
        return {
            **cls.replay_at_scale(num_envs, updates=4, rows=4),
            "tau": 0.05,
            "critic_layer_sizes": (512, 512),
            "normalize_observations": True,
            "scale_rewards": True,
        }

    def check(self) -> None:
        """Raise ConfigError if replay_size is too small."""
        for name in ("batch_size", "num_envs"):
            if self.replay_size < getattr(self, name):
                raise ConfigError(
                    f"replay_size {self.replay_size} is smaller than {name} {getattr(self, name)}: raise replay_size."
                )
