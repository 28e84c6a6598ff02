"""Training matters more than its display: it goes on where the output is closed, full or knows ASCII alone."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import BATCH, PPO, SETTINGS, STEPS, FinishedRun, train_command, training_steps

from minerva.cli.main import main
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.output import make_console
from minerva.trainers.ppo.trainer import PPOTrainer


def shell(line: str, folder: Path, **environment: str) -> tuple[int, str, str]:
    """Exit status, output and errors of a line of bash, in which `train` trains a small run into the folder."""
    train = " ".join([sys.executable, "-m", "minerva", *train_command(folder)])
    done = subprocess.run(
        ["bash", "-c", f'set -o pipefail; train() {{ {train} "$@"; }}; {line}'],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def assert_finished(folder: Path) -> None:
    assert load_checkpoint(folder / "checkpoints" / "ppo_last.safetensors").about["finished"]
    assert training_steps(folder) == list(range(BATCH, STEPS + 1, BATCH))


def test_a_reader_that_leaves_does_not_end_the_run_and_is_reported_once(tmp_path: Path) -> None:
    code, out, err = shell("train | true", tmp_path / "run")
    assert (code, out) == (0, "")
    assert " ".join(err.split()) == "WARNING stdout cannot be written to (Broken pipe): going on without it."
    assert_finished(tmp_path / "run")


def test_when_both_outputs_are_read_by_one_who_leaves_the_run_goes_on(tmp_path: Path) -> None:
    assert shell("train 2>&1 | head -2 >&2", tmp_path / "run")[0] == 0
    assert_finished(tmp_path / "run")


@pytest.mark.parametrize("closed", [">&-", "2>&- > /dev/full"])
def test_a_closed_or_full_output_does_not_change_the_exit_status(closed: str, tmp_path: Path) -> None:
    code, _, err = shell(f"train {closed}", tmp_path / "run")
    assert code == 0
    assert "Traceback" not in err
    assert_finished(tmp_path / "run")


def test_what_ascii_lacks_is_spelled_otherwise(tmp_path: Path) -> None:
    code, out, err = shell("train --seeds 0:2", tmp_path, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (code, err) == (0, "")
    assert "mean +/- standard deviation over seeds" in out
    assert f"run: {tmp_path / 'seed1'}" in out


@pytest.mark.parametrize(
    ("command", "status"),
    [("presets", 0), ("report {run} --markdown", 0), ("--help", 0), ("train --help", 0), ("presets --nonsense", 2)],
)
def test_a_reader_that_leaves_ends_no_command_with_an_error(
    command: str, status: int, finished_run: FinishedRun
) -> None:
    line = f"{sys.executable} -m minerva {command.format(run=finished_run.folder)}"
    assert shell(f"{line} 2>&1 | true", finished_run.folder)[0] == status
    if not status:
        code, _, err = shell(f"{line} | true", finished_run.folder)
        assert code == 0
        assert " ".join(err.split()) in ("", "WARNING stdout cannot be written to (Broken pipe): going on without it.")


class Broken(io.StringIO):
    """A stream that can take nothing any more, in several ways."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error, self.calls = error, 0

    def write(self, text: str) -> int:
        self.calls += 1
        raise self.error


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), OSError(5, "I/O error"), ValueError("closed")])
def test_in_a_script_too_the_run_goes_on_and_the_stream_is_left_alone(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken(error)
    monkeypatch.setattr(sys, "stdout", broken)
    settings: dict[str, Any] = {**SETTINGS, "quiet": False}
    trainer = PPOTrainer("Pendulum-v1", engine="gymnasium", **PPO)
    assert not trainer.train(STEPS, tmp_path, **settings, callbacks=[lambda *_: True]).finished
    assert trainer.train(STEPS, tmp_path, **settings).finished  # says that it is resumed
    assert broken.calls == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"stdout cannot be written to ({getattr(error, 'strerror', None) or error}): going on without it."
    ]


def test_the_output_is_whatever_it_is_at_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    console = make_console()
    monkeypatch.setattr(sys, "stdout", None)
    console.print("lost")
    for encoding, expected in (("ascii", "+/- ? a"), ("latin-1", "± ? a"), ("utf-8", "± → a")):
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
        console.print("± → a")
        assert written.getvalue().decode(encoding) == f"{expected}\n"


def test_an_error_is_told_by_the_exit_status_alone_where_nothing_can_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", Broken(BrokenPipeError(32, "Broken pipe")))
    assert main(["evaluate", "/nowhere"]) == 2
