"""The job script for Slurm, run with commands that stand in for Slurm's: Ray is really started by it."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tiny_runs import LAYERS, SIZES

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

ALONE = True
"""`ray symmetric-run` refuses a machine that has a Ray, and in the end stops whichever it finds."""

REPOSITORY = Path(__file__).parents[3]
SCONTROL = '#!/bin/sh\n[ "$1 $2 $3" = "show hostnames first,second" ] && printf "127.0.0.1\\nsecond\\n"\n'
SRUN = """#!/bin/bash
stat -c %a "$RAY_AUTH_TOKEN_PATH" > "$SEEN.mode"
while [[ "$1" == --* ]]; do echo "$1" >> "$SEEN"; shift; done
exec "$@"
"""


def test_the_job_script_starts_ray_and_runs_the_grid(tmp_path: Path) -> None:
    for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    hyperparameters = "\n".join(f"{name} = {json.dumps(value)}" for name, value in {**SIZES, **LAYERS}.items())
    head = "total_steps = 256\nseeds = 1\nepisodes = 2\nevaluations = 1\nenvs = ['Pendulum-v1']\n"
    (tmp_path / "grid.toml").write_text(f"{head}[entries.ppo]\n{hyperparameters}\n")
    slurm = {"SLURM_JOB_NODELIST": "first,second", "SLURM_JOB_ID": "4711", "SLURM_JOB_NUM_NODES": "1"}
    environment = {**os.environ, **slurm, "SLURM_CPUS_PER_TASK": "2", "SEEN": str(tmp_path / "seen")}
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_MODE"):
        del environment[name]  # the script brings its own
    environment |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
    command = [str(REPOSITORY / "benchmarks" / "slurm.sh"), str(tmp_path / "grid.toml"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 done" in done.stdout
    assert (tmp_path / "seen").read_text().split() == ["--nodes=1", "--ntasks=1", "--ntasks-per-node=1"]
    assert (tmp_path / "out" / "results" / "ppo" / "Pendulum-v1_seed0.json").is_file()
    assert (tmp_path / "seen.mode").read_text() == "600\n"  # nobody else can read the secret
    assert list(tmp_path.glob(".ray_token*")) == []
