"""Real grids of tiny runs: their files, failures, kills, seeds trained together."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import LAYERS, SIZES, STEPS, as_if_on_a_gpu, learned, same, train_command

import minerva
from minerva.cli.main import main
from minerva.lab.benchmark.measure import Measure

SUPPORT = Path(__file__).parents[2] / "support"
COMMITTED = SUPPORT.parents[1] / "benchmarks" / "results" / "vmpo" / "HalfCheetah-v5_seed0.json"
HYPERPARAMETERS = "\n".join(f"{name} = {json.dumps(value)}" for name, value in {**SIZES, **LAYERS}.items())


def grid_file(folder: Path, seeds: int, total_steps: int = STEPS, more: str = "", env: str = "Pendulum-v1") -> Path:
    file = folder / "grid.toml"
    head = f"total_steps = {total_steps}\nseeds = {seeds}\nepisodes = 3\nevaluations = 4\nenvs = ['{env}']\n"
    file.write_text(f"{head}[entries.ppo]\n{HYPERPARAMETERS}\n{more}")
    return file


def command(folder: Path, *options: str) -> list[str]:
    return ["benchmark", str(folder / "grid.toml"), "--out", str(folder / "out"), "--engine", "gymnasium", *options]


def result(folder: Path, name: str) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((folder / "out" / "results" / "ppo" / f"{name}.json").read_text())
    return kept


def processes_of(folder: Path) -> list[int]:
    """Every process whose command line names the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(folder).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue  # it has just ended
    return found


def wait_until(condition: Any, what: str, limit: float = 600.0) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


BROKEN = f'[entries.ppo-broken]\nalgo = "ppo"\n{HYPERPARAMETERS}\npolicy_lr = 1e30\nmax_grad_norm = 1e30\n'


@pytest.mark.slow
def test_a_grid_is_trained_and_kept_with_the_command_of_each_run_and_what_fails_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid_file(tmp_path, seeds=1, more=BROKEN)
    assert main(command(tmp_path)) == 1
    said = capsys.readouterr().out
    kept, run = result(tmp_path, "Pendulum-v1_seed0"), tmp_path / "out" / "ppo" / "Pendulum-v1" / "seed0"
    assert kept.keys() >= json.loads(COMMITTED.read_text()).keys()
    assert kept["returns"] == minerva.evaluate(run, which="last", episodes=3).returns
    assert [row["step"] for row in kept["curve"]] == [0, 128, 256, 384, 512]
    assert (kept["steps"], kept["seed"], kept["label"], kept["engine"]) == (STEPS, 0, "", "gymnasium")
    assert "failed: ppo-broken on Pendulum-v1, seed 0: losses/" in said
    assert f"(log: {tmp_path}/out/ppo-broken/Pendulum-v1/train_seeds_0.log)" in said
    assert "1 of 2 done, 1 failed" in said

    words = kept["command"].split()
    assert main([*words[1:], "--run-dir", str(tmp_path / "again")]) == 0
    assert same(learned(tmp_path / "again"), learned(run))

    assert main(command(tmp_path, "--status")) == 0
    assert "1 of 2 done, 1 failed" in capsys.readouterr().out
    before = run.stat().st_mtime_ns, (tmp_path / "out/results/ppo/Pendulum-v1_seed0.json").stat().st_mtime_ns
    assert main(command(tmp_path, "--algos", "ppo")) == 0  # there is nothing to do
    assert before == (run.stat().st_mtime_ns, (tmp_path / "out/results/ppo/Pendulum-v1_seed0.json").stat().st_mtime_ns)

    (tmp_path / "out/results/ppo/Pendulum-v1_seed0.json").unlink()
    capsys.readouterr()
    assert main(command(tmp_path, "--status")) == 0
    assert "0 of 2 done, 1 failed, 1 to be measured" in capsys.readouterr().out


BEGAN = "--device cuda --engine gymnasium --matmul highest"


def test_what_a_gpu_began_is_measured_without_one(tmp_path: Path) -> None:
    run, file = tmp_path / "run", tmp_path / "result.json"
    assert main(train_command(run, engine="gymnasium")) == 0
    measure = Measure(run, file, label="", preset="auto", changed="{}", command="minerva train ppo", episodes=2)
    as_if_on_a_gpu(run, checkpoint=False)
    measure.write()
    kept = json.loads(file.read_text())
    assert (kept["device"], kept["command"]) == ("NVIDIA H200, then cpu", f"minerva train ppo {BEGAN}")
    as_if_on_a_gpu(run, config=False)
    measure.write()
    assert json.loads(file.read_text())["device"] == "NVIDIA H200"


@pytest.mark.slow
def test_seeds_trained_together_give_the_results_of_seeds_alone(tmp_path: Path) -> None:
    grid_file(tmp_path, seeds=2)
    assert main(command(tmp_path, "--together", "always")) == 0
    assert main([*command(tmp_path, "--together", "never"), "--out", str(tmp_path / "apart" / "out")]) == 0
    for seed in (0, 1):
        stacked, alone = (result(folder, f"Pendulum-v1_seed{seed}") for folder in (tmp_path, tmp_path / "apart"))
        assert stacked.keys() == alone.keys()
        assert (stacked["seeds_trained_together"], alone["seeds_trained_together"]) == (2, 1)
        assert stacked["command"] == alone["command"]
        assert stacked["returns"] == pytest.approx(alone["returns"], rel=1e-3)
        assert stacked["returns"] != result(tmp_path, f"Pendulum-v1_seed{1 - seed}")["returns"]


@pytest.mark.slow
def test_a_grid_that_is_killed_leaves_no_process_and_goes_on_exactly(tmp_path: Path) -> None:
    paced = "tiny_runs:Paced-v0"
    grid_file(tmp_path, seeds=1, env=paced)
    environment = {**os.environ, "PYTHONPATH": f"{SUPPORT}{os.pathsep}{SUPPORT.parents[1]}", "PACE": "0.02"}
    words = [sys.executable, "-m", "minerva", *command(tmp_path, "--together", "never", "--jobs", "1", "--trust-env")]
    metrics = tmp_path / "out" / "ppo" / "tiny_runs-Paced-v0" / "seed0" / "metrics.jsonl"

    def rows() -> int:
        return metrics.read_text().count("charts/SPS") if metrics.exists() else 0

    for number, code in ((signal.SIGKILL, -9), (signal.SIGTERM, 143)):
        so_far = rows()
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
        wait_until(lambda: rows() > so_far or process.poll() is not None, "the run goes on")  # noqa: B023  called at once
        process.send_signal(number)
        assert process.wait(600) == code
        wait_until(lambda: not processes_of(tmp_path), "no process is left", 60.0)
    assert rows() < 4
    assert subprocess.run(words, env={**environment, "PACE": "0"}, stdout=subprocess.DEVNULL).returncode == 0
    assert main(train_command(tmp_path / "undisturbed", env=paced, engine="gymnasium")) == 0
    assert same(learned(tmp_path / "undisturbed"), learned(metrics.parent))


def test_time_that_is_up_stops_runs_where_they_can_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid_file(tmp_path, seeds=1, total_steps=100_000_000)
    assert main(command(tmp_path, "--within", "1s")) == 3  # it would take hours
    assert "0 of 1 done, 1 " in capsys.readouterr().out
    assert processes_of(tmp_path) == []
