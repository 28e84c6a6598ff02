"""How TensorBoard's tab "custom scalars" arranges a run: whether it learns first, then why it might not."""

Charts = dict[str, tuple[str, ...]]
"""Metrics in one chart, by its title."""

LEARNING: Charts = {
    "return": ("train/episode_return", "eval/return_mean"),
    "evaluation: worst, mean, best episode": ("eval/return_min", "eval/return_mean", "eval/return_max"),
    "episode length": ("train/episode_length", "eval/length_mean"),
}
SPEED: Charts = {"environment steps per second": ("charts/SPS",)}

HEALTH: dict[str, Charts] = {
    "ppo": {
        "approximate KL": ("losses/approx_kl",),
        "clipped share": ("losses/clipfrac",),
        "explained variance": ("losses/explained_variance",),
        "entropy": ("losses/entropy",),
        "learning rate": ("charts/learning_rate",),
    },
    "mpo": {
        "KLs over their bounds": ("kl/q_pi", "health/kl_mean", "health/kl_std"),
        "temperature": ("eta",),
        "multipliers": ("alpha_mean", "alpha_std"),
        "effective samples per state": ("health/effective_samples",),
        "sampled actions out of bounds": ("health/out_of_bounds",),
        "standard deviation": ("pi/std_min", "pi/std_max"),
        "values": ("q/min", "q/max"),
    },
    "vmpo": {
        "KLs over their bounds": ("health/kl_mean", "health/kl_std"),
        "temperature": ("vmpo/temperature_raw",),
        "multipliers": ("vmpo/alpha_mu", "vmpo/alpha_sigma"),
        "effective rows": ("vmpo/ess",),
        "explained variance": ("value/explained_var",),
        "entropy": ("train/entropy",),
    },
}

LOSSES: dict[str, Charts] = {
    "ppo": {"policy": ("losses/policy_loss",), "value": ("losses/value_loss",)},
    "mpo": {"critic": ("loss/q",), "policy": ("loss/policy",), "duals": ("loss/dual",)},
    "vmpo": {
        "policy": ("loss/policy",),
        "value": ("loss/value",),
        "duals": ("vmpo/dual_loss", "loss/alpha"),
    },
}


def layout(algo: str) -> dict[str, Charts]:
    """The charts of an algorithm's runs by category, in the order in which they are shown."""
    return {
        "Is it learning?": LEARNING,
        "Is the update healthy?": HEALTH.get(algo, {}),
        "Losses": LOSSES.get(algo, {}),
        "Speed": SPEED,
    }


def custom_scalars(algo: str) -> dict[str, dict[str, list[object]]]:
    """The same as TensorBoard takes it: each chart's metrics as patterns of names."""
    return {
        category: {title: ["Multiline", [f"^{name}$" for name in names]] for title, names in charts.items()}
        for category, charts in layout(algo).items()
        if charts
    }
