"""What is searched, and the preset that is made of what was found. No Ray is needed here."""

import json
from pathlib import Path
from typing import Any

import pytest

from minerva.cli.main import _parse, main
from minerva.config import TENSOR, Config
from minerva.errors import ConfigError
from minerva.lab.cluster.space import Dimension, space
from minerva.lab.cluster.tuning import Best, Search, evaluations, preset_file, ray_distribution
from minerva.presets import preset_for, presets
from minerva.trainers.registry import ALGORITHMS, config_class


def dimension(text: str, algo: str = "ppo", **values: Any) -> Dimension:
    (found,) = space(algo, config_class(algo).from_dict(values), [text])
    return found


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_by_default_the_numbers_of_an_update_are_searched_and_every_end_is_a_valid_value(algo: str) -> None:
    config: Config = config_class(algo)()
    found = space(algo, config, [])
    assert {"policy_lr", "gamma"} <= {each.name for each in found} <= set(config_class(algo).fields_with(TENSOR))
    for each in found:
        for drawn in (each.low, each.high):
            type(config).from_dict({each.name: each.value(drawn)})
        now = config.to_dict()[each.name] or {"gamma": 0.99, "gae_lambda": 0.95}[each.name]
        assert each.low < (1 - now if each.from_one else now) < each.high


def test_ranges_follow_from_type_and_value() -> None:
    assert dimension("policy_lr", policy_lr=1e-3) == Dimension("policy_lr", low=1e-4, high=1e-2, log=True)
    short = dimension("gamma", gamma=0.99)
    assert (short.value(short.high), short.value(short.low)) == pytest.approx((0.95, 0.998))
    assert dimension("update_epochs", update_epochs=8) == Dimension(
        "update_epochs", low=2, high=32, log=True, whole=True
    )
    assert dimension("norm_adv").choices == (False, True)
    assert dimension("advantage_estimator").choices == ("gae", "returns", "dae")
    assert dimension("topk_fraction", "vmpo", topk_fraction=0.5, m_step_loss="likelihood").high <= 1.0


def test_ranges_and_choices_can_be_given() -> None:
    assert dimension("clip_ratio=0.1:0.3") == Dimension("clip_ratio", low=0.1, high=0.3)
    assert dimension("ent_coef=1e-4:1e-2").log
    assert dimension("num_envs=8,16").choices == (8, 16)
    assert dimension("norm_adv=true").choices == (True,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clip_ration", "Did you mean clip_ratio"),
        ("clip_ratio=0.3:0.1", "the second must be larger"),
        ("clip_ratio=-1:1", "must be in"),
        ("gamma=0.9:1.5", r"must be in \[0, 1\]"),
        ("clip_ratio=a:b", "low:high"),
        ("num_envs=8,many", "must be a whole number"),
        ("ent_coef", "has no default range"),
        ("policy_layer_sizes", "has no default range"),
    ],
)
def test_what_cannot_be_searched_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        dimension(text)


def search(folder: Path) -> Search:
    dimensions = (Dimension("policy_lr", low=1e-4, high=1e-2, log=True), Dimension("gamma", low=0.002, from_one=True))
    return Search("ppo", "Pendulum-v1", (1000, 1001), 4096, "auto", dimensions, 3, 4, folder)


def test_a_trial_is_an_ordinary_command(tmp_path: Path) -> None:
    words = search(tmp_path).command({"policy_lr": 0.003, "gamma": 0.1}, tmp_path / "trial")
    parsed = _parse(words[words.index("minerva") + 1 :])
    assert parsed.hyperparameters.to_dict()["policy_lr"] == 0.003
    assert parsed.hyperparameters.to_dict()["gamma"] == 0.9
    assert parsed.hyperparameters.to_dict()["num_envs"] == presets("ppo")["Pendulum-v1"].values["num_envs"]
    assert (parsed.run_options.seeds, parsed.run_options.total_steps) == ("1000,1001", 4096)


def test_an_evaluation_counts_when_all_seeds_have_had_it(tmp_path: Path) -> None:
    rows = {1000: [(0, [1.0]), (128, [2.0, 4.0]), (256, [9.0])], 1001: [(0, [3.0]), (128, [5.0, 5.0])]}
    assert list(evaluations(tmp_path, [1000, 1001])) == []
    for seed, own in rows.items():
        (tmp_path / f"seed{seed}" / "eval").mkdir(parents=True)
        text = "".join(json.dumps({"step": step, "returns": returns}) + "\n" for step, returns in own)
        (tmp_path / f"seed{seed}" / "eval" / "evaluations.jsonl").write_text(text)
    assert list(evaluations(tmp_path, [1000, 1001])) == [(0, 2.0), (128, 4.0)]


def test_what_was_found_is_a_preset_that_train_takes(tmp_path: Path) -> None:
    base = preset_for("ppo", "Pendulum-v1", "auto")
    known = {name: (value, base.sources[name]) for name, value in base.values.items()}
    best = Best({"policy_lr": 0.0021, "max_grad_norm": float("inf"), "clip_vloss": True}, -150.0, 4096, 3)
    file = tmp_path / "ppo.toml"
    file.write_text(preset_file(search(tmp_path), best, known, 'minerva tune: "best" of 3'))
    read = preset_for("ppo", "Pendulum-v1", str(file))
    assert read.values == {**base.values, **best.hyperparameters}
    assert read.sources["policy_lr"] == 'minerva tune: "best" of 3'
    assert read.sources["num_envs"] == base.sources["num_envs"]
    config = _parse(["train", "ppo", "--preset", str(file)]).hyperparameters.to_dict()
    assert (config["policy_lr"], config["max_grad_norm"], config["clip_vloss"]) == (0.0021, float("inf"), True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("train mpo --env Pendulum-v1 --preset {file}", ("is a preset of ppo, not of mpo", "use minerva train ppo")),
        ("train ppo --env Hopper-v5 --preset {file}", ("no settings for Hopper-v5, only for Pendulum-v1",)),
        ("train ppo --env Pendulum-v1 --preset {file}x.toml", ("cannot be read as a preset", "minerva tune")),
        ("tune pppo --env Pendulum-v1", ("pppo is not an algorithm", "Did you mean ppo")),
        ("tune ppo --env Pendulun-v1", ("Pendulun-v1 is not a known environment",)),
        ("tune ppo --env Pendulum-v1 --search gama", ("gama", "Did you mean gamma")),
        ("tune ppo --env Pendulum-v1 --trials 0", ("trials is 0",)),
        ("tune ppo --env Pendulum-v1 --seeds 3:1", ("seeds is 3:1",)),
    ],
)
def test_wrong_input_is_refused_with_the_fix(
    options: str, words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ppo.toml"
    file.write_text(preset_file(search(tmp_path), Best({"gamma": 0.9}, 0.0, 1, 1), {}, "somewhere"))
    assert main(options.format(file=file).split()) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words), said


class Words:
    """Stands for ray.tune: says what it was asked for."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: (name, *arguments)


def test_dimensions_are_drawn_as_they_are_meant() -> None:
    assert ray_distribution(Words(), Dimension("x", (1, 2))) == ("choice", [1, 2])
    assert ray_distribution(Words(), Dimension("x", low=1, high=8, log=True, whole=True)) == ("lograndint", 1, 9)
    assert ray_distribution(Words(), Dimension("x", low=0.1, high=0.5)) == ("uniform", 0.1, 0.5)
    assert ray_distribution(Words(), Dimension("x", low=0.1, high=5.0, log=True)) == ("loguniform", 0.1, 5.0)
