"""Every command in every guide is run.

The rule: the ```bash blocks of a page are run in their order, in one new folder a page, as they are written but for
- budgets: to `minerva train`, `evaluate`, `benchmark`, `video` and `export` the options in SMALL are appended, which
  make them short (the last of two equal options counts), and a GPU becomes a CPU; what a shortened grid measures is
  another experiment than the committed results beside it, and lies in a folder of its own;
- names: `runs/<folder>`, and run folders that a page only assumes, are a small finished run.
A command that is not Minerva's, or needs the whole checkout, stands in ELSEWHERE with what runs it instead. A `toml`
block is the file that its first line names. Commands in blocks without a language are found and refused.
"""

import contextlib
import glob
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rays import room_for_ray
from tiny_runs import FinishedRun

from minerva.cli.main import _parse, main
from minerva.lab.export.folder import EXAMPLE_SOURCE
from minerva.version import __version__

REPOSITORY = Path(__file__).parents[2]
GUIDES = sorted((REPOSITORY / "docs" / "guides").glob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)

TRAIN = "--eval-episodes 1 --eval-every 1000000 --compile off --device cpu --engine gymnasium"
SMALL = {
    "train ppo": f"{TRAIN} --total-steps 128 --num-envs 2 --rollout-steps 64 --minibatch-size 64",
    "train vmpo": f"{TRAIN} --total-steps 128 --num-envs 2 --rollout-steps 64",
    "train mpo": f"{TRAIN} --total-steps 64 --update-after 32 --batch-size 8 --replay-size 1000",
    "evaluate": "--episodes 1 --engine gymnasium",
    "benchmark": "--seeds 1 --total-steps 4096 --episodes 1 --evaluations 1 --device cpu",
    "video": "--seconds 0.2",
    "export": "--episodes 1 --no-video",
    "report": "",
    "presets": "",
}

ELSEWHERE = {
    "git clone <this repository> minerva && cd minerva": "a checkout is what the tests run in",
    'pip install -e ".[warp]"': "the Makefile",
    "minerva train ppo --env beam:Beam --engine warp --device cuda": "tests/envs/test_warp.py",
    "make train": "make test-slow trains with the built wheel",
    "python3 -m venv .venv && . .venv/bin/activate": "the Makefile",
    'pip install torch==2.13.0 -c constraints.txt -e ".[dm-control]"': "the Makefile",
    "uv venv && . .venv/bin/activate": "the same with uv",
    'uv pip install torch==2.13.0 -c constraints.txt -e ".[dm-control]"': "the same with uv",
    "make release": "tests/test_release.py",
    'pip install "dist/minerva-0.1.0-py3-none-any.whl[dm-control,hub]"': "make wheel-test",
    'uv pip install "dist/minerva-0.1.0-py3-none-any.whl[dm-control,hub]"': "the same with uv",
    "python -m mathdoc init PACKAGE": "packages/mathdoc/tests/test_mathdoc_start.py",
    "python -m mathdoc check PACKAGE": "packages/mathdoc/tests/test_mathdoc_foreign.py",
    "python -m mathdoc explain FILE:LINE": "packages/mathdoc/tests/test_mathdoc_start.py",
    "python -m mathdoc build PACKAGE OUT": "packages/mathdoc/tests/test_mathdoc_pages.py",
    "minerva docs results": "tests/docs/test_results_page.py",
    "minerva train mpo --env dm_control/cheetah/run/pixels --replay-size 100000 --device cuda": "envs/test_pixels.py",
    "minerva push runs/<folder> you/pendulum --private": "tests/lab/export/test_hub.py",
    (
        "minerva benchmark benchmarks/grids/mpo_ablation.toml --device cuda --matmul high --within 20m"
    ): "tests/lab/benchmark/test_grids.py reads it",
    (
        "minerva benchmark benchmarks/grids/suite_*.toml --device cuda --matmul high --within 20m"
    ): "benchmark.md's, without a GPU",
    "minerva benchmark benchmarks/grids/gym_3m.toml --executor ray": "tests/lab/cluster/test_ray_grid.py",
    "minerva benchmark benchmarks/grids/gym_3m.toml --executor ray --address 10.0.0.5:6379": "the same",
    "sbatch --nodes=4 --cpus-per-task=32 benchmarks/slurm.sh benchmarks/grids/gym_3m.toml": "test_slurm.py there",
    (
        "torchrun --nproc-per-node 4 -m minerva train vmpo --env Humanoid-v5 --num-envs 64 --device cuda"
    ): "tests/loop/test_data_parallel.py",
    (
        "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint node0:29500 "
        "-m minerva train ppo --device cuda ..."
    ): "tests/loop/test_data_parallel.py",
    "minerva train mpo --env Humanoid-v5 --num-envs 64 --actors 16 --address 10.0.0.5:6379": "tests/lab/cluster",
    "minerva tune ppo --env Hopper-v5 --total-steps 300000 --trials 40": "tests/lab/cluster/test_ray_tune.py",
    "minerva tune vmpo --env Hopper-v5 --search policy_lr epsilon_mu=0.005:0.1 num_envs=16,32,64": "the same",
}
"""Of these, Minerva's own are parsed at least."""

TUNED = 'algo = "ppo"\n[sources]\nsearch = "a search"\n["Hopper-v5"]\npolicy_lr = [3e-4, "search"]\n'
"""A preset such as `minerva tune` writes."""


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in BLOCK.findall(page.read_text()) if language in languages]


