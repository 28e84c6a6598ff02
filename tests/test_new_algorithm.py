"""A new algorithm is a folder and a line in the registry: PPO under another name, in a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
LINE = '("other", "Other", "O-PPO", "Another Proximal Policy Optimisation"),\n'
OPTIONS = "--num-envs 2 --rollout-steps 64 --minibatch-size 64 --update-epochs 1 --policy-layer-sizes 8 --compile off"

PROGRAM = f"""
import minerva
from minerva.cli.main import main

assert {{"OtherConfig", "OtherAgent", "OtherTrainer"}} < set(minerva.__all__)
watched = "--total-steps 256 --eval-every 128 --eval-episodes 1 --run-dir run"
assert main(["train", "other", "--env", "Pendulum-v1", *watched.split(), *{OPTIONS.split()!r}]) == 0
assert main(["presets", "--algo", "other"]) == 0
assert main(["report", "run", "--out", "report.html"]) == 0
assert isinstance(minerva.load_policy("run").agent, minerva.OtherAgent)
"""


def test_a_folder_and_a_line_are_enough(tmp_path: Path) -> None:
    package = tmp_path / "minerva"
    shutil.copytree(REPOSITORY / "minerva", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(package / "trainers" / "ppo", package / "trainers" / "other")
    for path in (package / "trainers" / "other").glob("*.py"):
        renamed = re.sub(r"PPO(?=Config|Agent|Trainer)", "Other", path.read_text())
        path.write_text(renamed.replace("trainers.ppo", "trainers.other").replace('algo = "ppo"', 'algo = "other"'))
    registry = package / "trainers" / "registry.py"
    registry.write_text(registry.read_text().replace('        ("ppo",', f'        {LINE}        ("ppo",'))

    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    report = (tmp_path / "report.html").read_text()
    for shown in ("O-PPO", "Approximate KL", "losses/clipfrac", "Explained variance"):
        assert shown in report
