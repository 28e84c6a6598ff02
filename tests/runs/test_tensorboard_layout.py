"""TensorBoard's custom layout, as it is read back from a run's events."""

import re
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from tiny_runs import PPO, SETTINGS

from minerva.metrics import Metric
from minerva.runs.tensorboard_layout import LEARNING, SPEED, custom_scalars, layout
from minerva.trainers.ppo.trainer import PPOTrainer
from minerva.trainers.registry import ALGORITHMS, metrics_of


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> EventAccumulator:
    folder: Path = tmp_path_factory.mktemp("run")
    trainer = PPOTrainer("Pendulum-v1", seed=0, engine="gymnasium", **PPO)
    trainer.train(512, out_dir=folder, **{**SETTINGS, "compile": "off"})
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return events


def categories(events: EventAccumulator) -> dict[str, list[list[str]]]:
    """The patterns of every chart, by category, in the order of the file."""
    (stored, *_) = events.Tensors("custom_scalars__config__")
    read = Layout.FromString(stored.tensor_proto.string_val[0])
    return {part.title: [list(chart.multiline.tag) for chart in part.chart] for part in read.category}


def test_the_first_category_answers_whether_it_learns(events: EventAccumulator) -> None:
    found = categories(events)
    assert list(found) == ["Is it learning?", "Is the update healthy?", "Losses", "Speed"]
    assert found["Is it learning?"][0] == ["^train/episode_return$", "^eval/return_mean$"]
    assert found["Speed"] == [["^charts/SPS$"]]


def test_every_chart_shows_metrics_that_the_algorithm_has(events: EventAccumulator) -> None:
    logged = events.Tags()["scalars"]
    patterns = [pattern for charts in categories(events).values() for chart in charts for pattern in chart]
    assert len(patterns) > 10
    for pattern in patterns:
        assert sum(re.search(pattern, name) is not None for name in logged) == 1, pattern


def test_metrics_of_one_title_share_a_chart() -> None:
    metrics = [
        Metric("kl/a", "", chart="KLs"),
        Metric("loss/p", "", loss_chart="policy"),
        Metric("kl/b", "", chart="KLs"),
        Metric("quiet", ""),
    ]
    made = layout(metrics)
    assert (made["Is it learning?"], made["Speed"]) == (LEARNING, SPEED)
    assert (made["Is the update healthy?"], made["Losses"]) == ({"KLs": ["kl/a", "kl/b"]}, {"policy": ["loss/p"]})
    assert custom_scalars(metrics)["Is the update healthy?"] == {"KLs": ["Multiline", ["^kl/a$", "^kl/b$"]]}
    assert "Losses" not in custom_scalars([])


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_policy_loss_is_shown_and_no_metric_twice(algo: str) -> None:
    made = layout(metrics_of(algo))
    shown = [name for part in ("Is the update healthy?", "Losses") for names in made[part].values() for name in names]
    assert len(shown) == len(set(shown)) > 6
    assert "policy" in made["Losses"]
