"""ASHA in a real search of Ray Tune's: trials that cannot learn are ended early, the best one is not."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import yaml
from tiny_runs import LAYERS, PAYING, SIZES

from minerva.cli.main import _parse
from minerva.lab.benchmark.files import is_locked
from minerva.lab.cluster.tuning import Best, Search, preset_file
from minerva.presets import preset_for

pytest.importorskip("ray")
pytest.importorskip("optuna")
pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[2] / "support"
SEED, TRIALS, STEPS, EVALUATIONS = 1003, 3, 1024, 8
"""With this seed Optuna proposes the rate that learns before one that does not."""
LEARNS, STANDS_STILL = 0.01, 1e-9


class Trial(NamedTuple):
    """What a trial's own folder says."""

    rate: float
    step: int
    mean: float
    folder: Path


def trial(folder: Path) -> Trial:
    rate = yaml.safe_load((folder / "config.yaml").read_text())["hyperparameters"]["policy_lr"]
    last = json.loads((folder / "eval" / "evaluations.jsonl").read_text().splitlines()[-1])
    return Trial(rate, last["step"], float(np.mean(last["returns"])), folder)


def search(folder: Path) -> Path:
    """The folder of a search, one trial after the other, between a rate that learns and one that moves no weight."""
    settings = {**SIZES, **{name: list(widths) for name, widths in LAYERS.items()}}
    base = Search("ppo", PAYING, (SEED,), STEPS, "none", (), 1, 1, folder)
    (folder / "base.toml").write_text(preset_file(base, Best(settings, 0.0, 0, 0), {}, "small, for a test"))
    options = f"--env {PAYING} --preset {folder}/base.toml --engine gymnasium --total-steps {STEPS} --jobs 1"
    effort = f"--trials {TRIALS} --evaluations {EVALUATIONS} --seeds {SEED}:{SEED + 1} --out {folder}/out"
    command = [sys.executable, "-m", "minerva", "tune", "ppo", *options.split(), *effort.split()]
    # a trial takes so long that one which is ended early cannot have come to its end meanwhile
    environment = {**os.environ, "PYTHONPATH": f"{SUPPORT}{os.pathsep}{SUPPORT.parents[1]}", "PACE": "0.02"}
    command += ["--search", f"policy_lr={STANDS_STILL},{LEARNS}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out"


def test_trials_that_fall_behind_are_ended_early_and_the_best_becomes_a_preset(tmp_path: Path) -> None:
    searched = search(tmp_path)
    trials = [trial(folder) for folder in searched.glob(f"trials/*/seed{SEED}")]
    assert len(trials) == TRIALS
    whole, ended = ([each for each in trials if (each.step == STEPS) is wanted] for wanted in (True, False))
    best = max(trials, key=lambda each: each.mean)
    assert best in whole
    assert best.rate == LEARNS
    assert ended
    assert {each.rate for each in ended} == {STANDS_STILL}
    assert all(each.step <= STEPS // 2 for each in ended)
    assert not any(is_locked(each.folder) for each in trials)  # what was ended no longer trains

    file = str(searched / "ppo.toml")
    found = _parse(["train", "ppo", "--env", PAYING, "--preset", file]).hyperparameters.to_dict()
    assert found["policy_lr"] == best.rate
    assert f"{best.mean:,.1f} over 1 seeds" in preset_for("ppo", PAYING, file).sources["policy_lr"]
