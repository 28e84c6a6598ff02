"""The verbs of the command line: what they print, and what they leave behind."""

import contextlib
import dataclasses
import io
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_runs import (
    BATCH,
    EPISODES,
    STEPS,
    FinishedRun,
    evaluation_steps,
    learned,
    rows_without_clock,
    same,
    snapshot,
    train_command,
    training_steps,
)

from minerva.cli.main import main
from minerva.cli.summary import print_summary
from minerva.cli.train import RunOptions
from minerva.loop.stacking import Stack
from minerva.presets import presets
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.output import make_console
from minerva.runs.settings import Result
from minerva.runs.terminal import TerminalView
from minerva.trainers.registry import ALGORITHMS, config_class

# --- train ----------------------------------------------------------------------------------------------------


def test_training_ends_with_the_result_and_as_last_line_the_folder(finished_run: FinishedRun) -> None:
    lines = finished_run.output.splitlines()
    assert lines[-1] == f"run: {finished_run.folder}"
    assert any(line.startswith("after training") for line in lines)
    assert f"  minerva evaluate {finished_run.folder} --episodes 100" in lines
    assert "\x1b" not in finished_run.output
    assert (finished_run.folder / "learning_curve.png").stat().st_size > 0


def test_steps_that_are_too_few_for_another_rollout_are_told_of(
    finished_run: FinishedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    for budget in (512, 600):
        result = Result(finished_run.folder, finished=True, step=512, random=0.0, before=0.0, after=0.0, best=0.0)
        print_summary(make_console(), "ppo", RunOptions(total_steps=budget), result)
        told = "512 steps: the rest of 600 is too short for another rollout" in capsys.readouterr().out
        assert told is (budget == 600)


def test_every_setting_is_printed_before_training(finished_run: FinishedRun) -> None:
    printed = " ".join(finished_run.output.split())
    for name, value in (
        load_checkpoint(finished_run.folder / "checkpoints/ppo_last.safetensors").about["hyperparameters"].items()
    ):
        assert f"{name}={'x'.join(map(str, value)) if isinstance(value, list) else value}" in printed


def test_what_the_task_decides_is_printed_before_training(finished_run: FinishedRun) -> None:
    printed = finished_run.output.splitlines()
    first = printed.index("derived from the task:") + 1
    rules = [line.split(":")[0] for line in printed[first:] if line.startswith("  ")]
    assert rules[:4] == ["  initial_log_std", "  normalize_rewards", "  gamma", "  gae_lambda"]
    assert printed[first].startswith("  initial_log_std: -0.5, -max(1, log D) / 2 for D = 1, because")
    assert printed[first + 1].startswith("  normalize_rewards: rewards divided by the standard deviation")


def test_progress_is_plain_lines_where_there_is_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(TerminalView, "seconds_between_lines", 0.0)
    assert main(train_command(tmp_path / "run")) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "steps/s" in line]
    pattern = r" *(\d+) %   +(\d+) of 512   [\d,]+ steps/s   .*evaluated -[\d,.]+   \d+:\d\d left"
    shown = [re.fullmatch(pattern, line) for line in lines]
    assert [(int(m[2]), int(m[1])) for m in shown if m] == [(128, 25), (256, 50), (384, 75), (512, 100)]


@pytest.mark.parametrize("how", ["the same options", "its config.yaml", "its folder as config"])
def test_a_run_is_reproduced_to_the_last_bit(how: str, finished_run: FinishedRun, tmp_path: Path) -> None:
    folder = tmp_path / "again"
    command = {
        "the same options": train_command(folder),
        "its config.yaml": ["train", "ppo", "--config", f"{finished_run.folder}/config.yaml", "--run-dir", str(folder)],
        "its folder as config": ["train", "ppo", "--config", str(finished_run.folder), "--run-dir", str(folder)],
    }[how]
    assert main(command) == 0
    assert same(learned(folder), learned(finished_run.folder))
    assert rows_without_clock(folder) == rows_without_clock(finished_run.folder)


def test_another_seed_is_another_run(finished_run: FinishedRun, tmp_path: Path) -> None:
    assert main(train_command(tmp_path / "run", seed=1)) == 0
    assert not same(learned(tmp_path / "run"), learned(finished_run.folder))


def test_evaluating_more_often_changes_no_weight(finished_run: FinishedRun, tmp_path: Path) -> None:
    assert main(train_command(tmp_path / "run", eval_every=10 * STEPS, eval_episodes=1)) == 0
    assert evaluation_steps(tmp_path / "run") == [0, STEPS]
    assert evaluation_steps(finished_run.folder) == [0, 128, 256, 384, 512]
    assert same(learned(tmp_path / "run"), learned(finished_run.folder))


def test_a_run_starts_from_the_policy_it_is_given(finished_run: FinishedRun, tmp_path: Path) -> None:
    best = load_checkpoint(finished_run.folder / "checkpoints" / "ppo_best.safetensors")
    assert main(train_command(tmp_path / "run", init_from=finished_run.folder)) == 0
    before = load_checkpoint(tmp_path / "run" / "checkpoints" / "ppo_last.safetensors").state["returns"]["before"]
    assert before == best.about["return"]


