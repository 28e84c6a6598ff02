"""Layout of TensorBoard's tab "custom scalars": first whether a run learns, then why it might not."""

from collections.abc import Iterable

from minerva.metrics import Metric

Charts = dict[str, list[str]]
"""Names of the metrics in each chart, by the chart's title."""

LEARNING: Charts = {
    "return": ["train/episode_return", "eval/return_mean"],
    "evaluation: worst, mean, best episode": ["eval/return_min", "eval/return_mean", "eval/return_max"],
    "episode length": ["train/episode_length", "eval/length_mean"],
}
SPEED: Charts = {"environment steps per second": ["charts/SPS"]}


def layout(metrics: Iterable[Metric]) -> dict[str, Charts]:
    """Return the charts of a run with these metrics, by category in display order."""
    health: Charts = {}
    losses: Charts = {}
    for metric in metrics:
        for charts, title in ((health, metric.chart), (losses, metric.loss_chart)):
            if title:
                charts.setdefault(title, []).append(metric.name)
    return {"Is it learning?": LEARNING, "Is the update healthy?": health, "Losses": losses, "Speed": SPEED}


def custom_scalars(metrics: Iterable[Metric]) -> dict[str, dict[str, list[object]]]:
    """Return the layout in TensorBoard's format: each chart's metrics as regular expressions of their names."""
    return {
        category: {title: ["Multiline", [f"^{name}$" for name in names]] for title, names in charts.items()}
        for category, charts in layout(metrics).items()
        if charts
    }
