"""What each algorithm declares of its metrics: what an update reports, neither more nor less, and where it is shown."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from minerva.lab.analysis.health import panels
from minerva.loop.off_policy_agent import OffPolicyAgent
from minerva.loop.stacking import Stack
from minerva.metrics import Metric
from minerva.trainers.registry import ALGORITHMS, config_class, metrics_of, trainer_class

TROUBLESHOOTING = Path(__file__).parents[2] / "docs" / "guides" / "troubleshooting.md"
STEPS, ENVS = 8, 2

SMALL: dict[str, dict[str, Any]] = {
    "ppo": {"policy_layer_sizes": (4,), "critic_layer_sizes": (4,), "rollout_steps": STEPS, "minibatch_size": 8},
    "mpo": {"policy_layer_sizes": (4,), "critic_layer_sizes": (4,), "action_samples": 3, "replay_size": 256},
    "vmpo": {"policy_layer_sizes": (4,), "value_layer_sizes": (4,), "rollout_steps": STEPS},
    "sac": {"policy_layer_sizes": (4,), "critic_layer_sizes": (4,), "replay_size": 256},
}
"""Settings of a small update, a row for each algorithm."""

NO_OPTION: dict[str, dict[str, Any]] = {
    "mpo": {"epsilon_penalty": 0.0, "critic": "scalar"},
    "ppo": {"gamma": 0.99, "advantage_memory": 0.0},
    "vmpo": {"gamma": 0.99},
}
"""Settings with which the fewest metrics are reported."""


def rollout(obs_dim: int, act_dim: int) -> dict[str, torch.Tensor]:
    source = torch.Generator().manual_seed(0)
    obs = torch.randn(STEPS + 1, ENVS, obs_dim, generator=source)
    ended = (torch.rand(STEPS, ENVS, generator=source) < 0.2).to(obs.dtype)
    return {
        "obs": obs[:-1].clone(),
        "actions_raw": torch.randn(STEPS, ENVS, act_dim, generator=source),
        "next_obs": obs[1:].clone(),
        "rewards": obs[:-1, :, 0].clone(),
        "terminated": ended,
        "ended": ended,
    }


def reported(algo: str, env: str = "Pendulum-v1", paid: float = 1.0, **settings: Any) -> dict[str, float]:
    """The metrics of one small update on rewards of about `paid`."""
    trainer = trainer_class(algo)(env, num_envs=ENVS, engine="gymnasium", **{**SMALL[algo], **settings})
    agent, rows = trainer.agent, rollout(trainer.envs.observation.size, 1)
    rows["rewards"] *= paid
    if trainer.envs.action.counts:
        rows["actions_raw"] = (rows["actions_raw"] > 0).long()
    if isinstance(agent, OffPolicyAgent):
        flat = {name: values.flatten(0, 1) for name, values in rows.items()}
        batch = {name: flat[name] for name in ("obs", "next_obs", "rewards")}
        rows = agent.prepared({**batch, "actions": flat["actions_raw"].clamp(-1, 1), "dones": flat["terminated"]})
    elif trainer.config.gamma is None:  # then it comes with the rollout
        rows["gamma"] = torch.tensor(0.99)
    stack = Stack([agent], "off", 1)
    stack.learn(rows, stack.hyper())
    return stack.metrics()[0]


def test_an_update_reports_what_is_declared() -> None:
    assert reported("sac", critic="hl_gauss").keys() == {metric.name for metric in metrics_of("sac")}
    assert reported("sac").keys() == {metric.name for metric in metrics_of("sac") if not metric.optional}


@pytest.mark.parametrize("algo", ["mpo", "sac"])
def test_targets_beyond_what_a_critic_can_express_are_counted(algo: str) -> None:
    """Its histogram ends at 5: rewards of a thousandth lie within, most rewards of ten thousand beyond."""
    within, beyond = (reported(algo, paid=paid, critic="hl_gauss", critic_range=5.0) for paid in (1e-3, 1e4))
    assert within["health/targets_at_limit"] == 0
    assert beyond["health/targets_at_limit"] > 0.9


@pytest.mark.parametrize("algo", ["mpo", "ppo", "vmpo"])
def test_updates_on_continuous_and_discrete_actions_together_report_what_is_declared(algo: str) -> None:
    continuous, discrete = reported(algo).keys(), reported(algo, "CartPole-v1").keys()
    assert continuous | discrete == {metric.name for metric in metrics_of(algo)}
    fewest = reported(algo, **NO_OPTION.get(algo, {})).keys()
    assert fewest & discrete == {metric.name for metric in metrics_of(algo) if not metric.optional}


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_each_is_declared_once_and_explained(algo: str) -> None:
    names = [metric.name for metric in metrics_of(algo)]
    assert len(names) == len(set(names))
    for metric in metrics_of(algo):
        assert metric.meaning.endswith("."), metric.name
        assert metric.healthy[0] < metric.healthy[1]
        assert bool(metric.warning) == bool(metric.advice), metric.name


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_warning_names_a_setting_and_a_bound_is_one(algo: str) -> None:
    settings = config_class(algo).annotations()
    for metric in metrics_of(algo):
        assert not metric.warning or any(re.search(rf"\b{name}\b", metric.advice) for name in settings), metric.name
        assert all(panel.bound is None or panel.bound in settings for panel in metric.panels)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_loss_has_a_chart_and_every_gauge_a_panel(algo: str) -> None:
    metrics = metrics_of(algo)
    assert {"policy"} < {metric.loss_chart for metric in metrics}
    assert 4 <= sum(bool(metric.label) for metric in metrics) <= 6, "a row of the terminal"
    for metric in metrics:
        assert not metric.label or (metric.chart and metric.panels), metric.name


def test_panels_of_one_title_are_one_panel() -> None:
    def seen(metric: Metric) -> list[tuple[Any, ...]]:
        return [(panel.title, panel.meaning, panel.at, panel.log) for panel in metric.panels]

    declared = {panel for algo in ALGORITHMS for metric in metrics_of(algo) for panel in seen(metric)}
    assert declared == {(panel.title, panel.meaning, panel.at, panel.log) for panel in panels()}
    assert len(declared) == len({title for title, *_ in declared})


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_guide_explains_metrics_that_there_are(algo: str) -> None:
    sections = TROUBLESHOOTING.read_text().split("\n## ")
    (section,) = [part for part in sections if part.startswith(f"{ALGORITHMS[algo].title}\n")]
    first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)}
    known = {metric.name: metric for metric in metrics_of(algo)}
    assert named <= known.keys()
    assert {name for name, metric in known.items() if metric.label} - named <= {"eta"}
