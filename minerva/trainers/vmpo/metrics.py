"""V-MPO's metrics, each declared once, and its health rules, which detect failures that no loss shows."""

import math
from collections.abc import Mapping, Sequence

from minerva.metrics import (
    CHOICE_KL,
    CHOICE_MULTIPLIER,
    DISCOUNT,
    EFFECTIVE_SAMPLES,
    ENTROPY,
    EXPLAINED_VARIANCE,
    LEARNING_RATE,
    MEAN_KL,
    MEAN_MULTIPLIER,
    PACE,
    STD_KL,
    STD_MULTIPLIER,
    TEMPERATURE,
    Metric,
    Rule,
    range_rules,
)
from minerva.trainers.vmpo.config import VMPOConfig

UNMOVED_TOLERANCE = 0.02
"""Multipliers start at 1; one that is still this close to 1 after a window of reports counts as unmoved."""
LARGE_KL_RATIO = 10.0
"""KL over bound that is too large. It may exceed 1: a KL grows from 0 over an update's passes, its multiplier balances
their average, and the metric reports the last."""
STANDARD_ENTROPY = 0.5 * (1 + math.log(2 * math.pi))
"""Entropy of a standard Gaussian, per dimension."""

TRUST_REGION = (
    Metric(
        "health/kl_mean",
        "KL of the mean over its bound at the time, on the selected rows.",
        label="mean KL/bound",
        chart="KLs over their bounds",
        panels=(MEAN_KL,),
        healthy=(0.0, LARGE_KL_RATIO),
        optional=True,
    ),
    Metric(
        "health/kl_std",
        "KL of the standard deviation over its bound at the time, on the selected rows.",
        label="std KL/bound",
        chart="KLs over their bounds",
        panels=(STD_KL,),
        healthy=(0.0, LARGE_KL_RATIO),
        optional=True,
    ),
    Metric(
        "vmpo/alpha_mu", "Multiplier of the mean's KL.", chart="multipliers", panels=(MEAN_MULTIPLIER,), optional=True
    ),
    Metric(
        "vmpo/alpha_sigma",
        "Multiplier of the standard deviation's KL.",
        chart="multipliers",
        panels=(STD_MULTIPLIER,),
        optional=True,
    ),
    Metric("kl/mean", "KL of the mean from the old policy, over all rows.", optional=True),
    Metric("kl/std", "KL of the standard deviation from the old policy, over all rows.", optional=True),
    Metric("kl/mean_sel", "KL of the mean from the old policy, over the selected rows.", optional=True),
    Metric("kl/std_sel", "KL of the standard deviation from the old policy, over the selected rows.", optional=True),
    Metric(
        "health/kl_choice",
        "KL of discrete actions over its bound at the time, on the selected rows.",
        label="KL/bound",
        chart="KLs over their bounds",
        panels=(CHOICE_KL,),
        healthy=(0.0, LARGE_KL_RATIO),
        optional=True,
    ),
    Metric(
        "vmpo/alpha",
        "Multiplier of the KL of discrete actions.",
        chart="multipliers",
        panels=(CHOICE_MULTIPLIER,),
        optional=True,
    ),
    Metric("kl/choice", "KL of discrete actions from the old policy, over all rows.", optional=True),
    Metric("kl/choice_sel", "KL of discrete actions from the old policy, over the selected rows.", optional=True),
)
"""The M-step: how far the policy moves, and its multipliers."""

SAMPLES = (
    Metric(
        "vmpo/temperature_raw",
        "Temperature after its step.",
        label="temperature",
        chart="temperature",
        panels=(TEMPERATURE,),
    ),
    Metric(
        "vmpo/ess",
        "Effective sample size of the weights, in rows: one over the sum of their squares.",
        label="effective rows",
        chart="effective rows",
        panels=(EFFECTIVE_SAMPLES,),
        healthy=(5.0, math.inf),
        warning="few samples",
        advice="V-MPO's policy rests on {vmpo/ess:.2g} rows a rollout: lower epsilon_eta, or raise topk_fraction or "
        "rollout_steps.",
    ),
    Metric("vmpo/epsilon_eta", "Bound on the E-step's KL."),
    Metric("vmpo/adv_std_over_temperature", "Standard deviation of the advantages over the temperature."),
    Metric("vmpo/selected_frac", "Share of rows that enter the E-step."),
    Metric("vmpo/threshold", "Lowest score among the selected rows."),
    Metric("vmpo/restarting_frac", "Share of rows at which an episode restarts."),
    Metric("vmpo/importance_mean", "Mean importance weight."),
    Metric("adv/raw_mean", "Mean of the advantages before they are normalised."),
    Metric("adv/raw_std", "Standard deviation of the advantages before they are normalised."),
)
"""The E-step: advantages of the rows, and their weights."""

