"""SAC's hyperparameters."""

from dataclasses import dataclass
from typing import Annotated, Literal

from minerva.compute.optim import OptimizerConfig
from minerva.config import AT_LEAST_ONE, DIVIDED, FRACTION, LOOP, POSITIVE, TENSOR, LayerSizes, Within
from minerva.errors import ConfigError


@dataclass(frozen=True)
class SACConfig(OptimizerConfig):
    """Every hyperparameter of SAC with its default."""

    # Networks
    policy_layer_sizes: LayerSizes = (256, 256)
    """Widths of the policy's hidden layers."""
    critic_layer_sizes: LayerSizes = (256, 256)
    """Widths of each critic's hidden layers."""

    # Loop
    num_envs: Annotated[int, AT_LEAST_ONE, LOOP, DIVIDED] = 1
    """E: environments stepped together."""
    replay_size: Annotated[int, AT_LEAST_ONE, LOOP, DIVIDED] = 1_000_000
    """Capacity of the replay, in transitions."""
    batch_size: Annotated[int, AT_LEAST_ONE, LOOP, DIVIDED] = 256
    """B: transitions per update."""
    update_after: Annotated[int, AT_LEAST_ONE, LOOP] = 1_000
    """Environment steps before the first update."""
    warmup: Annotated[Literal["random", "policy"], LOOP] = "random"
    """How actions are chosen until update_after."""
    updates_per_step: Annotated[float, POSITIVE, LOOP] = 1.0
    """Updates per environment step."""

    # Critics
    gamma: Annotated[float, FRACTION, TENSOR] = 0.99
    """gamma: discount."""
    tau: Annotated[float, FRACTION, TENSOR] = 0.005
    """tau: share of the critics that each update mixes into their targets."""

    # Temperature
    temperature_init: Annotated[float, POSITIVE] = 1.0
    """Temperature before training."""
    temperature_lr: Annotated[float, POSITIVE, TENSOR] = 3e-4
    """Learning rate of the temperature."""
    target_entropy: Annotated[float | None, TENSOR] = None
    """Entropy that the temperature holds the policy at; None: minus the number of action dimensions."""

    # Optimiser
    policy_lr: Annotated[float, POSITIVE, TENSOR] = 3e-4
    """Learning rate of the policy."""
    q_lr: Annotated[float, POSITIVE, TENSOR] = 3e-4
    """Learning rate of the critics."""
    anneal_lr: Annotated[bool, LOOP] = False
    """Anneal the learning rates of policy and critics linearly to 0 over the run."""
    max_grad_norm: Annotated[float, Within("(0, inf]"), TENSOR] = float("inf")
    """Largest gradient norm of policy and critics; longer ones are clipped to it. inf: no clipping."""

    def check(self) -> None:
        """Raise ConfigError if replay_size is too small."""
        for name in ("batch_size", "num_envs"):
            if self.replay_size < getattr(self, name):
                raise ConfigError(
                    f"replay_size {self.replay_size} is smaller than {name} {getattr(self, name)}: raise replay_size."
                )
