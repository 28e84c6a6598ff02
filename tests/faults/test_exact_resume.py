"""A run that was stopped, however often, ends as the one that was not; and whatever its state lacked would show."""

import functools
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_tasks import TASKS, differing, outcome

from minerva.envs.engines.host import HostEngine
from minerva.runs.store import CheckpointStore, LoadedCheckpoint, SavedRows
from minerva.trainers.registry import trainer_class


def train(algo: str, folder: Path, env: Any = None, **settings: Any) -> Any:
    """Train in a trainer of its own, as a new process of the command line would."""
    task = TASKS[algo]
    trainer = trainer_class(algo)(env or task.env, 0, "cpu", **task.hyperparameters)
    watched = {"eval_every": task.eval_every, "eval_episodes": 2, "quiet": True, "compile": "off"}
    return trainer.run(task.steps, out_dir=folder, **{**watched, **settings})


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """The outcome of an algorithm's run that is left alone."""

    @functools.cache
    def run(algo: str) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("reference") / algo
        assert train(algo, folder).finished
        return outcome(folder, algo)

    return run


@pytest.fixture(params=list(TASKS))
def reference(request: pytest.FixtureRequest, references: Any) -> tuple[str, dict[str, Any]]:
    """An algorithm and its outcome."""
    return request.param, references(request.param)


def signal_at_env_step(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """SIGTERM in the midst of environment step `at`, training's and evaluation's counted together."""
    recv, count = HostEngine.recv, iter(range(10**9))

    def signal_and_recv(self: HostEngine) -> Any:
        if next(count) == at:
            signal.raise_signal(signal.SIGTERM)
        return recv(self)

    monkeypatch.setattr(HostEngine, "recv", signal_and_recv)


def test_stopped_at_every_report(reference: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    algo, expected = reference
    while not train(algo, tmp_path, callbacks=[lambda *_: True]).finished:
        pass
    assert differing(outcome(tmp_path, algo), expected) == []


def test_a_signal_anywhere(
    reference: tuple[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    algo, expected = reference
    stops = 0
    for at in (0, 37, 100, 20, 150, 61, 10**9):  # in evaluations and amid rollouts
        with monkeypatch.context() as patch:
            signal_at_env_step(patch, at)
            stops += not train(algo, tmp_path).finished
    assert stops >= 4
    assert differing(outcome(tmp_path, algo), expected) == []


# --- with one part left out, a difference is seen -----------------------------------------------------------------

HALFWAY = {"ppo": 330, "vmpo": 330, "mpo": 330, "sac": 330}
PARTS = {
    "ppo": "trainer/agent/network trainer/agent/moments trainer/agent/generator trainer/reward_norm trainer/rollout "
    "trainer/envs/simulators trainer/envs/obs trainer/envs/returns trainer/envs/lengths trainer/episodes "
    "trainer/horizon",
    "vmpo": "trainer/agent trainer/horizon trainer/envs/simulators trainer/rollout trainer/health",
    "mpo": "trainer/agent/policy trainer/agent/q trainer/agent/policy_target trainer/agent/q_target "
    "trainer/agent/duals trainer/agent/moments trainer/agent/counters trainer/agent/generator trainer/envs/simulators "
    "trainer/envs/obs trainer/episodes trainer/replay/generator trainer/health trainer/exploration rows",
    "sac": "trainer/agent/policy trainer/agent/q trainer/agent/q_target trainer/agent/log_temperature "
    "trainer/agent/moments trainer/agent/generator trainer/replay/generator rows",
}


@pytest.fixture(scope="module")
def halfway(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Path], None]:
    """Copies of a run that was stopped amid a rollout, or amid what becomes one report, after episodes ended in it."""
    folders: dict[str, Path] = {}

    def copied(algo: str, target: Path) -> None:
        if algo not in folders:
            folders[algo] = tmp_path_factory.mktemp("halfway") / algo
            with pytest.MonkeyPatch.context() as patch:
                signal_at_env_step(patch, HALFWAY[algo])
                assert not train(algo, folders[algo]).finished
        shutil.copytree(folders[algo], target)

    return copied


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "part"), [(algo, part) for algo, parts in PARTS.items() for part in parts.split()])
def test_every_part_of_the_state_counts(
    algo: str, part: str, halfway: Any, references: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halfway(algo, tmp_path / "run")
    task = TASKS[algo]
    fresh = trainer_class(algo)(task.env, 1, "cpu", **task.hyperparameters)
    fresh.start(0)
    newest = CheckpointStore.newest

    def incomplete(self: CheckpointStore, step: int | None = None) -> LoadedCheckpoint:
        found = newest(self, step)
        mine, other = found.checkpoint.state, {"trainer": fresh.state_dict(), "generators": 0}
        if part == "rows":
            return found._replace(rows=SavedRows([], dict))
        *path, name = part.split("/")
        for key in path:
            mine, other = mine[key], other[key]
        mine[name] = other[name]
        return found

    monkeypatch.setattr(CheckpointStore, "newest", incomplete)
    train(algo, tmp_path / "run")
    monkeypatch.undo()
    assert differing(outcome(tmp_path / "run", algo), references(algo)) != []
