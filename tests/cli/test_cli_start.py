"""What takes seconds to import is imported by what needs it alone.

Seconds depend on the machine; the modules that a process has imported do not.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from minerva.trainers.registry import ALGORITHMS

VECTORS = Path(__file__).parents[1] / "vectors" / "format_2"

VERBS = ["", "train", *(f"train {algo}" for algo in ALGORITHMS)]
VERBS += ["evaluate", "video", "benchmark", "tune", "report", "presets", "export", "push", "docs"]
READ = [*(f"{verb} --help".split() for verb in VERBS), ["--version"], ["presets"], ["--tyro-print-completion", "bash"]]

READING = f"""
import sys
from minerva.cli.main import main
print([command for command in {READ} if main(command) != 0])
print(sorted({{"torch", "gymnasium", "numpy", "mujoco", "matplotlib"}} & sys.modules.keys()))
"""

ACTING = """
import sys
import torch
of_torch = set(sys.modules)
import minerva
policy = minerva.load_policy(sys.argv[1])
print(len(policy.act([0.1] * policy.observation.size)) == policy.action.size)
large = {"torch._dynamo", "torch._inductor", "sympy", "gymnasium", "mujoco", "matplotlib", "huggingface_hub"}
large |= {"tyro", "rich", "tensorboard", "onnx", "PIL", "scipy", "pandas", "minerva.api", "minerva.loop.trainer"}
print(sorted(large & (sys.modules.keys() - of_torch)))
"""


def last_lines(program: str, *arguments: str) -> list[str]:
    """The last two lines that a program prints."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-2:]


def test_help_presets_version_and_completion_import_nothing_large() -> None:
    assert last_lines(READING) == ["[]", "[]"]


@pytest.mark.parametrize("algo", ["ppo", "mpo", "vmpo"])
def test_a_policy_acts_without_compiler_and_simulator(algo: str) -> None:
    assert last_lines(ACTING, str(VECTORS / f"{algo}.pt")) == ["True", "[]"]
