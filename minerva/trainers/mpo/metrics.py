"""MPO's metrics, each declared once, and its health rules, which detect failures that no loss shows."""

from minerva.metrics import (
    CHOICE_KL,
    CHOICE_MULTIPLIER,
    EFFECTIVE_SAMPLES,
    LEARNING_RATE,
    MEAN_KL,
    MEAN_MULTIPLIER,
    STD_KL,
    STD_MULTIPLIER,
    TEMPERATURE,
    Metric,
    Panel,
    Rule,
    range_rules,
)
from minerva.trainers.mpo.config import MPOConfig

E_STEP_KL = Panel(
    "E-step: KL over its bound",
    "How far the weighted samples are from the policy they came from. Near 1 the temperature has settled.",
    at=1.0,
    log=True,
)
WEIGHTS_ENTROPY = Panel(
    "Entropy of the weights",
    "How evenly the E-step weights the samples of a state: log N if all are equal, 0 if one takes all.",
)

TRUST_REGION = (
    Metric(
        "health/kl_mean",
        "KL of the mean over its bound, of the action dimension where it is largest.",
        label="mean KL/bound",
        chart="KLs over their bounds",
        panels=(MEAN_KL,),
        healthy=(0.0, 2.0),
        warning="mean over its bound",
        advice="MPO's mean moves {health/kl_mean:.2g} times as far as mstep_kl_epsilon allows: raise lambda_lr or "
        "init_log_alpha_mean, or lower policy_lr.",
        optional=True,
    ),
    Metric(
        "health/kl_std",
        "KL of the standard deviation over its bound, of the action dimension where it is largest.",
        label="std KL/bound",
        chart="KLs over their bounds",
        panels=(STD_KL,),
        healthy=(0.0, 2.0),
        warning="std over its bound",
        advice="MPO's standard deviation moves {health/kl_std:.2g} times as far as its bound allows: raise lambda_lr "
        "or mstep_kl_epsilon_std (1e-6 is the published bound, with a policy_lr of 3e-4), or lower policy_lr.",
        optional=True,
    ),
    Metric("alpha_mean", "Multiplier of the mean's KL.", chart="multipliers", panels=(MEAN_MULTIPLIER,), optional=True),
    Metric(
        "alpha_std",
        "Multiplier of the standard deviation's KL.",
        chart="multipliers",
        panels=(STD_MULTIPLIER,),
        optional=True,
    ),
    Metric("lambda", "Multiplier of the mean's KL, under the name of the first paper.", optional=True),
    Metric("kl/mean", "KL of the mean from the target policy, over states and action dimensions.", optional=True),
    Metric(
        "kl/std",
        "KL of the standard deviation from the target policy, over states and action dimensions.",
        optional=True,
    ),
    Metric(
        "health/kl_choice",
        "KL of a discrete action over its bound.",
        label="choice KL/bound",
        chart="KLs over their bounds",
        panels=(CHOICE_KL,),
        healthy=(0.0, 2.0),
        warning="choice over its bound",
        advice="MPO's choice moves {health/kl_choice:.2g} times as far as mstep_kl_epsilon allows: raise lambda_lr or "
        "init_log_alpha_mean, or lower policy_lr.",
        optional=True,
    ),
    Metric(
        "alpha_choice",
        "Multiplier of a discrete action's KL.",
        chart="multipliers",
        panels=(CHOICE_MULTIPLIER,),
        optional=True,
    ),
    Metric("kl/choice", "KL of a discrete action from the target policy, over states.", optional=True),
    Metric(
        "health/dual_residual", "Distance of the multipliers from equilibrium: the larger of the two trust regions'."
    ),
)
"""The M-step: how far the policy moves, and its multipliers."""

