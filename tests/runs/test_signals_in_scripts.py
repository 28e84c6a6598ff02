"""A script whose training a signal stops is told so: the checkpoint is written, and what follows is not reached."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_runs import training_steps

from minerva.runs.checkpoint import load_checkpoint

SUPPORT = Path(__file__).parents[1] / "support"
NAMES = {signal.SIGINT: "KeyboardInterrupt", signal.SIGTERM: "TerminatedError"}

SETUP = """
import sys
from pathlib import Path
import minerva
from minerva.errors import TerminatedError
from tiny_runs import PACED, PPO
folder = Path(sys.argv[1])
options = dict(total_steps=4000, preset="none", engine="gymnasium", **{**PPO, "rollout_steps": 8, "minibatch_size": 16})
settings = dict(eval_every=4000, eval_episodes=1, quiet=True)
"""

ONE = 'minerva.train("ppo", PACED, run_dir=folder / "seed0", settings=settings, **options)'
SEEDS = 'minerva.train_seeds("ppo", PACED, [0, 1], run_dir=folder, settings=settings, **options)'

RANKS = """
from minerva import PPOTrainer
from minerva.compute.ranks import init_from_torchrun
ranks = init_from_torchrun("cpu")
total, sizes = options.pop("total_steps"), {name: options[name] for name in options if name != "preset"}
(folder / f"pid{ranks.rank}").write_text(str(__import__("os").getpid()))
try:
    PPOTrainer(PACED, ranks=ranks, **sizes).train(total, folder / "seed0", **settings)
except (KeyboardInterrupt, TerminatedError) as stop:
    (folder / f"rank{ranks.rank}").write_text(type(stop).__name__)
ranks.shutdown()
"""


def started(folder: Path, script: str, *words: str) -> subprocess.Popen[str]:
    """The script, as soon as its runs have reported."""
    (folder / "script.py").write_text(SETUP + script)
    paths = f"{SUPPORT}{os.pathsep}{SUPPORT.parents[1]}"
    environment = {**os.environ, "PYTHONPATH": paths, "PACE": "0.005", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, *words, str(folder / "script.py"), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    deadline, metrics = time.monotonic() + 600, folder / "seed0" / "metrics.jsonl"
    while not metrics.exists() or not training_steps(metrics.parent):
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


def assert_saved_where_it_stopped(run: Path) -> None:
    about = load_checkpoint(run / "checkpoints" / "ppo_last.safetensors").about
    assert about["step"] == training_steps(run)[-1]
    assert not about["finished"]


@pytest.mark.parametrize("number", NAMES)
@pytest.mark.parametrize(
    "train", [pytest.param(ONE, id="a run"), pytest.param(SEEDS, id="a population", marks=pytest.mark.slow)]
)
def test_a_script_that_does_not_expect_it_ends_there_by_the_signal(
    train: str, number: signal.Signals, tmp_path: Path
) -> None:
    attempt = f"try:\n    {train}\nexcept Exception:\n    print('took it for a failure')\nprint('went on')"
    process = started(tmp_path, attempt)
    process.send_signal(number)
    out, _ = process.communicate(timeout=600)
    assert out == ""
    assert process.returncode in (-number, 128 + number)  # a shell counts both the same
    for run in tmp_path.glob("seed*"):
        assert_saved_where_it_stopped(run)


@pytest.mark.parametrize("number", NAMES)
def test_a_script_that_catches_it_learns_where_the_run_is(number: signal.Signals, tmp_path: Path) -> None:
    caught = f"except {NAMES[number]} as stop:\n    print(stop)"
    process = started(tmp_path, f"try:\n    {ONE}\n{caught}")
    process.send_signal(number)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, err) == (0, "")
    assert out.startswith(f"{tmp_path / 'seed0'} is stopped at step {training_steps(tmp_path / 'seed0')[-1]:,}")


@pytest.mark.slow
def test_every_data_parallel_rank_is_told(tmp_path: Path) -> None:
    process = started(tmp_path, RANKS, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    os.kill(int((tmp_path / "pid0").read_text()), signal.SIGTERM)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["TerminatedError"] * 2
    assert_saved_where_it_stopped(tmp_path / "seed0")
