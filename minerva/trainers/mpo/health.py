"""What can go wrong with MPO's constraints without any loss showing it, and which setting mends it."""

from minerva.metrics import Rule
from minerva.runs.status import MetricGauge, gauge
from minerva.trainers.mpo.config import MPOConfig


def gauges() -> list[MetricGauge]:
    """What a running run shows: the three KLs over their bounds, the temperature, how many samples count."""
    return [
        gauge("E-step KL/bound", "kl/q_pi", 0.5, 2),
        gauge("mean KL/bound", "health/kl_mean", 0, 2),
        gauge("spread KL/bound", "health/kl_std", 0, 2),
        gauge("temperature", "eta"),
        gauge("effective samples", "health/effective_samples", low=1.5),
    ]


def rules(config: MPOConfig, initial_alpha_std: float) -> list[Rule]:
    """Signs of ill health under this config; `initial_alpha_std` is where the spread's multiplier started."""
    return [
        Rule(
            "temperature",
            lambda mean: not 0.5 <= mean["kl/q_pi"] <= 2,
            "MPO's temperature has not settled: the E-step's KL is {kl/q_pi:.2g} times its bound kl_epsilon. Raise "
            'temperature_lr (published: 0.01), or set temperature to "solved".',
        ),
        Rule(
            "frozen spread",
            lambda mean: mean["alpha_std"] > 0.5 * initial_alpha_std and mean["health/kl_std"] < 0.1,
            "MPO's standard deviation is frozen by its multiplier: alpha_std is still {alpha_std:.3g} and the spread's "
            "KL only {health/kl_std:.2g} of its bound. Lower init_log_alpha_stddev (Tonic: 10) or raise lambda_lr "
            "(published: 0.01).",
        ),
        Rule(
            "mean over its bound",
            lambda mean: mean["health/kl_mean"] > 2,
            "MPO's mean moves {health/kl_mean:.2g} times as far as mstep_kl_epsilon allows: raise lambda_lr or "
            "init_log_alpha_mean, or lower policy_lr.",
        ),
        Rule(
            "spread over its bound",
            lambda mean: mean["health/kl_std"] > 2,
            "MPO's standard deviation moves {health/kl_std:.2g} times as far as its bound allows: raise lambda_lr or "
            "mstep_kl_epsilon_std (1e-6 is the published bound, with a policy_lr of 3e-4), or lower policy_lr.",
        ),
        *_sampling_rules(config),
    ]


def _sampling_rules(config: MPOConfig) -> list[Rule]:
    """Signs of ill health in the samples that the E-step weighs."""
    return [
        Rule(
            "few samples",
            lambda mean: mean["health/effective_samples"] < min(1.5, config.action_samples),
            "MPO's E-step rests on {health/effective_samples:.2g} samples per state: lower kl_epsilon or raise "
            "action_samples.",
        ),
        Rule(
            "out of bounds",
            lambda mean: mean["health/out_of_bounds"] > 0.75,
            "{health/out_of_bounds:.0%} of MPO's sampled actions lie outside their bounds, where the critic cannot "
            "tell them apart: lower initial_std, or set epsilon_penalty to 0.001 if it is 0.",
        ),
        Rule(
            "no spread left",
            lambda mean: mean["health/std_at_floor"] > 0 or mean["pi/std_max"] < 1e-3,
            "MPO's standard deviation has collapsed to {pi/std_max:.2g}: lower mstep_kl_epsilon_std (published: 1e-6).",
        ),
    ]
