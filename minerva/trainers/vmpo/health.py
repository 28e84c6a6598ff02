"""What can go wrong with V-MPO's constraints without any loss showing it, and which setting mends it."""

import math
from collections.abc import Mapping

from minerva.metrics import Rule
from minerva.runs.status import MetricGauge, gauge
from minerva.trainers.vmpo.config import VMPOConfig

UNMOVED = 0.02
"""A multiplier starts at 1; this near to it after a window of reports, it has not moved."""
FAR = 10
"""A KL grows from 0 over an update's passes and its multiplier balances them all: the last may be well over."""
GAUSSIAN = 0.5 * (1 + math.log(2 * math.pi))
"""Entropy of a standard Gaussian."""


def gauges() -> list[MetricGauge]:
    """What a running run shows: the two KLs over their bounds, the temperature, how many rows count."""
    return [
        gauge("mean KL/bound", "health/kl_mean", 0, FAR),
        gauge("spread KL/bound", "health/kl_std", 0, FAR),
        gauge("temperature", "vmpo/temperature_raw"),
        gauge("effective rows", "vmpo/ess", low=5),
    ]


def rules(config: VMPOConfig, act_dim: int) -> list[Rule]:
    """Signs of ill health under this config."""
    mean = ("mean", "health/kl_mean", "vmpo/alpha_mu", "epsilon_mu")
    spread = ("spread", "health/kl_std", "vmpo/alpha_sigma", "epsilon_sigma")
    return [
        _idle(),
        *(_unmoved(config, *names) for names in (mean, spread)),
        *(_over_bound(config, *names) for names in (mean, spread)),
        _temperature(config),
        Rule(
            "few samples",
            lambda seen: seen["vmpo/ess"] < 5,
            "V-MPO's policy rests on {vmpo/ess:.2g} rows a rollout: lower epsilon_eta, or raise topk_fraction or "
            "rollout_steps.",
        ),
        Rule(
            "no spread left",
            lambda seen: seen["train/entropy"] / act_dim - GAUSSIAN < math.log(1e-3),
            "V-MPO's standard deviation has collapsed: lower epsilon_sigma (published: 5e-6 to 5e-5).",
        ),
    ]


def _idle() -> Rule:
    return Rule(
        "idle trust region",
        lambda seen: seen["kl/mean_sel"] < 1e-9 and seen["kl/std_sel"] < 1e-9,
        "V-MPO's trust region does nothing, for each update sets out from the old policy itself: set m_steps or "
        'updates_per_rollout above 1, minibatch_size, or old_policy to "updates" or "kl".',
    )


def _unmoved(config: VMPOConfig, name: str, kl: str, alpha: str, epsilon: str) -> Rule:
    def broken(seen: Mapping[str, float]) -> bool:
        off = not 0.5 <= seen[kl] <= 2
        return config.alpha_update == "gradient" and abs(seen[alpha] - 1) < UNMOVED and off

    return Rule(
        f"unmoved {name} multiplier",
        broken,
        f"V-MPO's {alpha} has not moved from 1 although the {name}'s KL is {{{kl}:.2g}} times its bound {epsilon}: "
        f'raise alpha_lr from {config.alpha_lr:g} tenfold or more, or set alpha_update to "multiplicative".',
    )


def _over_bound(config: VMPOConfig, name: str, kl: str, alpha: str, epsilon: str) -> Rule:
    change = 'set alpha_update to "multiplicative", ' if config.alpha_update == "gradient" else ""
    return Rule(
        f"{name} over its bound",
        lambda seen: seen[kl] > FAR,
        f"V-MPO's {name} moves by a KL of {{{kl}:.2g}} times its bound {epsilon}, with {alpha} at "
        f"{{{alpha}:.2g}}: {change}raise alpha_lr from {config.alpha_lr:g}, or lower policy_lr or m_steps.",
    )


def _temperature(config: VMPOConfig) -> Rule:
    rows = config.num_envs * config.rollout_steps

    def broken(seen: Mapping[str, float]) -> bool:
        # Half the logarithm of how many rows count for one: the weights' KL to second order.
        kl = 0.5 * math.log(max(seen["vmpo/selected_frac"] * rows / seen["vmpo/ess"], 1.0))
        return config.temperature == "gradient" and not 0.2 <= kl / config.epsilon_eta <= 5

    return Rule(
        "temperature",
        broken,
        f"V-MPO's temperature has not settled at {{vmpo/temperature_raw:.3g}}: the weights ({{vmpo/ess:.0f}} effective "
        f'rows) are far from their bound epsilon_eta {config.epsilon_eta:g}. Set temperature to "solved", or raise '
        f"temperature_lr from {config.temperature_lr:g}.",
    )
