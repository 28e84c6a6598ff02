"""Trained seeds to report on: tiny runs as a grid leaves them, and the results that are committed."""

import contextlib
import io
import shutil
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest

GRID = {
    "mpo": "mpo --num-envs 1 --update-after 64 --batch-size 32 --policy-layer-sizes 8 --critic-layer-sizes 8",
    "vmpo-squashed": "vmpo --num-envs 2 --rollout-steps 64 --policy-layer-sizes 8 --value-layer-sizes 8 --squash",
}
STEPS, EVALUATIONS = 384, 3

KEPT = (
    "ppo/HalfCheetah-v5",
    "ppo/Hopper-v5",
    "vmpo/HalfCheetah-v5",
    "vmpo/cheetah-run",
    "mpo/Pendulum-v1",
    "ablation/vmpo/HalfCheetah-v5_preset",
    "ablation/vmpo/HalfCheetah-v5_squashed",
    "ablation/vmpo/HalfCheetah-v5_estimator-dae",
)


@pytest.fixture(scope="session")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two entries, two seeds each, on Pendulum-v1; one run has a video. Tests leave it as it is."""
    from minerva.cli.main import main

    out = tmp_path_factory.mktemp("grid") / "out"
    for entry, algo in GRID.items():
        for seed in range(2):
            home = out / entry / "Pendulum-v1" / f"seed{seed}"
            watched = f"--total-steps {STEPS} --eval-every {STEPS // EVALUATIONS} --eval-episodes 2 --compile off"
            command = f"train {algo} --env Pendulum-v1 --preset auto --seed {seed} {watched} --run-dir {home}"
            with contextlib.redirect_stdout(io.StringIO()):
                assert main(command.split()) == 0
    frames = np.zeros((2, 8, 8, 3), dtype=np.uint8)
    imageio.imwrite(out / "mpo" / "Pendulum-v1" / "seed0" / "videos" / "best.gif", frames)
    return out


@pytest.fixture(scope="session")
def committed() -> Path:
    """All results that are committed; more will come."""
    return Path(__file__).parents[3] / "benchmarks" / "results"


@pytest.fixture(scope="session")
def results(committed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of them, which stay as they are."""
    home = tmp_path_factory.mktemp("results")
    for name in KEPT:
        for path in committed.glob(f"{name}_seed?.json"):
            kept = home / path.relative_to(committed)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, kept)
    return home
