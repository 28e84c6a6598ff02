"""A run that is stopped goes on: what is restored, and what signals do to the process."""

import contextlib
import errno
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import (
    BATCH,
    PACED,
    PPO,
    SETTINGS,
    STEPS,
    as_if_on_a_gpu,
    evaluation_steps,
    learned,
    same,
    train_command,
    training_steps,
)

from minerva.cli.main import main
from minerva.policy import load_policy
from minerva.runs import files
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.run import Run
from minerva.runs.settings import RunSettings
from minerva.trainers.ppo.trainer import PPOTrainer


def make_trainer(seed: int = 0, **changed: Any) -> PPOTrainer:
    return PPOTrainer("Pendulum-v1", seed, "cpu", engine="gymnasium", **{**PPO, **changed})


# --- what is restored -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_weights_moments_normalisers_and_generator_are_restored_to_the_last_bit(optimizer: str, tmp_path: Path) -> None:
    stopped, fresh = make_trainer(optimizer_type=optimizer), make_trainer(optimizer_type=optimizer)
    stopped.train(STEPS, tmp_path, **SETTINGS, callbacks=[lambda step, *_: step >= 2 * BATCH])
    assert not same(fresh.state_dict(), stopped.state_dict())
    with Run(fresh, STEPS, tmp_path, RunSettings(**SETTINGS)) as run:
        assert run.step == 2 * BATCH
        assert same(fresh.state_dict(), stopped.state_dict())
    obs = torch.randn(4, 3).numpy()
    assert same(fresh.agent.sample(obs), stopped.agent.sample(obs))  # the next noise too
    moments, norm = fresh.state_dict()["agent"]["moments"], fresh.state_dict()["reward_norm"]
    assert moments["step"] > 0
    assert moments["first"].abs().sum() > 0
    assert norm["count"] == 2 * BATCH
    assert fresh.agent.network.obs_normalizer.count == 2 * BATCH


def test_a_stopped_run_goes_on_and_finishes(tmp_path: Path) -> None:
    first = make_trainer().train(STEPS, tmp_path, **SETTINGS, callbacks=[lambda *_: True])
    assert (first.finished, first.step) == (False, BATCH)
    second = make_trainer().train(STEPS, tmp_path, **SETTINGS)
    assert (second.finished, second.step, second.before, second.random) == (True, STEPS, first.before, first.random)
    assert training_steps(tmp_path) == list(range(BATCH, STEPS + 1, BATCH))


def test_a_run_with_checkpoints_of_the_old_name_goes_on_under_it(tmp_path: Path) -> None:
    make_trainer().train(STEPS, tmp_path, **SETTINGS, callbacks=[lambda step, *_: step >= 2 * BATCH])
    for path in list((tmp_path / "checkpoints").iterdir()):
        path.rename(path.with_suffix(".pt"))
    assert load_policy(tmp_path, "last").about["step"] == 2 * BATCH
    assert make_trainer().train(STEPS, tmp_path, **SETTINGS).finished
    assert training_steps(tmp_path) == list(range(BATCH, STEPS + 1, BATCH))
    assert {path.suffix for path in (tmp_path / "checkpoints").iterdir()} == {".pt"}
    assert load_policy(tmp_path, "last").about["step"] == STEPS


