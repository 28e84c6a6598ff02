"""The command line understands what people type, and what it advises can be run."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import LAYERS, SIZES, STEPS, FinishedRun, flags, train_command

import minerva
from minerva.cli.main import _parse, main
from minerva.config import AlsoCalled
from minerva.errors import ConfigError, MinervaError, pip_install
from minerva.presets import presets
from minerva.trainers.registry import ALGORITHMS, config_class

SMALL = [*flags(**SIZES, **LAYERS), "--eval-episodes", "1"]


def hyperparameters(command: str) -> dict[str, Any]:
    """What `minerva train` would train with."""
    settings: dict[str, Any] = _parse(shlex.split(command)).hyperparameters.to_dict()
    return settings


# --- what is understood ---------------------------------------------------------------------------------------


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"minerva {minerva.__version__}\n"


@pytest.mark.parametrize("algo", ["V-MPO", "vmpo", "VMPO"])
def test_an_algorithm_in_any_case_and_the_environment_after_it(algo: str) -> None:
    plain = _parse(["train", "vmpo", "--env", "Hopper-v5"])
    assert _parse(["train", algo, "Hopper-v5"]) == plain


@pytest.mark.parametrize(("typed", "number"), [("1e6", 1_000_000), ("2.5e3", 2_500), ("1_000", 1_000), ("77", 77)])
def test_whole_numbers_are_read_as_people_write_them(typed: str, number: int) -> None:
    assert _parse(["train", "ppo", "--total-steps", typed]).run_options.total_steps == number


@pytest.mark.parametrize("typed", ["1.5", "1e-3", "nan", "inf", "1e"])
def test_other_numbers_are_refused(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ppo", "--total-steps", typed]) == 2
    assert f"{typed!r} is not a whole number" in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["32 16", "32,16"])
def test_layer_sizes_with_spaces_or_commas(typed: str) -> None:
    assert hyperparameters(f"train ppo --policy-layer-sizes {typed} --gamma 0.9")["policy_layer_sizes"] == [32, 16]


def test_an_id_without_its_version_is_that_of_the_newest() -> None:
    with_version, without = (_parse(["train", "ppo", "--env", env]) for env in ("HalfCheetah-v5", "HalfCheetah"))
    assert with_version == without
    assert without.run_options.env == "HalfCheetah-v5"


@pytest.mark.parametrize("verb", ["train ppo", "train mpo", "evaluate runs/x", "presets"])
def test_a_wrong_option_names_the_help_of_its_own_command(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb.split(), "--no-such-option", "1"]) == 2
    words = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"minerva {verb.removesuffix(' runs/x')} --help" in words


@pytest.mark.parametrize(("preset", "words"), [("auto", "preset Hopper-v5"), ("none", "the algorithm's own")])
def test_help_says_whose_defaults_it_shows(preset: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ppo", "--env", "Hopper-v5", "--preset", preset, "--help"]) == 0
    assert words in " ".join(capsys.readouterr().out.split())


# --- names of other libraries ---------------------------------------------------------------------------------

BROUGHT = [
    ("ppo", "learning_rate", "policy_lr"),
    ("ppo", "n_steps", "rollout_steps"),
    ("ppo", "clip_range", "clip_ratio"),
    ("ppo", "n_epochs", "update_epochs"),
    ("sac", "ent_coef", "temperature_init"),
    ("sac", "buffer_size", "replay_size"),
    ("sac", "learning_rate", "policy_lr and q_lr"),
    ("mpo", "learning_starts", "update_after"),
    ("vmpo", "total_timesteps", "total_steps"),
]


@pytest.mark.parametrize(("algo", "name", "here"), BROUGHT)
def test_a_name_of_another_library_is_answered_with_the_one_here(
    algo: str, name: str, here: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=f"Here it is called {here}"):
        minerva.train(algo, "Pendulum-v1", **{name: 1})
    assert main(["train", algo, f"--{name.replace('_', '-')}", "1"]) == 2
    options = " and ".join(f"--{word.replace('_', '-')}" for word in here.split(" and "))
    assert f"is called {options} here" in capsys.readouterr().err


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_no_name_of_another_library_is_one_of_ours(algo: str) -> None:
    annotations = config_class(algo).annotations()
    brought = {
        name
        for hint in annotations.values()
        for also in getattr(hint, "__metadata__", ())
        if isinstance(also, AlsoCalled)
        for name in also.names.split()
    }
    assert brought
    assert not brought & annotations.keys()


# --- environments and rollouts --------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", ["ppo", "vmpo"])
@pytest.mark.parametrize("env", ["Pendulum-v1", "Hopper-v5", "CarRacing-v3"])
def test_a_rollout_keeps_its_rows_when_only_the_environments_change(algo: str, env: str) -> None:
    before = hyperparameters(f"train {algo} --env {env}")
    rows = before["num_envs"] * before["rollout_steps"]
    for number in (1, 2, 3, 5, before["num_envs"], 64):
        after = hyperparameters(f"train {algo} --env {env} --num-envs {number}")
        assert rows <= number * after["rollout_steps"] < rows + number
        assert {**after, "num_envs": 0, "rollout_steps": 0} == {**before, "num_envs": 0, "rollout_steps": 0}
    assert hyperparameters(f"train {algo} --env {env} --num-envs {before['num_envs']}") == before
    assert hyperparameters(f"train {algo} --env {env} --num-envs 2 --rollout-steps 77")["rollout_steps"] == 77


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_preset_is_what_its_file_says(algo: str) -> None:
    kind = config_class(algo)
    for preset in presets(algo).values():
        values = {name: value for name, value in preset.values.items() if name != "total_steps"}
        assert kind.overridden(values, {}) == values
        assert hyperparameters(f"train {algo} --preset {preset.name}") == kind.from_dict(values).to_dict()


OWN = """
import gymnasium as gym
from tiny_runs import Paced
class Reach(Paced):
    def __init__(self, goal=0.0):
        self.goal = goal