def test_a_preset_fills_what_the_user_did_not_set(tmp_path: Path) -> None:
    tuned = presets("ppo")["Pendulum-v1"].values
    default = config_class("ppo")()
    assert tuned["gamma"] not in (default.gamma, 0.5)  # type: ignore[attr-defined]

    def saved(name: str, *options: str) -> float | None:
        assert main([*train_command(tmp_path / name, total_steps=BATCH, eval_episodes=1), *options]) == 0
        gamma: float | None = yaml.safe_load((tmp_path / name / "config.yaml").read_text())["hyperparameters"]["gamma"]
        return gamma

    assert saved("preset", "--preset", "auto") == tuned["gamma"]
    assert saved("option", "--preset", "auto", "--gamma", "0.5") == 0.5
    assert saved("default") == default.gamma  # type: ignore[attr-defined]


def test_a_new_folder_is_named_after_algorithm_environment_and_seed(tmp_path: Path) -> None:
    command = [word for word in train_command(tmp_path / "unused", seed=3) if word != "--run-dir"]
    command.remove(str(tmp_path / "unused"))
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main([*command, "--out-dir", str(tmp_path / "out")]) == 0
    (folder,) = (tmp_path / "out").iterdir()
    assert re.fullmatch(r"ppo_Pendulum-v1_seed3_\d{8}-\d{6}-[0-9a-f]{8}", folder.name)
    assert output.getvalue().splitlines()[-1] == f"run: {folder}"


# --- going on -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["--resume", "--run-dir"])
def test_a_finished_run_says_so_and_no_file_changes(
    how: str, finished_run: FinishedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(finished_run.folder)
    folder = finished_run.folder
    command = train_command(folder) if how == "--run-dir" else ["train", "ppo", "--resume", str(folder)]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert f"{folder} is a finished run: nothing to do." in out
    assert out.splitlines()[-1] == f"run: {folder}"
    assert snapshot(folder) == before


def test_the_same_run_dir_command_repeated_finishes_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    learn = Stack.learn

    def learn_and_be_stopped(self: Stack, *arguments: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return learn(self, *arguments)

    monkeypatch.setattr(Stack, "learn", learn_and_be_stopped)
    folder = tmp_path / "[a] folder"  # with characters that a shell and rich would read otherwise
    codes = [main(train_command(folder)) for _ in range(6)]
    assert codes == [143, 143, 143, 143, 0, 0]  # four updates, the end, and nothing more to do
    out = capsys.readouterr().out
    assert f"  minerva train ppo --resume '{folder}'\nrun: {folder}\n" in out
    assert training_steps(folder) == list(range(BATCH, STEPS + 1, BATCH))
    assert evaluation_steps(folder) == list(range(0, STEPS + 1, BATCH))


# --- evaluate and presets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["best", "last"])
def test_evaluate_finds_again_what_the_run_recorded(
    which: str, finished_run: FinishedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = load_checkpoint(finished_run.folder / "checkpoints" / f"ppo_{which}.safetensors").about["return"]
    options = ["--last"] if which == "last" else []
    assert main(["evaluate", str(finished_run.folder), "--episodes", str(EPISODES), *options]) == 0
    out = capsys.readouterr().out
    assert f"{which} policy of {finished_run.folder}" in out
    assert f"mean {recorded:,.1f} " in out
    assert re.search(r"IQM -[\d,.]+  95 % confidence interval \[-[\d,.]+, -[\d,.]+\]", out)


def test_presets_lists_every_preset_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    introduction, _, table = capsys.readouterr().out.partition("preset  ")
    assert "--env ENV uses the defaults of ALGO" in introduction
    listed = {tuple(line.split()) for line in table.splitlines()[1:]}
    names = {name for algo in ALGORITHMS for name in presets(algo)}
    assert listed == {(name, *(algo if name in presets(algo) else "-" for algo in ALGORITHMS)) for name in names}


def test_presets_shows_each_number_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "Pendulum-v1", "--algo", "ppo"]) == 0
    shown = capsys.readouterr().out
    preset = presets("ppo")["Pendulum-v1"]
    changes = preset.changes(config_class("ppo")())
    assert "policy_lr" in changes
    for name, value in changes.items():
        assert re.search(
            rf"^{name} +{re.escape(str(value))} +{re.escape(preset.sources[name].split()[0])}", shown, re.M
        )


# --- help -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_help_explains_every_option_of_every_algorithm_and_its_default(
    algo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", algo, "--help"]) == 0
    shown = " ".join(re.sub(r"[|│]", " ", capsys.readouterr().out).split())
    for field in (*dataclasses.fields(RunOptions), *dataclasses.fields(config_class(algo))):
        option = field.name.replace("_", "-")
        explained = re.search(rf" --{option}(?:, --no-{option}| [^a-z]\S*)* (.*?) \(default: [^)]+\)", shown)
        assert explained, option
        assert len(explained[1].split()) >= 1, option
        assert " --" not in explained[1], option  # that would be the next option's text


@pytest.mark.parametrize(
    "verb", [[], ["train"], ["train", "ppo"], ["evaluate"], ["report"], ["presets"], ["benchmark"], ["tune"]]
)
def test_help_of_every_verb_exits_with_0(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb, "--help"]) == 0
    assert "usage: minerva" in capsys.readouterr().out