def test_two_runs_resumed_at_the_same_step_are_the_same_run(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_trainer().train(STEPS, tmp_path / name, **SETTINGS, callbacks=[lambda *_: True])
        make_trainer().train(STEPS, tmp_path / name, **SETTINGS)
    assert same(learned(tmp_path / "one"), learned(tmp_path / "two"))


def test_a_run_that_a_gpu_began_goes_on_without_one_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_trainer().train(STEPS, tmp_path, **SETTINGS, callbacks=[lambda step, *_: step >= 2 * BATCH])
    before = load_checkpoint(tmp_path / "checkpoints" / "ppo_last.safetensors").state["trainer"]["agent"]["network"]
    as_if_on_a_gpu(tmp_path)
    fresh = make_trainer()
    with Run(fresh, STEPS, tmp_path, RunSettings(**{**SETTINGS, "quiet": False})) as run:
        assert run.step == 2 * BATCH
        assert same(fresh.state_dict()["agent"]["network"], before)
    assert "but not bit for bit as the uninterrupted run: gpu: NVIDIA H200 -> none." in capsys.readouterr().out
    assert make_trainer().train(STEPS, tmp_path, **SETTINGS).finished


# --- signals --------------------------------------------------------------------------------------------------


def start(command: list[str], pace: float) -> subprocess.Popen[str]:
    """The command in a process of its own, each environment step as long as `pace`."""
    environment = {
        **os.environ,
        "PACE": str(pace),
        "PYTHONPATH": str(Path(__file__).parents[1] / "support"),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "minerva", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def interrupted(command: list[str], folder: Path, number: signal.Signals) -> tuple[int, str, int]:
    """Start, send the signal once two more rows are written; exit code, output, rows from signal to exit."""
    process = start(command, pace=0.02)
    try:
        known = len(training_steps(folder)) if (folder / "metrics.jsonl").exists() else 0
        deadline = time.monotonic() + 600
        while not (folder / "metrics.jsonl").exists() or len(training_steps(folder)) < known + 2:
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        before = len(training_steps(folder))
        out, err = process.communicate(timeout=600)
    finally:
        process.kill()
    assert "Traceback" not in err
    return process.returncode, out, len(training_steps(folder)) - before


def test_sigint_and_sigterm_write_a_checkpoint_and_resume_finishes_without_gaps(tmp_path: Path) -> None:
    folder, batch, total = tmp_path / "run", 16, 800
    command = train_command(
        folder, env=PACED, total_steps=total, rollout_steps=8, minibatch_size=16, eval_every=320, eval_episodes=2
    )
    resume = ["train", "ppo", "--resume", str(folder), "--trust-env"]  # PACED names a module
    for arguments, number in ((command, signal.SIGINT), (resume, signal.SIGTERM)):
        code, out, rows = interrupted(arguments, folder, number)
        assert code == 128 + number
        assert rows <= 1
        assert f"  minerva train ppo --resume {folder} --env {PACED}\nrun: {folder}\n" in out
        assert (
            load_checkpoint(folder / "checkpoints" / "ppo_last.safetensors").about["step"] == training_steps(folder)[-1]
        )
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main(resume) == 0
    assert f"resuming {folder} from step " in output.getvalue()
    assert training_steps(folder) == list(range(batch, total + 1, batch))
    assert evaluation_steps(folder) == [0, 320, 640, 800]


# --- failures, as the command line shows them -----------------------------------------------------------------


def test_a_run_that_diverges_exits_with_1_and_names_the_loss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    code = main(train_command(folder, policy_lr=1e38, max_grad_norm="inf", target_kl=0, eval_every=STEPS))
    assert code == 1
    err = capsys.readouterr().err
    assert err.startswith("error: losses/")
    assert "A lower learning rate" in err
    weights = load_checkpoint(folder / "checkpoints" / "ppo_last.safetensors").state["trainer"]["agent"]["network"]
    assert all(torch.isfinite(weight).all() for weight in weights.values())


def test_a_full_disk_exits_with_1_and_the_run_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, calls = tmp_path / "run", []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 25:  # some checkpoints are written; then the disk fills up
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        assert main(train_command(folder)) == 1
    assert "could not be written (No space left on device)" in capsys.readouterr().err
    assert [path.name for path in folder.rglob("*.tmp")] == []
    assert main(train_command(folder)) == 0
    assert training_steps(folder) == list(range(BATCH, STEPS + 1, BATCH))


def test_resume_knows_the_algorithm_and_goes_on_from_the_checkpoint_before_the_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_trainer().train(STEPS, tmp_path, **SETTINGS, callbacks=[lambda step, *_: step >= 2 * BATCH])
    (tmp_path / "checkpoints" / "ppo_last.safetensors").unlink()
    assert main(["train", "--resume", str(tmp_path)]) == 0
    assert f"resuming {tmp_path} from step {2 * BATCH}" in capsys.readouterr().out
    assert main(["train", "--resume", str(tmp_path)]) == 0
    assert "is a finished run: nothing to do" in capsys.readouterr().out
    config = tmp_path / "config.yaml"
    config.write_text(config.read_text().replace("algo: ppo", "algo: dqn"))
    assert main(["train", "--resume", str(tmp_path)]) == 2
    assert "is a run of 'dqn': give a run of " in capsys.readouterr().err
