"""The learning curve of one run as a PNG."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from minerva.runs.folder import RunFolder
from minerva.runs.metrics import read_rows


def learning_curve(folder: RunFolder, title: str, random_return: float) -> Path:
    """Draw training returns as dots, evaluations (mean ± std) as a line and the random policy; return the file."""
    rows = read_rows(folder.metrics)
    training = [(row["step"], row["train/episode_return"]) for row in rows if "train/episode_return" in row]
    evaluated = [(row["step"], row["returns"]) for row in read_rows(folder.evaluations)]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    if training:
        axes.plot(*zip(*training, strict=True), ".", markersize=3, color="#9aa5b1", label="training episodes")
    steps = [step for step, _ in evaluated]
    mean = np.array([np.mean(returns) for _, returns in evaluated])
    std = np.array([np.std(returns) for _, returns in evaluated])
    axes.plot(steps, mean, color="#1f5fbf", linewidth=2, label="evaluation (deterministic), mean ± std")
    axes.fill_between(steps, mean - std, mean + std, color="#1f5fbf", alpha=0.2, linewidth=0)
    axes.axhline(random_return, color="#c0392b", linestyle="--", linewidth=1, label="random policy")
    axes.set(xlabel="environment steps", ylabel="return", title=title)
    axes.legend(loc="lower right", frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(folder.curve, dpi=120)
    return folder.curve
