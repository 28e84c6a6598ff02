"""TensorBoard's custom layout, as it is read back from a run's events."""

import re
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from tiny_runs import LAYERS, PPO, SETTINGS

from minerva.trainers.registry import PREFIXES, trainer_class

SMALL: dict[str, dict[str, Any]] = {
    "ppo": PPO,
    "mpo": {**LAYERS, "batch_size": 16, "update_after": 16, "action_samples": 4, "replay_size": 1000},
    "vmpo": {
        "policy_layer_sizes": (8,),
        "value_layer_sizes": (8,),
        "num_envs": 2,
        "rollout_steps": 64,
        "updates_per_rollout": 2,
    },
}


@pytest.fixture(scope="module", params=PREFIXES)
def events(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> EventAccumulator:
    folder: Path = tmp_path_factory.mktemp("runs") / request.param
    trainer = trainer_class(request.param)("Pendulum-v1", seed=0, engine="gymnasium", **SMALL[request.param])
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


def test_every_loss_is_shown(events: EventAccumulator) -> None:
    shown = " ".join(pattern for charts in categories(events).values() for chart in charts for pattern in chart)
    assert "loss" in shown
    for name in ("policy", "value", "q"):
        for tag in (f"loss/{name}", f"losses/{name}_loss"):
            assert tag not in events.Tags()["scalars"] or tag in shown
