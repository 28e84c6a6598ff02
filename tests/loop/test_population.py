"""Seeds trained together: each is the run it would be alone, whatever becomes of its neighbours."""

import logging
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from needs import all_but_first_slow
from tiny_runs import flags

import minerva
from minerva.cli.main import main
from minerva.compute.tree import leaves
from minerva.config import parse_seeds
from minerva.errors import ConfigError, TrainingError
from minerva.loop.stacking import Stack
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.folder import RunFolder, read_config
from minerva.runs.metrics import read_rows

SETTINGS = {"quiet": True, "eval_episodes": 2, "eval_every": 128, "compile": "off"}
COMMON: dict[str, Any] = {"preset": "none", "engine": "gymnasium", "total_steps": 256}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "ppo": {"num_envs": 2, "rollout_steps": 32, "minibatch_size": 16, "update_epochs": 2},
    "vmpo": {"num_envs": 2, "rollout_steps": 32, "m_steps": 2, "policy_layer_sizes": (16,), "value_layer_sizes": (16,)},
    "mpo": {
        "num_envs": 2,
        "update_after": 64,
        "batch_size": 16,
        "updates_per_step": 0.25,
        "policy_layer_sizes": (16, 16),
        "critic_layer_sizes": (16, 16),
        "n_step": 3,
    },
}


def together(algo: str, seeds: list[int], folder: Path, **changed: Any) -> list[Any]:
    options: dict[str, Any] = {**COMMON, **ALGORITHMS[algo], "settings": SETTINGS, **changed}
    return minerva.train_seeds(algo, "Pendulum-v1", seeds, run_dir=folder, **options)


def alone(algo: str, seed: int, folder: Path, **changed: Any) -> Any:
    options: dict[str, Any] = {**COMMON, **ALGORITHMS[algo], "settings": SETTINGS, **changed}
    return minerva.train(algo, "Pendulum-v1", seed=seed, run_dir=folder, **options)


def weights(folder: Path, algo: str) -> list[torch.Tensor]:
    agent = load_checkpoint(RunFolder(folder, algo).last).state["trainer"]["agent"]
    return leaves({name: part for name, part in agent.items() if name in ("network", "policy", "q", "moments")})


def metrics(folder: Path, algo: str) -> list[dict[str, Any]]:
    rows = read_rows(RunFolder(folder, algo).metrics)
    return [{name: value for name, value in row.items() if not name.startswith("charts/")} for row in rows]


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_each_seed_is_the_run_it_would_be_alone(algo: str, tmp_path: Path) -> None:
    steps = 160 if algo == "mpo" else 256  # further on, rounding in single precision has grown
    results = together(algo, [0, 3], tmp_path / "all", total_steps=steps)
    for seed, result in zip((0, 3), results, strict=True):
        own = alone(algo, seed, tmp_path / f"own{seed}", total_steps=steps)
        assert result.finished
        assert result.step == own.step == steps
        assert result.random == own.random
        # on some processors stacked networks round differently
        assert result.before == pytest.approx(own.before, rel=1e-6)
        for found, expected in zip(weights(result.folder, algo), weights(own.folder, algo), strict=True):
            torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-4)
        files = [{path.name for path in folder.rglob("*.*")} for folder in (result.folder, own.folder)]
        assert {name for name in files[0] if "tfevents" not in name} == {
            name for name in files[1] if "tfevents" not in name
        }
        configs = [read_config(folder / "config.yaml") for folder in (result.folder, own.folder)]
        assert all(configs[0][name] == configs[1][name] for name in ("seed", "hyperparameters", "engine", "env"))
        assert [row["step"] for row in metrics(result.folder, algo)] == [
            row["step"] for row in metrics(own.folder, algo)
        ]


@pytest.mark.parametrize("algo", all_but_first_slow(ALGORITHMS))
def test_a_stopped_population_goes_on_as_if_it_had_not_been(algo: str, tmp_path: Path) -> None:
    whole = together(algo, [0, 1], tmp_path / "whole")
    stop = {**SETTINGS, "callbacks": [lambda step, *_: step >= 128]}
    stopped = together(algo, [0, 1], tmp_path / "parts", settings=stop)
    assert not any(result.finished for result in stopped)
    resumed = together(algo, [0, 1], tmp_path / "parts")
    for one, other in zip(whole, resumed, strict=True):
        assert other.finished
        assert all(
            torch.equal(a, b) for a, b in zip(weights(one.folder, algo), weights(other.folder, algo), strict=True)
        )
        assert metrics(one.folder, algo) == metrics(other.folder, algo)


def test_a_seed_that_is_ahead_waits_for_the_others(tmp_path: Path) -> None:
    stop = {**SETTINGS, "callbacks": [lambda step, *_: step >= 64]}
    together("ppo", [0, 1], tmp_path, settings=stop)
    further = {**SETTINGS, "callbacks": [lambda step, *_: step >= 128]}
    ahead = alone("ppo", 0, tmp_path / "seed0", settings=further)
    assert ahead.step == 128
    results = together("ppo", [0, 1], tmp_path)
    assert [result.step for result in results] == [256, 256]
    for seed, result in enumerate(results):
        own = alone("ppo", seed, tmp_path / f"own{seed}")
        for found, expected in zip(weights(result.folder, "ppo"), weights(own.folder, "ppo"), strict=True):
            torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-4)


