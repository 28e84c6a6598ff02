"""SAC's metrics, each declared once, and its health rules."""

from minerva.metrics import LEARNING_RATE, Metric, Panel, Rule, range_rules

ENTROPY_GAP = Panel(
    "Entropy above its target", "0 once the temperature holds the policy's entropy at its target.", at=0.0
)
SAC_TEMPERATURE = Panel("Temperature of the entropy", "What one nat of entropy is worth in reward.", log=True)
SOFT_VALUE = Panel("Soft value", "Mean of the smaller critic over the batch: should follow the return.")
MEAN_STD = Panel("Standard deviation", "Of the raw action, before squashing.")

METRICS = (
    Metric(
        "entropy_gap",
        "Entropy of the policy minus its target.",
        label="entropy gap",
        chart="entropy above its target",
        panels=(ENTROPY_GAP,),
        healthy=(-5.0, float("inf")),
        warning="entropy below target",
        advice="SAC's entropy is {entropy_gap:.2g} from its target: raise temperature_lr or lower target_entropy.",
    ),
    Metric(
        "temperature_now",
        "Temperature.",
        label="temperature",
        chart="temperature",
        panels=(SAC_TEMPERATURE,),
    ),
    Metric("q/mean", "Mean of the smaller critic.", label="value", chart="values", panels=(SOFT_VALUE,)),
    Metric(
        "pi/std_mean",
        "Mean standard deviation of the raw action.",
        label="std",
        chart="standard deviation",
        panels=(MEAN_STD,),
    ),
    Metric(
        "health/targets_at_limit",
        "Share of the critics' targets at an end of their range, or beyond it: they cannot tell them apart.",
        optional=True,
        healthy=(0.0, 0.2),
        warning="critic range",
        advice="{health/targets_at_limit:.0%} of the targets lie at the end of what SAC's critics can express: set "
        "scale_rewards to True, or critic_range above the largest discounted return.",
    ),
    LEARNING_RATE,
    Metric("loss/q", "Loss of both critics, added.", loss_chart="critic"),
    Metric("loss/policy", "Loss of the policy.", loss_chart="policy"),
    Metric("loss/temperature", "Loss of the temperature.", loss_chart="temperature"),
)


def rules() -> list[Rule]:
    """Return the health rules."""
    return range_rules(METRICS)
