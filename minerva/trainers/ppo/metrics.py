"""PPO's metrics, each declared once, and its health rules, which detect updates that move the policy too far."""

from dataclasses import replace

from minerva.metrics import (
    DISCOUNT,
    ENTROPY,
    EXPLAINED_VARIANCE,
    LEARNING_RATE,
    MEAN_KL,
    PACE,
    Metric,
    Panel,
    Rule,
    range_rules,
)

LARGE_KL = 0.1
"""KL per update above which runs failed; tuned runs on Ant-v5 have 0.06 (benchmarks/results/ppo/sweep.md)."""

APPROXIMATE_KL = Panel("Approximate KL", "How far an update moved PPO's policy. 0.003 to 0.03 is usual.")
CLIPPED_SHARE = Panel("Clipped share", "Share of PPO's ratios outside the clip range. 0.05 to 0.3 is usual.")

METRICS = (
    Metric(
        "losses/approx_kl",
        "Estimated KL from the policy that collected, in the last minibatch: mean of ratio - 1 - log ratio.",
        label="KL",
        chart="approximate KL",
        panels=(replace(MEAN_KL, bound="target_kl"), APPROXIMATE_KL),
        healthy=(0.0, 0.05),
    ),
    Metric(
        "losses/clipfrac",
        "Share of ratios outside the clip range, over all minibatches.",
        label="clipped",
        chart="clipped share",
        panels=(CLIPPED_SHARE,),
        healthy=(0.0, 0.4),
    ),
    Metric(
        "losses/explained_variance",
        "Share of the returns' variance that the value network explained before the update.",
        label="explained variance",
        chart="explained variance",
        panels=(EXPLAINED_VARIANCE,),
    ),
    Metric("losses/entropy", "Entropy of the policy.", label="entropy", chart="entropy", panels=(ENTROPY,)),
    Metric("losses/policy_loss", "Clipped surrogate, in the last minibatch.", loss_chart="policy"),
    Metric("losses/value_loss", "Half the mean squared error of the value, in the last minibatch.", loss_chart="value"),
    Metric("losses/old_approx_kl", "Mean of -log ratio: a simpler, noisier estimate of the KL."),
    LEARNING_RATE,
    PACE,
    DISCOUNT,
)


def rules() -> list[Rule]:
    """Return the health rules."""
    return [
        *range_rules(METRICS),
        Rule(
            "large steps",
            lambda mean: mean["losses/approx_kl"] > LARGE_KL,
            "PPO's updates move the policy by a KL of {losses/approx_kl:.2g}, where 0.003 to 0.05 is usual: lower "
            "policy_lr or update_epochs, or set target_kl to 0.02.",
        ),
    ]
