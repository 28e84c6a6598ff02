"""Every preset is usable, and every number in it has a source."""

import tomllib
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest

from minerva.envs.ids import known_ids
from minerva.errors import ConfigError
from minerva.presets import NONE, Preset, preset_for, presets
from minerva.trainers.registry import ALGORITHMS, agent_class, config_class

ALL = [(algo, preset) for algo in ALGORITHMS for preset in presets(algo).values()]

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
    assert preset_for("ppo", "Pendulum-v1", "auto").name == "Pendulum-v1"
    assert preset_for("ppo", "Nobody-tuned-this-v0", "auto") is NONE


def test_none_and_a_name_are_taken_at_their_word() -> None:
    assert preset_for("ppo", "Pendulum-v1", "none") is NONE
    assert preset_for("ppo", "Nobody-tuned-this-v0", "Pendulum-v1").name == "Pendulum-v1"


def test_an_unknown_preset_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"pendulum-v1 is not a preset of ppo\. Did you mean Pendulum-v1"):
        preset_for("ppo", "Pendulum-v1", "pendulum-v1")


def test_an_algorithm_without_presets_has_none() -> None:
    assert presets("no_such_algorithm") == {}


# --- like -------------------------------------------------------------------------------------------------------

FAMILY = """
algo = "ppo"
[sources]
old = "an old paper"
new = "a newer paper"
[shared.oldest]
gamma = [0.9, "old"]
num_envs = [2, "old"]
[shared.older]
like = "oldest"
num_envs = [4, "old"]
gae_lambda = [0.8, "old"]
["Hopper-v5"]
like = "older"
gae_lambda = [0.7, "new"]
["Walker2d-v5"]
like = "Hopper-v5"
"""


def in_a_file(tmp_path: Path, text: str, env: str) -> Preset:
    (tmp_path / "mine.toml").write_text(text)
    return preset_for("ppo", env, str(tmp_path / "mine.toml"))


def test_a_preset_starts_from_the_one_it_is_like_and_its_own_values_win(tmp_path: Path) -> None:
    preset = in_a_file(tmp_path, FAMILY, "Hopper-v5")
    assert preset.values == {"gamma": 0.9, "num_envs": 4, "gae_lambda": 0.7}


def test_a_source_follows_its_value(tmp_path: Path) -> None:
    preset = in_a_file(tmp_path, FAMILY, "Hopper-v5")
    assert preset.sources == {"gamma": "an old paper", "num_envs": "an old paper", "gae_lambda": "a newer paper"}


def test_a_preset_can_be_like_a_preset(tmp_path: Path) -> None:
    hopper, walker = (in_a_file(tmp_path, FAMILY, env) for env in ("Hopper-v5", "Walker2d-v5"))
    assert (walker.values, walker.sources) == (hopper.values, hopper.sources)


def test_what_presets_share_is_no_preset(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no settings for older, only for Hopper-v5, Walker2d-v5\."):
        in_a_file(tmp_path, FAMILY, "older")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ('["Ant-v5"]\nlike = "odler"', r"Ant-v5 is like odler, which its file does not have\. Did you mean older"),
        ('["Ant-v5"]\nlike = "sources"', "Ant-v5 is like sources, which its file does not have"),
        ('["Ant-v5"]\nlike = "Ant-v5"', "Ant-v5 is like Ant-v5: one of them must state its settings without `like`"),
        (
            '["Ant-v5"]\nlike = "a"\n[shared.a]\nlike = "b"\n[shared.b]\nlike = "a"',
            "Ant-v5 is like a is like b is like a: ",
        ),
    ],
    ids=["unknown", "no settings", "itself", "a circle"],
)
def test_likeness_that_leads_nowhere_is_refused(tmp_path: Path, wrong: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        in_a_file(tmp_path, FAMILY + wrong, "Ant-v5")


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_no_block_of_settings_is_written_twice(algo: str) -> None:
    table = tomllib.loads((resources.files("minerva.presets") / f"{algo}.toml").read_text())
    del table["sources"]
    blocks = [*table.pop("shared", {}).values(), *table.values()]
    own = Counter(str({name: block[name] for name in block if name != "like"}) for block in blocks if len(block) > 2)
    assert {settings: times for settings, times in own.items() if times > 1} == {}


# --- defaults and the first version's values ----------------------------------------------------------------------


@pytest.mark.parametrize("algo", ["ppo", "mpo", "vmpo"])
def test_an_agent_that_is_made_directly_has_the_first_versions_values(algo: str) -> None:
    source = presets(algo)["source"]
    config = agent_class(algo)(3, 1).config.to_dict()
    assert source.changes(config_class(algo)()) == source.values  # nothing in it is a default
    assert {name: config[name] for name in source.values} == source.values


def test_a_task_that_nobody_tuned_gets_what_the_tuned_ones_share_but_for_the_m_steps_loss() -> None:
    changes = preset_for("vmpo", "Hopper-v5", "auto").changes(config_class("vmpo")())
    rewards = {"normalize_rewards": None}  # which is yes, but for dm_control
    horizon = {"gamma": 0.99, "gae_lambda": 0.95, "num_envs": 32, "rollout_steps": 64}
    assert changes == {
        "total_steps": 1_000_000,
        **rewards,
        **horizon,
        "initial_log_std": -0.5,  # by the rule -0.549
        "m_step_loss": "centered",
        "epsilon_eta": 1e-4,
        "epsilon_mu": 0.02,
        "epsilon_sigma": 5e-6,
    }


def test_none_is_written_as_a_word(tmp_path: Path) -> None:
    text = 'algo = "ppo"\n[sources]\nmine = "tried here once"\n["Hopper-v5"]\ntarget_kl = ["none", "mine"]\n'
    assert in_a_file(tmp_path, text, "Hopper-v5").values == {"target_kl": None}
