"""PPO's hyperparameters."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from minerva.config import (
    AT_LEAST_ONE,
    DIVIDED,
    FRACTION,
    LOOP,
    NOT_NEGATIVE,
    PER_ENV,
    POSITIVE,
    TENSOR,
    Activation,
    AlsoCalled,
    ImageEncoderName,
    LayerSizes,
    OptimizerConfig,
    Within,
    rule_of_first_std,
    rule_of_rewards,
    rules_of_horizon,
)
from minerva.errors import ConfigError


@dataclass(frozen=True)
class PPOConfig(OptimizerConfig):
    """Every hyperparameter of PPO with its default."""

    # Networks
    policy_layer_sizes: Annotated[LayerSizes, AlsoCalled("net_arch hidden_sizes hidden_layer_sizes")] = (64, 64)
    """Widths of the policy's hidden layers."""
    critic_layer_sizes: Annotated[
        LayerSizes, AlsoCalled("net_arch hidden_sizes hidden_layer_sizes value_layer_sizes")
    ] = (64, 64)
    """Widths of the value network's hidden layers."""
    activation: Annotated[Activation, AlsoCalled("activation_fn")] = "default"
    """Activation of the hidden layers of policy and value network; "default": tanh."""
    image_encoder: ImageEncoderName = "auto"
    """Convolutions for images: "nature", for about 84 x 84; "impala", deeper and slower; "small", for about 10 x 10.
    "auto": "nature", and "small" below 36 x 36."""
    initial_log_std: Annotated[float | Literal["auto"], AlsoCalled("log_std_init")] = "auto"
    """Log standard deviation of every action before training; "auto": -max(1, log D) / 2 for D actions."""

    # Rollout
    num_envs: Annotated[int, AT_LEAST_ONE, LOOP, DIVIDED, AlsoCalled("n_envs num_actors num_workers")] = 16
    """E: environments stepped together."""
    rollout_steps: Annotated[
        int, AT_LEAST_ONE, LOOP, PER_ENV, AlsoCalled("n_steps num_steps horizon rollout_length unroll_length")
    ] = 128
    """T: steps of each environment between two updates."""
    blind_first_rollout: bool = True
    """Whether the first rollout's actions are independent of observations, whose scale is not known yet; it is measured
    on that rollout before learning from it, so that the units of observations change nothing."""
    normalize_rewards: Annotated[bool | None, LOOP, AlsoCalled("norm_reward")] = True
    """Divide rewards by the running std of the discounted return and clip to ±10. None: yes, but not for dm_control, as
    in the first version."""

    # Advantages
    gamma: Annotated[float | None, FRACTION, TENSOR, AlsoCalled("discount discount_factor")] = None
    """gamma: discount. None: 1 - 1 / H, where the horizon H is the mean length of episodes, 100 to 1,000 steps, and at
    most 200 once one has terminated."""
    gae_lambda: Annotated[float | None, FRACTION, TENSOR, AlsoCalled("lam lmbda lambda_")] = None
    """lambda: trace parameter of GAE; 0 is the one-step estimate, 1 the full return. None: 1 - 1 / (2 sqrt(H))."""
    advantage_estimator: Literal["gae", "returns", "dae"] = "gae"
    """"gae"; "returns": discounted return minus value; "dae": the one-step temporal difference."""
    norm_adv: Annotated[bool, AlsoCalled("normalize_advantage normalize_advantages")] = True
    """Normalise advantages to zero mean and unit std."""
    norm_adv_per_minibatch: bool = False
    """Normalise them in each minibatch, and not over the rollout, where rows in which nothing happens count little
    beside those in which something does."""
    advantage_memory: Annotated[float, FRACTION, TENSOR] = 0.99
    """beta: how slowly the usual size of advantages, from a running mean of their squares, follows that of rollouts. A
    rollout whose own are below half of it moves the policy less: once a task is solved, they are noise. 0: never."""

    # Update
    update_epochs: Annotated[int, AT_LEAST_ONE, AlsoCalled("n_epochs num_epochs epochs")] = 10
    """Passes over a rollout per update."""
    minibatch_size: Annotated[int, AT_LEAST_ONE, DIVIDED, AlsoCalled("batch_size mini_batch_size")] = 64
    """Rows per gradient step; the last of an epoch may be shorter."""
    clip_ratio: Annotated[
        float, POSITIVE, TENSOR, AlsoCalled("clip_range clip_coef clip_param clip_eps ppo_clipping_epsilon")
    ] = 0.2
    """epsilon_clip: the probability ratio is clipped to 1 - epsilon_clip ... 1 + epsilon_clip."""
    clip_vloss: bool = False
    """Clip the change of the value to clip_ratio as well."""
    ent_coef: Annotated[float, NOT_NEGATIVE, TENSOR, AlsoCalled("entropy_coef entropy_cost entropy_coeff")] = 0.0
    """c_H: weight of the entropy bonus."""
    vf_coef: Annotated[float, NOT_NEGATIVE, TENSOR, AlsoCalled("value_coef value_cost value_loss_coef")] = 0.5
    """c_V: weight of the value loss."""
    target_kl: Annotated[float | None, NOT_NEGATIVE, TENSOR] = 0.03
    """Stop an update's epochs once the KL estimate exceeds this; 0 or None: never. With many actions, ten epochs
    would go far beyond it, and the standard deviation would be gone before much is learned."""

    # Optimiser
    policy_lr: Annotated[float, POSITIVE, TENSOR, AlsoCalled("learning_rate lr actor_lr")] = 3e-4
    """beta_0: learning rate of policy and value network."""
    anneal_lr: Annotated[bool, LOOP] = True
    """Anneal the learning rate linearly to 0 over the run."""
    max_grad_norm: Annotated[
        float, Within("(0, inf]"), TENSOR, AlsoCalled("grad_clip max_gradient_norm gradient_clip")
    ] = 0.5
    """Largest gradient norm; longer gradients are clipped to it. inf: no clipping."""

    @property
    def batch_size(self) -> int:
        """Number of rows of one rollout."""
        return self.num_envs * self.rollout_steps

    def derived(self, actions: int) -> dict[str, str]:
        """Return the rules for the first spread, the scale of rewards and the horizon."""
        return {
            **rule_of_first_std(self.initial_log_std, actions),
            **rule_of_rewards(self.normalize_rewards),
            **rules_of_horizon(self.gamma, self.gae_lambda),
        }

    @classmethod
    def at_scale(cls, num_envs: int) -> dict[str, Any]:
        """Return the defaults for thousands of environments: large minibatches, a larger rate, wider networks."""
        return {
            **cls.rollouts_at_scale(num_envs),
            "initial_log_std": -0.5,
            "norm_adv_per_minibatch": True,
            "advantage_memory": 0.0,
            "target_kl": None,
            "update_epochs": 5,
            "policy_lr": 1e-3,
            "policy_layer_sizes": (256, 256),
            "critic_layer_sizes": (256, 256),
        }

    def check(self) -> None:
        """Raise ConfigError if a rollout is smaller than one minibatch."""
        if self.batch_size < self.minibatch_size:
            raise ConfigError(
                f"A rollout of num_envs {self.num_envs} x rollout_steps {self.rollout_steps} = {self.batch_size} rows "
                f"is smaller than minibatch_size {self.minibatch_size}: raise rollout_steps or lower minibatch_size."
            )
