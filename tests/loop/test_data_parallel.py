"""Two processes that learn as one: their update is that of one process on the joined batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from parallel_cases import CASES, COMPILED, PROCESSES, SHORTEST, Result, results
from parallel_runs import TRAINERS, train
from torch.testing import assert_close

from minerva import PPOConfig
from minerva.compute.ranks import SINGLE
from minerva.compute.tree import leaves
from minerva.errors import ConfigError
from minerva.runs.checkpoint import Checkpoint, check_structure, load_checkpoint

SUPPORT = Path(__file__).parents[1] / "support"


def torchrun(*arguments: str, processes: int = PROCESSES) -> subprocess.CompletedProcess[str]:
    """A program in processes of its own, started as a user would."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    paths = {"PYTHONPATH": os.pathsep.join([str(SUPPORT.parents[1]), str(SUPPORT)]), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *arguments], env={**os.environ, **paths}, capture_output=True, text=True, timeout=1800, check=False
    )


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Result]]:
    """What came of all cases, in each of two processes."""
    folder = tmp_path_factory.mktemp("together")
    done = torchrun(str(SUPPORT / "parallel_cases.py"), str(folder))
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"{rank}.pt") for rank in range(PROCESSES)]


@pytest.fixture(scope="module")
def alone() -> dict[str, Result]:
    """What came of them in one process, on the joined batches."""
    return results(SINGLE)


@pytest.mark.parametrize("case", CASES)
def test_two_processes_learn_what_one_learns_from_the_joined_batch(
    case: str, together: list[dict[str, Result]], alone: dict[str, Result]
) -> None:
    for found in together:
        for mine, expected in zip(found[case]["state"], alone[case]["state"], strict=True):
            assert_close(mine, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_all_processes_hold_the_same_bits(case: str, together: list[dict[str, Result]]) -> None:
    first, second = (found[case]["state"] for found in together)
    assert all(torch.equal(mine, other) for mine, other in zip(first, second, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_metrics_are_those_of_the_joined_batch(
    case: str, together: list[dict[str, Result]], alone: dict[str, Result]
) -> None:
    for found in together:
        for mine, expected in zip(found[case]["metrics"], alone[case]["metrics"], strict=True):
            assert_close(mine, expected, rtol=1e-8, atol=1e-8, equal_nan=True)


@pytest.mark.slow  # two updates are compiled, in each process
@pytest.mark.compiles
def test_compiled_updates_meet_the_other_process_as_plain_ones_do(tmp_path: Path) -> None:
    alone = results(SINGLE, SHORTEST)
    done = torchrun(str(SUPPORT / "parallel_cases.py"), str(tmp_path), "compiled")
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(PROCESSES))
    assert min(first["graphs"], second["graphs"]) >= len(COMPILED)
    for case in COMPILED:
        assert all(map(torch.equal, first[case]["state"], second[case]["state"]))
        for mine, expected in zip(first[case]["state"], alone[case]["state"], strict=True):
            assert_close(mine, expected, rtol=1e-9, atol=1e-9)
        for mine, expected in zip(first[case]["metrics"], alone[case]["metrics"], strict=True):
            assert_close(mine, expected, rtol=1e-8, atol=1e-8, equal_nan=True)


# --- whole runs -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `parallel_runs` made in two processes."""
    folder = tmp_path_factory.mktemp("runs")
    done = torchrun(str(SUPPORT / "parallel_runs.py"), str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def state_of(folder: Path) -> Checkpoint:
    (path,) = folder.glob("checkpoints/*_last.safetensors")
    return load_checkpoint(path)


@pytest.mark.slow
@pytest.mark.parametrize("algo", TRAINERS)
def test_a_run_that_was_stopped_goes_on_bit_for_bit_in_all_processes(algo: str, runs: Path) -> None:
    whole, parts = (state_of(runs / algo / name).state["trainer"] for name in ("whole", "parts"))
    check_structure(whole["agent"], parts["agent"])
    assert all(map(torch.equal, leaves(whole["agent"]), leaves(parts["agent"])))
    assert torch.equal(whole["envs"]["obs"], parts["envs"]["obs"])  # of the environments of both processes
    assert len(whole["envs"]["simulators"]) == TRAINERS[algo][2]["num_envs"]


@pytest.mark.slow
def test_the_run_of_two_processes_is_the_run_of_one(runs: Path, tmp_path: Path) -> None:
    train("vmpo", tmp_path / "one", SINGLE)
    one, two = (state_of(folder).state["trainer"] for folder in (tmp_path / "one", runs / "vmpo" / "whole"))
    assert_close(two["agent"], one["agent"], rtol=1e-3, atol=1e-4)
    assert_close(two["envs"]["obs"], one["envs"]["obs"], rtol=1e-3, atol=1e-3)
    assert_close(two["reward_norm"]["running"], one["reward_norm"]["running"], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("algo", TRAINERS)
def test_a_run_of_two_processes_goes_on_in_one(algo: str, runs: Path) -> None:
    assert train(algo, runs / algo / "stopped", SINGLE).finished
    one, two = (state_of(runs / algo / name).state["trainer"]["agent"] for name in ("stopped", "whole"))
    if algo == "vmpo":  # the others draw minibatches within each process
        assert_close(one, two, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_the_command_line_learns_in_the_processes_of_torchrun(tmp_path: Path) -> None:
    small = ["--env", "Pendulum-v1", "--preset", "none", "--eval-episodes", "1", "--total-steps", "64"]
    rollouts = ["--num-envs", "2", "--rollout-steps", "32", "--minibatch-size", "32"]
    done = torchrun("-m", "minerva", "train", "ppo", *small, *rollouts, "--run-dir", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("run: ") == 1  # the first process speaks for both
    assert state_of(tmp_path / "run").about["versions"]["processes"] == PROCESSES


def test_what_cannot_be_shared_equally_is_refused() -> None:
    with pytest.raises(ConfigError, match="minibatch_size is 50, and 4 processes"):
        PPOConfig(num_envs=8, minibatch_size=50).share(4)
    assert PPOConfig(num_envs=8, minibatch_size=64).share(4).minibatch_size == 16


# --- one process alone ------------------------------------------------------------------------------------------------


def test_a_process_that_is_alone_adds_nothing_to_what_it_computes() -> None:
    rows, flag = torch.ones(4, 2), torch.tensor(True)
    assert all(
        made is rows
        for made in (
            SINGLE.mean(rows),
            SINGLE.all_gathered(rows),
            SINGLE.local_shard(rows),
            SINGLE.scaled_local_shard(rows),
        )
    )
    assert SINGLE.all(flag) is flag
    assert SINGLE.means(rows, flag)[1] is flag
    assert SINGLE.each(rows) == [(rows,)]