POLICY = (
    Metric(
        "train/entropy",
        "Entropy of the policy, before squashing, on the selected rows.",
        chart="entropy",
        panels=(ENTROPY,),
    ),
    Metric("train/mean_abs_action", "Mean absolute value of the deterministic, continuous action.", optional=True),
    Metric("train/param_delta", "Norm of the change in parameters."),
    LEARNING_RATE,
    PACE,
    DISCOUNT,
)
VALUE = (
    Metric(
        "value/explained_var",
        "Share of the returns' variance that the value network explains after the update.",
        chart="explained variance",
        panels=(EXPLAINED_VARIANCE,),
    ),
    Metric("value/pred_mean", "Mean of the values."),
    Metric("value/pred_std", "Standard deviation of the values."),
    Metric("returns/raw_mean", "Mean of the returns that the value network is fitted to."),
    Metric("returns/raw_std", "Standard deviation of the returns that the value network is fitted to."),
)
LOSSES = (
    Metric("loss/total", "Loss of policy and value together."),
    Metric("loss/policy", "Loss of the policy, penalties included.", loss_chart="policy"),
    Metric("loss/policy_weighted_nll", "Negative weighted log-likelihood, in the form that m_step_loss names."),
    Metric("loss/policy_kl_mean_pen", "Penalty on the mean's KL.", optional=True),
    Metric("loss/policy_kl_std_pen", "Penalty on the standard deviation's KL.", optional=True),
    Metric("loss/policy_kl_choice_pen", "Penalty on the KL of discrete actions.", optional=True),
    Metric("loss/value", "Loss of the value network.", loss_chart="value"),
    Metric("vmpo/dual_loss", "Loss of the temperature.", loss_chart="duals"),
    Metric("loss/alpha", "Loss of the multipliers.", loss_chart="duals"),
)

METRICS = (*TRUST_REGION, *SAMPLES, *POLICY, *VALUE, *LOSSES)


REGIONS = {
    "mean": ("health/kl_mean", "vmpo/alpha_mu", "epsilon_mu"),
    "std": ("health/kl_std", "vmpo/alpha_sigma", "epsilon_sigma"),
    "choice": ("health/kl_choice", "vmpo/alpha", "epsilon_alpha"),
}
"""KL over its bound, multiplier and bound of each trust region."""


def rules(config: VMPOConfig, act_dim: int, regions: Sequence[str] = ("mean", "std")) -> list[Rule]:
    """Return the health rules for this config, a Gaussian of `act_dim` dimensions and these trust regions."""
    return [
        _idle_rule(regions),
        *(_unmoved_rule(config, region, *REGIONS[region]) for region in regions),
        *(_over_bound_rule(config, region, *REGIONS[region]) for region in regions),
        _temperature_rule(config, config.e_step_bound(config.m_step_loss_for(act_dim > 0))),
        *range_rules(METRICS),
        *([_collapse_rule(act_dim)] if list(regions) == ["mean", "std"] else []),
    ]


def _collapse_rule(act_dim: int) -> Rule:
    return Rule(
        "collapsed std",
        lambda seen: seen["train/entropy"] / act_dim - STANDARD_ENTROPY < math.log(1e-3),
        "V-MPO's standard deviation has collapsed: lower epsilon_eta, or epsilon_sigma (published: 5e-6 to 5e-5).",
    )


def _idle_rule(regions: Sequence[str]) -> Rule:
    return Rule(
        "idle trust region",
        lambda seen: all(seen[f"kl/{region}_sel"] < 1e-9 for region in regions),
        "V-MPO's trust region has no effect, because each update starts from the old policy itself: set m_steps or "
        'updates_per_rollout above 1, minibatch_size, or old_policy to "updates" or "kl".',
    )


def _unmoved_rule(config: VMPOConfig, name: str, kl: str, alpha: str, epsilon: str) -> Rule:
    def broken(seen: Mapping[str, float]) -> bool:
        off = not 0.5 <= seen[kl] <= 2
        return config.alpha_update == "gradient" and abs(seen[alpha] - 1) < UNMOVED_TOLERANCE and off

    return Rule(
        f"unmoved {name} multiplier",
        broken,
        f"V-MPO's {alpha} has not moved from 1 although the {name}'s KL is {{{kl}:.2g}} times its bound {epsilon}: "
        f'raise alpha_lr from {config.alpha_lr:g} tenfold or more, or set alpha_update to "multiplicative".',
    )


def _over_bound_rule(config: VMPOConfig, name: str, kl: str, alpha: str, epsilon: str) -> Rule:
    change = 'set alpha_update to "multiplicative", ' if config.alpha_update == "gradient" else ""
    return Rule(
        f"{name} over its bound",
        lambda seen: seen[kl] > LARGE_KL_RATIO,
        f"V-MPO's {name} moves by a KL of {{{kl}:.2g}} times its bound {epsilon}, with {alpha} at "
        f"{{{alpha}:.2g}}: {change}raise alpha_lr from {config.alpha_lr:g}, or lower policy_lr or m_steps.",
    )


def _temperature_rule(config: VMPOConfig, bound: float) -> Rule:
    rows = config.num_envs * config.rollout_steps

    def broken(seen: Mapping[str, float]) -> bool:
        # To second order the weights' KL is half the log of selected rows over effective rows.
        kl = 0.5 * math.log(max(seen["vmpo/selected_frac"] * rows / seen["vmpo/ess"], 1.0))
        return config.temperature == "gradient" and not 0.2 <= kl / bound <= 5

    return Rule(
        "temperature",
        broken,
        f"V-MPO's temperature has not settled at {{vmpo/temperature_raw:.3g}}: the weights ({{vmpo/ess:.0f}} effective "
        f'rows) are far from their bound epsilon_eta {bound:g}. Set temperature to "solved", or raise '
        f"temperature_lr from {config.temperature_lr:g}.",
    )
