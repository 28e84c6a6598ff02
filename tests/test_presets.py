"""Every preset is usable, and every number in it has a source."""

import pytest

from minerva.envs.ids import known_ids
from minerva.errors import ConfigError
from minerva.presets import NONE, Preset, preset_for, presets
from minerva.trainers.registry import PREFIXES, config_class

ALL = [(algo, preset) for algo in PREFIXES for preset in presets(algo).values()]

over_all = pytest.mark.parametrize(("algo", "preset"), ALL, ids=[f"{algo}-{preset.name}" for algo, preset in ALL])


def hyperparameters(preset: Preset) -> dict[str, object]:
    return {name: value for name, value in preset.values.items() if name != "total_steps"}


@over_all
def test_a_preset_makes_a_config(algo: str, preset: Preset) -> None:
    config = config_class(algo).from_dict(hyperparameters(preset))
    for name, value in hyperparameters(preset).items():
        made = getattr(config, name)
        assert (list(made) if isinstance(made, tuple) else made) == value


@over_all
def test_every_number_has_a_source(algo: str, preset: Preset) -> None:
    assert preset.sources.keys() == preset.values.keys()
    assert all(len(source.split()) > 2 for source in preset.sources.values())


@over_all
def test_its_environment_exists(algo: str, preset: Preset) -> None:
    if "-v" in preset.name or "/" in preset.name:  # others are named after the peer they reproduce
        assert preset.name in known_ids()


@over_all
def test_its_budget_holds_at_least_ten_updates(algo: str, preset: Preset) -> None:
    config = config_class(algo).from_dict(hyperparameters(preset))
    batch = config.num_envs * getattr(config, "rollout_steps", 1)  # type: ignore[attr-defined]
    assert preset.values.get("total_steps", 1_000_000) >= 10 * batch


def test_auto_is_the_environments_own_or_none() -> None:
    assert preset_for("ppo", "Pendulum-v1").name == "Pendulum-v1"
    assert preset_for("ppo", "Nobody-tuned-this-v0") is NONE


def test_none_and_a_name_are_taken_at_their_word() -> None:
    assert preset_for("ppo", "Pendulum-v1", "none") is NONE
    assert preset_for("ppo", "Nobody-tuned-this-v0", "Pendulum-v1").name == "Pendulum-v1"


def test_an_unknown_preset_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"pendulum-v1 is not a preset of ppo\. Did you mean Pendulum-v1"):
        preset_for("ppo", "Pendulum-v1", "pendulum-v1")


def test_an_algorithm_without_presets_has_none() -> None:
    assert presets("no_such_algorithm") == {}
