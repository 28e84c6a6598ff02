"""`minerva video` as it is typed, in a process of its own: MuJoCo chooses how it draws when it is imported."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import imageio_ffmpeg
import needs
import numpy as np
import pytest
from tiny_runs import PPO, SETTINGS, FinishedRun

import minerva
from minerva.cli.main import main


def film(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "MUJOCO_GL"}
    command = [sys.executable, "-m", "minerva", "video", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@needs.offscreen_rendering
@pytest.mark.parametrize("env", needs.all_but_first_slow(["HalfCheetah-v5", "dm_control/cheetah/run"]))
def test_simulated_bodies_are_filmed_without_a_screen(env: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    minerva.PPOTrainer(env, seed=0, engine="gymnasium", **PPO).train(
        128, folder, **{**SETTINGS, "eval_every": 1000, "eval_episodes": 1}
    )
    done = film(str(folder), "--seconds", "0.2", "--width", "720", "--height", "500")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    path = folder / "videos" / "best.mp4"
    assert done.stdout.splitlines()[-1] == f"video: {path}"
    reader = imageio_ffmpeg.read_frames(str(path))
    assert next(reader)["size"] == (720, 500)
    picture = np.frombuffer(next(reader), np.uint8)
    assert picture.std() > 10  # something is to be seen


def test_a_run_is_filmed_into_its_own_folder(finished_run: FinishedRun, capsys: pytest.CaptureFixture[str]) -> None:
    path = finished_run.folder / "videos" / "last.gif"
    try:
        assert main(["video", str(finished_run.folder), "--last", "--format", "gif", "--seconds", "0.3"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[-1] == f"video: {path}"
        assert lines[0].endswith(" in 9 steps")
        assert path.read_bytes().startswith(b"GIF89a")
    finally:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_its_status_and_leaves_no_half_file(
    number: signal.Signals, finished_run: FinishedRun, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "minerva", "video", str(finished_run.folder)]
    child = subprocess.Popen(
        [*command, "--episodes", "50", "--out", str(tmp_path / "a.mp4")], stdout=subprocess.PIPE, text=True
    )
    while not any(tmp_path.iterdir()) and child.poll() is None:  # until it is under way
        time.sleep(0.05)
    child.send_signal(number)
    out, _ = child.communicate(timeout=600)
    assert (child.returncode, out) == (128 + number, "stopped: no video was written.\n")
    assert list(tmp_path.iterdir()) == []