def commands(page: Path) -> list[str]:
    lines = [line for text in blocks(page, "bash") for line in text.splitlines()]
    return [bare for line in lines if (bare := re.sub(r"\s+#.*", "", line).strip())]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_no_command_hides_from_being_run(page: Path) -> None:
    for text in blocks(page, ""):
        assert not re.search(r"^(\$ )?(minerva|make|pip|python3?) ", text, re.M), "mark the block as bash"


def small(command: str) -> list[str]:
    """The words after `minerva`, shortened by the rule."""
    given = shlex.split(command)[1:]
    words = [found for word in given for found in sorted(glob.glob(word)) or [word]]  # as a shell does
    if "--resume" in words:
        extended = ["--total-steps", "1024"] if "--total-steps" in words else []
        return [*words, *extended]  # with the run's own settings
    verb = " ".join(words[:2]) if words[0] == "train" else words[0]
    appended = shlex.split(SMALL[verb])
    if verb == "benchmark" and words[1].endswith(".toml"):
        appended += [] if "lambda.toml" in words else ["--envs", "Hopper-v5", "--algos", "ppo"]
        appended += [] if "--results" in words else ["--results", "shortened"]
    elif verb == "benchmark":
        appended += ["--envs", "Pendulum-v1"]
    if "--actors" in words:
        appended += ["--actors", "2"]
    return [*words, *appended]


def furnish(folder: Path, page: Path, run: FinishedRun) -> None:
    """What a page takes for granted: a run, the grids, results, and the files that it shows."""
    text = page.read_text()
    shutil.copytree(REPOSITORY / "benchmarks" / "grids", folder / "benchmarks" / "grids")
    results = folder / "benchmarks" / "results" / "ppo"
    results.mkdir(parents=True)
    for path in (REPOSITORY / "benchmarks" / "results" / "ppo").glob("Hopper-v5_seed*.json"):
        shutil.copy(path, results)
    shutil.copytree(run.folder, folder / "runs" / "given")
    for name in re.findall(r"runs/(\w+_\w[\w.-]*_seed\d+_[\d-]+)", text):
        shutil.copytree(run.folder, folder / "runs" / name)
    if "minerva report benchmark" in text:
        shutil.copytree(run.folder, folder / "benchmark" / "ppo" / "Pendulum-v1" / "seed0")
    (folder / "tune").mkdir()
    (folder / "tune" / "ppo.toml").write_text(TUNED)
    for block in blocks(page, "toml"):
        name = block.splitlines()[0].removeprefix("# ")
        if not (folder / name).exists():
            (folder / name).write_text(block)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in GUIDES if commands(page)], ids=lambda page: page.stem)
def test_every_command_of_a_guide_works(
    page: Path, finished_run: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnish(tmp_path, page, finished_run)
    monkeypatch.chdir(tmp_path)
    starts_ray = any("--actors" in command for command in commands(page))
    with room_for_ray() if starts_ray else contextlib.nullcontext():
        for command in commands(page):
            if command in ELSEWHERE:
                assert not command.startswith("minerva ") or _parse(shlex.split(command)[1:]) is not None
                continue
            assert command.startswith("minerva "), f"say in ELSEWHERE what runs: {command}"
            command, _, redirected = command.partition(" > ")
            words = small(command.replace("runs/<folder>", "runs/given"))
            assert main(words) in ((0, 3) if "--within" in words else (0,)), shlex.join(words)
            assert not redirected or redirected == "table.tex"


@pytest.mark.slow
def test_the_environment_of_twenty_lines_learns(tmp_path: Path) -> None:
    (script, *_) = blocks(REPOSITORY / "docs" / "guides" / "your-environment.md", "python")
    assert len([line for line in script.splitlines() if line.strip()]) <= 20
    path = tmp_path / "reach.py"
    path.write_text(script)
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "reach" / "checkpoints" / "ppo_last.safetensors").is_file()


def test_the_front_page_installs_as_the_guide_does() -> None:
    front = re.search(r"^```\n(python3 -m venv.*?)^```$", (REPOSITORY / "README.md").read_text(), re.M | re.S)
    assert front is not None
    shown = [re.sub(r"\s+#.*", "", line) for line in front[1].splitlines()]
    assert "\n".join(shown) in "\n".join(blocks(REPOSITORY / "docs" / "guides" / "install.md", "bash"))
    assert f"minerva-{__version__}-py3" in (REPOSITORY / "docs" / "guides" / "install.md").read_text()


def test_a_checkpoint_is_looked_into_as_the_guide_shows(
    finished_run: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (script, *_) = (
        text for text in blocks(REPOSITORY / "docs" / "guides" / "first-run.md", "python") if "safe_" in text
    )
    shutil.copytree(finished_run.folder, tmp_path / "runs" / "<folder>")
    monkeypatch.chdir(tmp_path)
    exec(script, {})
    shown = capsys.readouterr().out
    assert shown.startswith("ppo Pendulum-v1 ")
    assert "'trainer/agent/network" in shown


def test_the_example_in_the_guide_is_the_one_that_is_exported() -> None:
    (shown, *_) = blocks(REPOSITORY / "docs" / "guides" / "export.md", "python")
    assert EXAMPLE_SOURCE.read_text().endswith(shown)