def reach():
    return Reach(1.0)
gym.register("Reach-v0", entry_point=Reach)
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module with environments in the working directory, which is no place to import from."""
    (tmp_path / "own_envs.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    monkeypatch.delitem(sys.modules, "own_envs", raising=False)
    return tmp_path


@pytest.mark.parametrize("env", ["own_envs:Reach-v0", "own_envs:Reach", "own_envs:reach"])
def test_a_typed_environment_comes_from_the_working_directory(
    env: str, own_module: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "ppo", env, "--total-steps", "256", "--run-dir", "run", *SMALL]) == 0
    commands = advised(capsys.readouterr().out)
    assert "video" not in {words[1] for words in commands}  # it draws nothing
    assert [main([*words[1:], *few(words)]) for words in commands if words[0] == "minerva"] == [0]
    assert "return  mean" in capsys.readouterr().out
    assert main(["evaluate", "run", "--episodes", "1"]) == (0 if env == "own_envs:Reach-v0" else 2)


def test_an_environment_that_a_file_names_does_not(own_module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ppo", "own_envs:Reach-v0", "--total-steps", "256", "--run-dir", "run", *SMALL]) == 0
    del sys.modules["own_envs"]
    sys.path.remove(str(own_module))
    for command in (["evaluate", "run"], ["evaluate", "run", "--trust-env"], ["train", "ppo", "--config", "run"]):
        assert main(command) == 2
    assert "own_envs" not in sys.modules
    assert "--env own_envs:Reach-v0" in capsys.readouterr().err


# --- what is advised ------------------------------------------------------------------------------------------


def advised(output: str) -> list[list[str]]:
    """The commands that a finished run proposes."""
    block = output.partition("next steps:\n")[2].partition("run: ")[0]
    return [shlex.split(line) for line in block.splitlines()]


def few(words: list[str]) -> list[str]:
    """Options that make a proposed command short."""
    return {"evaluate": ["--episodes", "1"], "video": ["--seconds", "0.2", "--format", "gif"]}.get(words[1], [])


def test_every_command_after_a_run_can_be_run(finished_run: FinishedRun, capsys: pytest.CaptureFixture[str]) -> None:
    commands = advised(finished_run.output)
    assert [words[0] for words in commands] == ["minerva", "minerva", "tensorboard", "python"]
    assert [words[1] for words in commands[:2]] == ["evaluate", "video"]
    assert main([*commands[0][1:], *few(commands[0])]) == 0
    assert main([*commands[1][1:], *few(commands[1]), "--out", str(finished_run.folder.parent / "film.gif")]) == 0
    exec(commands[3][2])
    assert "Policy(ppo on Pendulum-v1" in capsys.readouterr().out


@pytest.mark.parametrize("extra", ["dm-control", "envpool", "wandb", "video", "export", "cluster"])
def test_a_hint_to_install_names_packages(extra: str) -> None:
    packaging = pytest.importorskip("packaging.requirements")
    command, verb, *packages = shlex.split(pip_install(extra))
    assert (command, verb) == ("pip", "install")
    names = [packaging.Requirement(package).name for package in packages]
    assert names
    assert "minerva" not in names
    assert all(re.fullmatch(r"[a-z-]+[a-z0-9-]*", name) for name in names)


def test_logging_to_a_missing_package_stops_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main([*train_command(tmp_path / "run"), "--wandb", "project"]) == 2
    assert "not installed: pip install 'wandb" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_exact_refuses_an_engine_that_begins_new_episodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*train_command(tmp_path / "run"), "--exact", "--engine", "envpool"]) == 2
    assert "use --engine gymnasium" in capsys.readouterr().err
    assert main([*train_command(tmp_path / "run"), "--exact", "--total-steps", str(STEPS // 4)]) == 0
    assert "stepped by gymnasium" in capsys.readouterr().out


def test_exact_refuses_an_environment_whose_state_no_snapshot_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shared_state.py").write_text(
        "import numpy\nfrom gymnasium.envs.classic_control import PendulumEnv\n"
        "class Gusty(PendulumEnv):\n"
        "    gusts = []\n"
        "    def step(self, action):\n"
        "        self.gusts.append(1)\n"
        "        return super().step(action + 0.01 * len(self.gusts))\n"
    )
    monkeypatch.chdir(tmp_path)
    command = [*train_command(tmp_path / "run"), "--env", "shared_state:Gusty", "--env-kwargs", "max_episode_steps=50"]
    assert main([*command, "--exact"]) == 2
    assert "shared_state:Gusty cannot be saved in mid-episode" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_best_is_the_default_of_evaluate_and_can_be_said(
    finished_run: FinishedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    for options in ([], ["--best"], ["--last"]):
        assert main(["evaluate", str(finished_run.folder), "--episodes", "1", *options]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]


# --- tracebacks -----------------------------------------------------------------------------------------------

WRONG = [
    lambda: minerva.train("ppo", "Pendulum-v1", gama=0.9),
    lambda: minerva.train("ppo", "NoSuchTask-v0"),
    lambda: minerva.evaluate("nowhere"),
    lambda: minerva.load_policy("nowhere"),
    lambda: minerva.PPOTrainer("NoSuchTask-v0"),
]


@pytest.mark.parametrize("call", WRONG)
def test_an_error_ends_where_the_library_was_called(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MinervaError) as short:
        call()
    assert len(short.traceback) <= 3  # the test, the call, and the line that raises
    assert short.value.__cause__ is None
    monkeypatch.setenv("MINERVA_TRACEBACK", "1")
    with pytest.raises(MinervaError) as whole:
        call()
    assert len(whole.traceback) > 3
    assert str(whole.value) == str(short.value)
