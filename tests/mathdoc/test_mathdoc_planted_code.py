"""Errors planted in the code of marked lines, which leave the values of an exercise as they were: each is refused."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from changed_copies import Change

from mathdoc.check import Report

Checked = Callable[[Sequence[Change]], Report]
pytestmark = pytest.mark.slow

PLANTED = {
    "a ratio without gradient": Change(
        "trainers.ppo.improve", "ratio = torch.exp(ratio_log)", "ratio = torch.exp(ratio_log.detach())"
    ),
    "a ratio clamped": Change(
        "trainers.ppo.losses", "unclipped = -advantages * ratio", "unclipped = -advantages * torch.clamp(ratio, 0, 50)"
    ),
    "coefficients exchanged": Change(
        "trainers.ppo.improve",
        'hyper["ent_coef"] * entropy + hyper["vf_coef"] * value',
        'hyper["vf_coef"] * entropy + hyper["ent_coef"] * value',
    ),
    "a spread without gradient": Change(
        "formulas.gaussian", "actions = mean + std * noise", "actions = mean + std.detach() * noise"
    ),
    "what is not a number replaced": Change(
        "formulas.gaussian",
        "kl = (mean - old_mean) ** 2 / (2 * old_std**2)",
        "kl = torch.nan_to_num((mean - old_mean) ** 2 / (2 * old_std**2))",
    ),
    "scores clamped": Change(
        "trainers.mpo.losses",
        "psi = torch.softmax(scores / temperature, 0)",
        "psi = torch.softmax((scores / temperature).clamp(-500, 500), 0)",
    ),
    "a normalising constant without gradient": Change(
        "trainers.vmpo.losses", "weights = mass / total", "weights = mass / total.detach()"
    ),
    "rounding for truncation": Change(
        "trainers.vmpo.losses", "k = int(topk_fraction * rows + 1e-9)", "k = round(topk_fraction * rows + 1e-9)"
    ),
    "one critic without gradient": Change(
        "trainers.sac.losses",
        "values = torch.minimum(first, second)",
        "values = torch.minimum(first, second.detach())",
    ),
    "a variance clamped": Change(
        "data.normalizers",
        "rewards / torch.sqrt(variance + EPS)",
        "rewards / torch.sqrt(torch.clamp(variance, min=1e-12) + EPS)",
    ),
    "a penalty without gradient": Change(
        "formulas.trust_region", "costs = multipliers.detach() * kls", "costs = multipliers.detach() * kls.detach()"
    ),
    "a multiplier without gradient": Change(
        "formulas.lagrange",
        "multiplier = softplus(unconstrained) + EPS_0",
        "multiplier = softplus(unconstrained.detach()) + EPS_0",
    ),
    "a value written again": Change(
        "formulas.returns",
        "        total = reward + gamma * running\n",
        "        total = reward + gamma * running\n        total = total.clamp(-1000, 1000)\n",
    ),
    "a log-probability clamped": Change(
        "formulas.categorical",
        "loss = -(probabilities * log_probabilities)",
        "loss = -(probabilities * log_probabilities.clamp(min=-100))",
    ),
    "a number for a setting": Change(
        "formulas.optimizers", "first = momentum * moments", "first = 0.9 * moments"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def report(checked_with: Checked) -> Report:
    return checked_with(list(PLANTED.values()))


def _lines(path: Path, text: str) -> range:
    """Where a text stands, from the marker above it on."""
    before, _, _ = path.read_text().partition(text.splitlines()[0])
    first = before.count("\n") + 1
    return range(first - 2, first + len(text.splitlines()) + 1)


@pytest.mark.parametrize("name", PLANTED)
def test_an_error_that_leaves_the_values_is_refused(name: str, report: Report) -> None:
    module, _, new = PLANTED[name]
    path = next(source.path for source in report.sources if source.module == module)
    near = _lines(path, new)
    said = [problem.message for problem in report.problems if problem.path == path and problem.line in near]
    assert said, [str(problem) for problem in report.problems]