SAMPLES = (
    Metric(
        "kl/q_pi",
        "KL of the weights from uniform ones, over its bound: 1 once the temperature has settled.",
        label="E-step KL/bound",
        chart="KLs over their bounds",
        panels=(E_STEP_KL,),
        healthy=(0.5, 2.0),
        warning="temperature",
        advice="MPO's temperature has not settled: the E-step's KL is {kl/q_pi:.2g} times its bound kl_epsilon. Raise "
        'temperature_lr (published: 0.01), or set temperature to "solved".',
    ),
    Metric("eta", "Temperature.", label="temperature", chart="temperature", panels=(TEMPERATURE,)),
    Metric(
        "health/effective_samples",
        "Effective sample size of a state's weights: 1 if one sample takes all, N if all are equal.",
        label="effective samples",
        chart="effective samples per state",
        panels=(EFFECTIVE_SAMPLES,),
        healthy=(1.5, float("inf")),
        optional=True,
    ),
    Metric("entropy", "Entropy of a state's weights.", chart="entropy of the weights", panels=(WEIGHTS_ENTROPY,)),
    Metric(
        "health/out_of_bounds",
        "Share of the dimensions of sampled actions outside their bounds, where the critic cannot distinguish them.",
        chart="sampled actions out of bounds",
        healthy=(0.0, 0.75),
        warning="out of bounds",
        advice="{health/out_of_bounds:.0%} of MPO's sampled actions lie outside their bounds, by dimension, where "
        "the critic cannot tell them apart: lower initial_std, or set epsilon_penalty to 0.001 if it is 0.",
        optional=True,
    ),
    Metric(
        "health/targets_at_limit",
        "Share of the critic's targets at an end of its range, or beyond it: it cannot tell them apart.",
        optional=True,
        healthy=(0.0, 0.2),
        warning="critic range",
        advice="{health/targets_at_limit:.0%} of the targets lie at the end of what MPO's critic can express: set "
        "scale_rewards to True, or critic_range above the largest discounted return.",
    ),
    Metric("q/min", "Lowest value among the samples.", chart="values", reduce="min"),
    Metric("q/max", "Highest value among the samples.", chart="values", reduce="max"),
)
"""The E-step: values of the samples of a state, and their weights."""

POLICY = (
    Metric("pi/std_min", "Smallest standard deviation.", chart="standard deviation", reduce="min", optional=True),
    Metric("pi/std_max", "Largest standard deviation.", chart="standard deviation", reduce="max", optional=True),
    Metric("health/std_at_floor", "Share of standard deviations at the network's lower limit.", optional=True),
    Metric("train/param_delta", "Norm of the change in the policy's parameters."),
    LEARNING_RATE,
)
LOSSES = (
    Metric("loss/q", "Loss of the critic.", loss_chart="critic"),
    Metric("loss/policy", "Negative weighted log-likelihood of the samples, without penalties.", loss_chart="policy"),
    Metric("loss/dual", "Loss of temperatures and multipliers together.", loss_chart="duals"),
    Metric("loss/dual_eta", "Loss of the temperature."),
    Metric("loss/dual_penalty", "Loss of the temperature of the out-of-bounds penalty.", optional=True),
)

METRICS = (*SAMPLES[:1], *TRUST_REGION, *SAMPLES[1:], *POLICY, *LOSSES)


def rules(config: MPOConfig, initial_alpha_std: float | None) -> list[Rule]:
    """Return the health rules for this config.

    `initial_alpha_std` is the initial multiplier of the standard deviation's KL; None: the action is discrete. Then the
    E-step need not reach its bound: once the policy has decided, no weights are that far from it.
    """
    if initial_alpha_std is None:
        return range_rules(metric for metric in METRICS if metric.name != "kl/q_pi")
    return [
        *range_rules(METRICS),
        Rule(
            "frozen std",
            lambda mean: mean["alpha_std"] > 0.5 * initial_alpha_std and mean["health/kl_std"] < 0.1,
            "MPO's standard deviation is frozen by its multiplier: alpha_std is still {alpha_std:.3g} and its KL only "
            "{health/kl_std:.2g} of its bound. Lower init_log_alpha_stddev (Tonic: 10) or raise lambda_lr "
            "(published: 0.01).",
        ),
        Rule(
            "few samples",
            lambda mean: mean["health/effective_samples"] < min(1.5, config.action_samples),
            "MPO's E-step rests on {health/effective_samples:.2g} samples per state: lower kl_epsilon or raise "
            "action_samples.",
        ),
        Rule(
            "collapsed std",
            lambda mean: mean["health/std_at_floor"] > 0 or mean["pi/std_max"] < 1e-3,
            "MPO's standard deviation has collapsed to {pi/std_max:.2g}: lower mstep_kl_epsilon_std (published: 1e-6).",
        ),
    ]