def test_a_finished_population_is_left_as_it_is(tmp_path: Path) -> None:
    before = together("ppo", [0, 1], tmp_path)
    written = {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")}
    assert together("ppo", [0, 1], tmp_path) == before
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")} == written


def test_a_seed_that_goes_astray_is_named_and_the_others_do_not_notice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "minerva"):
        results = together("ppo", [0, 1, 2], tmp_path / "sick", policy_lr=[3e-4, 1e30, 3e-4])
    healthy = together("ppo", [0, 1, 2], tmp_path / "well")
    assert [result.finished for result in results] == [True, False, True]
    assert results[1].step < 256
    assert "seed1" in caplog.text
    for n in (0, 2):
        found, expected = (weights(runs[n].folder, "ppo") for runs in (results, healthy))
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_seed_that_goes_astray_while_it_catches_up_does_not_stop_the_others(tmp_path: Path) -> None:
    rates = {"policy_lr": [1e30, 3e-4]}
    stop = {**SETTINGS, "callbacks": [lambda step, *_: step >= 128]}
    alone("ppo", 1, tmp_path / "seed1", settings=stop, policy_lr=3e-4)
    results = together("ppo", [0, 1], tmp_path, **rates)
    assert [result.finished for result in results] == [False, True]
    assert results[1].step == 256


def test_where_every_seed_goes_astray_the_error_is_raised(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="lower"):
        together("ppo", [0, 1], tmp_path, policy_lr=[1e30, 1e30])


def test_numbers_may_differ_from_seed_to_seed(tmp_path: Path) -> None:
    results = together("ppo", [0, 0], tmp_path / "all", gamma=[0.9, 0.99])
    assert [result.folder.name for result in results] == ["seed0", "seed0_2"]
    for gamma, result in zip((0.9, 0.99), results, strict=True):
        own = alone("ppo", 0, tmp_path / f"own{gamma}", gamma=gamma)
        assert read_config(result.folder / "config.yaml")["hyperparameters"]["gamma"] == gamma
        for found, expected in zip(weights(result.folder, "ppo"), weights(own.folder, "ppo"), strict=True):
            torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gamma": [0.9]}, "gamma lists 1 values for 2 seeds"),
        ({"target_kl": [0.1, None]}, "target_kl is 0.1 for one seed and None"),
        ({"seeds": [4, 4]}, "the same run"),
        ({"seeds": []}, "at least one seed"),
        ({"seeds": [0, -1]}, "seed is -1"),
    ],
)
def test_what_cannot_be_trained_together_is_refused(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    seeds = changed.pop("seeds", [0, 1])
    with pytest.raises(ConfigError, match=message):
        together("ppo", seeds, tmp_path, **changed)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_seeds_as_they_are_written() -> None:
    assert parse_seeds("0:4") == [0, 1, 2, 3]
    assert parse_seeds("3") == [3]
    assert parse_seeds("0,5,2") == [0, 5, 2]
    for wrong in ("", "4:4", "a:b", "1,,2", "0:3:2", "-1"):
        with pytest.raises(ConfigError, match="write 0:8"):
            parse_seeds(wrong)


def test_the_command_line_trains_seeds_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--num-envs", "2", "--rollout-steps", "32", "--minibatch-size", "16", "--update-epochs", "2"]
    command = ["train", "ppo", "--seeds", "0:2", "--total-steps", "128", "--eval-episodes", "1", *given]
    assert main([*command, "--vary", "gamma=0.9,0.99", "--run-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "seeds 0:2 together" in printed
    assert "gamma=0.9,0.99" in " ".join(printed.split())
    assert "over seeds" in printed
    assert [line for line in printed.splitlines() if line.startswith("run: ")] == [
        f"run: {tmp_path / name}" for name in ("seed0", "seed1")
    ]
    varied = ["--seed", "3", "--vary", "gamma=0.9,0.99", "--run-dir", str(tmp_path / "third")]
    without = [word for word in command if word not in ("--seeds", "0:2")]
    assert main([*without, *varied]) == 0
    assert sorted(path.name for path in (tmp_path / "third").iterdir()) == ["seed3", "seed3_2"]
    assert main([*command, "--vary", "policy_layer_sizes=8,16", "--run-dir", str(tmp_path / "other")]) == 2
    assert main([*command, "--resume", str(tmp_path / "seed0")]) == 2


def test_the_command_that_a_stopped_population_prints_goes_on_with_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = flags(**ALGORITHMS["ppo"], total_steps=192, eval_episodes=1, engine="gymnasium")
    command = ["train", "ppo", "--seeds", "0:2", "--vary", "gamma=0.9,0.99", *sizes]
    assert main([*command, "--out-dir", str(tmp_path / "whole")]) == 0
    undisturbed = folders_in(capsys.readouterr().out)

    learn = Stack.learn

    def learn_and_be_stopped(self: Stack, *arguments: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return learn(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Stack, "learn", learn_and_be_stopped)
        assert main([*command, "--out-dir", str(tmp_path / "[the] parts")]) == 143  # as a shell and rich read otherwise
    said = capsys.readouterr().out
    (again,) = [line for line in said.splitlines() if "--resume" in line]
    assert main(shlex.split(again)[1:]) == 0
    assert "bit for bit" in capsys.readouterr().out
    for one, other in zip(undisturbed, folders_in(said), strict=True):
        assert metrics(one, "ppo") == metrics(other, "ppo")
        assert all(map(torch.equal, weights(one, "ppo"), weights(other, "ppo")))
    assert main([*shlex.split(again)[1:], "--gamma", "0.5"]) == 2  # they are finished
    assert main([*shlex.split(again)[1:], "--total-steps", "256"]) == 0
    assert [metrics(folder, "ppo")[-1]["step"] for folder in folders_in(said)] == [256, 256]


def folders_in(printed: str) -> list[Path]:
    return [Path(line.removeprefix("run: ")) for line in printed.splitlines() if line.startswith("run: ")]
