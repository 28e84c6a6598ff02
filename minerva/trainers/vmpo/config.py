"""V-MPO's hyperparameters."""

from collections.abc import Mapping
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

REASONS = {
    "control_variate": "a density can rise without end around the actions that were tried",
    "centered": "a probability cannot rise without end: choices are drawn until a KL bound",
}
"""Why a loss of the M-step is the one for the task's actions."""


@dataclass(frozen=True)
class VMPOConfig(OptimizerConfig):
    """Every hyperparameter of V-MPO with its default."""

    # Networks
    policy_layer_sizes: Annotated[LayerSizes, AlsoCalled("net_arch hidden_sizes hidden_layer_sizes")] = (64, 64)
    """Widths of the policy's hidden layers."""
    value_layer_sizes: Annotated[
        LayerSizes, AlsoCalled("net_arch hidden_sizes hidden_layer_sizes critic_layer_sizes")
    ] = (64, 64)
    """Widths of the value network's hidden layers."""
    activation: Annotated[Activation, AlsoCalled("activation_fn")] = "default"
    """Activation of the hidden layers of policy and value network; "default": tanh, and without
    ppo_like_backbone ELU after the first layer."""
    image_encoder: ImageEncoderName = "auto"
    """Convolutions for images: "nature", for about 84 x 84; "impala", deeper and slower; "small", for about 10 x 10.
    "auto": "nature", and "small" below 36 x 36."""
    shared_encoder: bool = False
    """Share one encoder between policy and value network."""
    ppo_like_backbone: bool = True
    """Use PPO's network: orthogonal Linear and tanh layers, and one log-std parameter per action dimension."""
    squash: bool = False
    """Squash the Gaussian sample into the bounds by tanh; otherwise clip it."""
    initial_log_std: Annotated[float | Literal["auto"] | None, AlsoCalled("log_std_init")] = "auto"
    """Log standard deviation before training, in every state; "auto": -max(1, log D) / 2 for D actions; None: from
    the layers' initialisation, about 0."""

    # Rollout
    num_envs: Annotated[int, AT_LEAST_ONE, LOOP, DIVIDED, AlsoCalled("n_envs num_actors num_workers")] = 16
    """E: environments stepped together."""
    rollout_steps: Annotated[
        int, AT_LEAST_ONE, LOOP, PER_ENV, AlsoCalled("n_steps num_steps horizon rollout_length unroll_length")
    ] = 128
    """T: steps of each environment between two updates."""
    normalize_observations: Annotated[bool, AlsoCalled("norm_obs")] = True
    """Normalise observations to zero mean and unit variance, by running statistics."""
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
    """lambda: trace parameter of GAE. None: 1 - 1 / (2 sqrt(H))."""
    advantage_estimator: Literal["returns", "gae", "dae"] = "gae"
    """"returns": bootstrapped discounted return minus value; "gae"; "dae": the one-step temporal difference."""
    normalize_advantages: Annotated[bool, AlsoCalled("normalize_advantage norm_adv")] = True
    """Normalise advantages to zero mean and unit (biased) std over the batch."""
    advantage_memory: Annotated[float | None, FRACTION, TENSOR] = None
    """beta: how slowly the usual size of advantages, from a running mean of their squares, follows that of rollouts. A
    rollout whose own are below half of it moves the policy less: once a task is solved, they are noise. 0: never. None:
    0.99 with m_step_loss "control_variate", 0 with the others."""

    # E-step
    topk_fraction: Annotated[float, Within("(0, 1]")] = 1.0
    """f: share of the batch, by advantage, that enters the E-step."""
    epsilon_eta: Annotated[float | None, POSITIVE, TENSOR] = None
    """epsilon_eta: bound on the E-step's KL. None: 0.1, and with m_step_loss "centered" 1e-4."""
    temperature: Literal["gradient", "solved"] = "solved"
    """Update the temperature by a gradient step, or solve its one-dimensional dual in each update."""
    temperature_init: Annotated[float, POSITIVE] = 1.0
    """Initial temperature eta itself (in MPO, the field of this name is the unconstrained parameter)."""
    temperature_lr: Annotated[float, POSITIVE, TENSOR] = 1e-4
    """Learning rate of the temperature."""

    # M-step
    m_step_loss: Annotated[
        Literal["auto", "likelihood", "centered", "control_variate"], AlsoCalled("centered_weights")
    ] = "auto"
    """"likelihood": weighted log-likelihood, as published; "control_variate": with a term of expectation zero, so that
    each row draws the policy only as far as its weight asks; "centered": with weights minus those without advantages,
    so that each draws it until a KL bound. "auto": "control_variate", and "centered" for choices alone. All but
    "likelihood" need topk_fraction 1."""
    m_steps: Annotated[int, AT_LEAST_ONE, AlsoCalled("n_epochs num_epochs epochs update_epochs")] = 10
    """M: passes of the M-step over the batch per update."""
    minibatch_size: Annotated[int, NOT_NEGATIVE, AlsoCalled("batch_size mini_batch_size")] = 64
    """Rows per gradient step of the M-step, shuffled each pass; a pass's last may be smaller. 0: all rows at once."""
    updates_per_rollout: Annotated[int, AT_LEAST_ONE] = 1
    """Updates (E-step and M-step) on each rollout."""
    old_policy: Literal["rollout", "updates", "kl"] = "rollout"
    """Center of the trust region: the policy that collected the rollout ("rollout"), or a copy that is replaced every
    old_policy_period updates ("updates") or once a KL reaches its bound ("kl")."""
    old_policy_period: Annotated[int, AT_LEAST_ONE, TENSOR] = 100
    """Updates between replacements with old_policy "updates"; the most updates between them with "kl"."""
    epsilon_mu: Annotated[float, POSITIVE, TENSOR] = 0.2
    """epsilon_mu: bound on the mean's KL."""
    epsilon_sigma: Annotated[float, POSITIVE, TENSOR] = 0.02
    """epsilon_sigma: bound on the standard deviation's KL."""
    epsilon_alpha: Annotated[float, POSITIVE, TENSOR] = 0.02
    """epsilon_alpha: bound on the KL of discrete actions, which have no mean and standard deviation."""
    alpha_update: Literal["gradient", "multiplicative"] = "multiplicative"
    """Update the multipliers by gradient, or by a factor exp(alpha_lr (KL / bound - 1)), which never gets stuck; with
    m_step_loss "centered", not below sqrt(epsilon_eta / bound) times 0.1, or 0.02 for discrete actions."""
    alpha_lr: Annotated[float, POSITIVE, TENSOR] = 0.1
    """beta_alpha: learning rate of the multipliers, which every minibatch updates; divided by sqrt(m_steps)."""

    # Optimiser
    policy_lr: Annotated[float, POSITIVE, TENSOR, AlsoCalled("learning_rate lr actor_lr")] = 3e-4
    """Learning rate of the policy, and of a shared encoder."""
    value_lr: Annotated[float, POSITIVE, TENSOR, AlsoCalled("learning_rate lr critic_lr q_lr")] = 3e-4
    """Learning rate of the value network."""
    anneal_lr: Annotated[bool, LOOP] = True
    """Anneal both learning rates linearly to 0 over the run."""
    anneal_bounds: Annotated[bool, LOOP] = True
    """Anneal the KL bounds with the square of the rates: bounds *= max(f, 0.01)^2, f the remaining fraction."""
    max_grad_norm: Annotated[
        float, Within("(0, inf]"), TENSOR, AlsoCalled("grad_clip max_gradient_norm gradient_clip")
    ] = 10.0
    """Largest norm of the joint gradient of policy and value; longer ones are clipped to it. inf: no clipping."""

    @property
    def minibatches(self) -> int:
        """Gradient steps per pass over a rollout."""
        rows = self.num_envs * self.rollout_steps
        return -(-rows // (self.minibatch_size or rows))

    def m_step_loss_for(self, continuous: bool) -> str:
        """Return the loss of the M-step where actions are continuous, some of them at least, or all are choices."""
        if self.m_step_loss != "auto":
            return self.m_step_loss
        return "control_variate" if continuous else "centered"

    def e_step_bound(self, m_step_loss: str) -> float:
        """Return the bound on the E-step's KL with this loss of the M-step."""
        if self.epsilon_eta is not None:
            return self.epsilon_eta
        return 1e-4 if m_step_loss == "centered" else 0.1

    def memory_of_advantages(self, m_step_loss: str) -> float:
        """Return how slowly the usual size of advantages follows that of rollouts, with this loss of the M-step."""
        if self.advantage_memory is not None:
            return self.advantage_memory
        return 0.99 if m_step_loss == "control_variate" else 0.0

    @classmethod
    def published_as(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Return V-MPO, then PPO for tasks on which no V-MPO figure is published."""
        return ("V-MPO", "PPO")

    def derived(self, actions: int) -> dict[str, str]:
        """Return the rules for the loss of the M-step, the first spread, the scale of rewards and the horizon."""
        loss = self.m_step_loss_for(actions > 0)
        return {
            **({"m_step_loss": f"{loss}, because {REASONS[loss]}"} if self.m_step_loss == "auto" else {}),
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
            "m_steps": 5,
            "policy_lr": 1e-3,
            "value_lr": 1e-3,
            "policy_layer_sizes": (256, 256),
            "value_layer_sizes": (256, 256),
        }

    def check(self) -> None:
        """Raise ConfigError if m_step_loss, anneal_bounds or topk_fraction contradict other settings."""
        if self.m_step_loss != "likelihood" and self.topk_fraction < 1:
            raise ConfigError(
                f'With m_step_loss "{self.m_step_loss}" the policy learns from all rows, but the KL bounds hold over '
                'the selected: set topk_fraction to 1, or m_step_loss to "likelihood".'
            )
        if self.anneal_bounds and not self.anneal_lr:
            raise ConfigError(
                "anneal_bounds anneals the KL bounds along with the learning rates: set anneal_lr to true, too, "
                "or anneal_bounds to false."
            )
        from minerva.trainers.vmpo.losses import selection_size  # not at the top: a config is read without PyTorch

        rows = self.num_envs * self.rollout_steps
        if selection_size(self.topk_fraction, rows) < 1:
            raise ConfigError(
                f"topk_fraction {self.topk_fraction} of {rows} rows selects nothing: raise it, or rollout_steps."
            )
