"""A real search: stopped, gone on with, and its result trained with."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import LAYERS, PACED, SIZES, STEPS

from minerva.cli.main import _parse
from minerva.lab.cluster.tuning import Best, Search, preset_file

pytest.importorskip("ray")
pytest.importorskip("optuna")
pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[2] / "support"
SEEDS, TRIALS = (1000, 1001), 2


def final_mean(trial: Path) -> tuple[int, float]:
    """Step and mean return over seeds of a trial's last evaluation, as its runs wrote it."""
    last = [json.loads((trial / f"seed{s}/eval/evaluations.jsonl").read_text().splitlines()[-1]) for s in SEEDS]
    return last[0]["step"], float(np.mean([row["returns"] for row in last]))


def test_a_search_that_is_stopped_goes_on_and_its_best_is_a_preset(tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings = {**SIZES, **{name: list(widths) for name, widths in LAYERS.items()}}
    base = Search("ppo", PACED, SEEDS, STEPS, "none", (), 1, 1, out)
    (tmp_path / "base.toml").write_text(preset_file(base, Best(settings, 0.0, 0, 0), {}, "small, for a test"))
    options = f"--env {PACED} --preset {tmp_path}/base.toml --engine gymnasium --total-steps {STEPS} --evaluations 4"
    searched = ["--search", "policy_lr=1e-4:1e-2", "gamma", "update_epochs=1,2"]
    command = [sys.executable, "-m", "minerva", "tune", "ppo", *options.split(), "--trials", str(TRIALS), "--jobs", "1"]
    command += ["--seeds", "1000:1002", *searched]
    environment = {**os.environ, "PYTHONPATH": f"{SUPPORT}{os.pathsep}{SUPPORT.parents[1]}", "PACE": "0.005"}
    with subprocess.Popen([*command, "--out", str(out)], env=environment, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 600
        while not list(out.glob("trials/*/seed1001/metrics.jsonl")) and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 143
    assert list(out.glob("trials/*/seed1001/metrics.jsonl"))
    done = subprocess.run([*command, "--out", str(out)], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr

    file = out / "ppo.toml"
    assert done.stdout.splitlines()[-1] == f"next: minerva train ppo --env {PACED} --preset {file}"
    ends = {trial.name: final_mean(trial) for trial in (out / "trials").iterdir() if trial.is_dir()}
    assert len(ends) == TRIALS
    furthest = max(step for step, _ in ends.values())
    best = max(mean for step, mean in ends.values() if step == furthest)
    found = _parse(["train", "ppo", "--env", PACED, "--preset", str(file)]).hyperparameters.to_dict()
    assert (
        f"{best:,.1f} over 2 seeds from 1000 after {furthest:,} steps"
        in tomllib.loads(file.read_text())["sources"]["source_1"]
    )
    assert 1e-4 <= found["policy_lr"] <= 1e-2
    assert found["update_epochs"] in (1, 2)
    assert found["gamma"] != 0.99
