"""The checkpoint store: rows are written once, the best holds none, one process wins, what is damaged is got around."""

import errno
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import Numbers

from minerva.data.fields import Field
from minerva.data.replay import Replay
from minerva.errors import CheckpointError, RunError, TrainingError
from minerva.runs import files
from minerva.runs import store as store_module
from minerva.runs.checkpoint import Checkpoint, load_checkpoint
from minerva.runs.files import locked
from minerva.runs.folder import RunFolder
from minerva.runs.store import CheckpointStore


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run", "mpo")
    folder.make()
    folder.create({})
    return folder


def checkpoint(step: int, weight: float = 1.0) -> Checkpoint:
    return Checkpoint({"step": step}, {"trainer": {"agent": {"weights": torch.full((3,), weight)}}, "step": step})


def saved(folder: RunFolder, *ends: int) -> CheckpointStore:
    """A store that saved when this many rows were written."""
    store, rows = CheckpointStore(folder), Numbers()
    for step, end in enumerate(ends):
        rows.written = end
        store.save(checkpoint(step), rows)
    return store


def segments(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in folder.last.parent.glob("*_replay_*"))


@pytest.mark.parametrize("ends", [(3,), (0, 7, 7, 12), (5, 19, 26, 40), (5, 60, 61), (30, 31, 32, 33, 60)], ids=str)
def test_the_newest_rows_come_back_whatever_the_saves(ends: tuple[int, ...], folder: RunFolder) -> None:
    saved(folder, *ends)
    found = CheckpointStore(folder).newest()
    rows = torch.cat([part["float32"] for _, part in found.rows]).flatten() if found.rows else torch.zeros(0)
    window = min(ends[-1], 20)
    assert torch.equal(rows[len(rows) - window :], torch.arange(float(ends[-1] - window), float(ends[-1])))
    assert [first for first, _ in found.rows] == sorted(first for first, _ in found.rows)


def test_every_row_is_written_once_and_removed_when_nobody_needs_it(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(
        files, "before", lambda operation, path: written.append(path.name) if operation == "rename" else None
    )
    saved(folder, 8, 16, 24, 32, 40, 40)
    names = [f"mpo_replay_{first}_{first + 8}.safetensors" for first in range(0, 40, 8)]
    assert [name for name in written if "replay" in name] == names
    assert segments(folder) == sorted(names[2:])  # rows 20 to 39 for the last, and the same for the one before it


def test_many_new_rows_are_written_in_pieces_and_come_back(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SEGMENT_BYTES", 3 * 4)  # three rows of one float32
    saved(folder, 7, 18)
    sizes = [path.stat().st_size for path in folder.last.parent.glob("*_replay_*")]
    assert segments(folder) == sorted(
        f"mpo_replay_{first}_{end}.safetensors"
        for first, end in ((0, 3), (3, 6), (6, 7), (7, 10), (10, 13), (13, 16), (16, 18))
    )
    assert max(sizes) - min(sizes) <= 16
    found = CheckpointStore(folder).newest()
    assert torch.equal(torch.cat([part["float32"] for _, part in found.rows]).flatten(), torch.arange(18.0))


MEASURED = """
import resource, sys
from pathlib import Path
import torch
from minerva.data.fields import Field
from minerva.data.replay import Replay
from minerva.runs.checkpoint import Checkpoint
from minerva.runs.folder import RunFolder
from minerva.runs.store import CheckpointStore

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # MB

fields = {"obs": Field((200,)), "rewards": Field(), "terminated": Field(), "truncated": Field()}
replay = Replay(300_000, 2, fields, torch.device("cpu"))  # 232 MB
store = CheckpointStore(RunFolder(Path(sys.argv[2]), "mpo"))
replay.state["storage"]["float32"].fill_(1.0)
before = peak()
if sys.argv[1] == "save":
    replay.written = replay.steps
    store.save(Checkpoint({}, {"step": 0}), replay)
else:
    replay.hold(replay.steps)
    replay.state["storage"]["float32"].fill_(0.0)
    store.newest().rows.put_into(replay, renumbered=False)
taken = peak() - before
assert bool((replay.state["storage"]["float32"] == 1.0).all())
print(taken)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is counted in kB on Linux")
def test_saving_and_loading_take_little_memory_beside_the_replay(folder: RunFolder) -> None:
    for action in ("save", "load"):
        command = [sys.executable, "-c", MEASURED, action, str(folder.path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) < 0.75 * 232, action


def no_links(*names: Any) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.parametrize("links", [True, False])
def test_the_best_is_kept_when_it_is_no_longer_the_last(
    links: bool, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:
        monkeypatch.setattr(files.os, "link", no_links)
    store = saved(folder, 8)
    assert not folder.best.exists()
    store.save(checkpoint(1), best=True)
    assert folder.best.samefile(folder.last) == links  # written once, where that can be had
    for step in (2, 3):
        store.save(checkpoint(step))
    steps = [load_checkpoint(path).about["step"] for path in (folder.best, folder.previous, folder.last)]
    assert steps == [1, 2, 3]


def test_one_of_both_checkpoints_can_be_asked_for_by_its_step(folder: RunFolder) -> None:
    saved(folder, 8, 16, 24)
    store = CheckpointStore(folder)
    assert store.steps() == {1, 2}
    assert [store.newest(step).path for step in (2, 1, None)] == [folder.last, folder.previous, folder.last]
    with pytest.raises(CheckpointError, match="no checkpoint of step 7"):
        store.newest(7)
    store.newest(1)
    store.save(checkpoint(9))  # what came after step 1 is forgotten
    assert store.steps() == {1, 9}
    folder.last.write_bytes(b"")
    assert store.steps() == {1}


def test_the_one_before_the_last_is_kept_and_never_replaced_by_a_damaged_one(folder: RunFolder) -> None:
    saved(folder, 8, 16)
    folder.last.write_bytes(b"")
    store = CheckpointStore(folder)
    assert store.newest().checkpoint.about["step"] == 0
    store.save(checkpoint(7))
    assert load_checkpoint(folder.last).about["step"] == 7
    assert load_checkpoint(folder.previous).about["step"] == 0


def test_a_run_killed_between_two_renames_has_a_last_checkpoint(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = saved(folder, 8, 16)

    def die(operation: str, path: Path) -> None:
        if operation == "rename" and path == folder.last:
            raise KeyboardInterrupt

    monkeypatch.setattr(files, "before", die)
    with pytest.raises(KeyboardInterrupt):
        store.save(checkpoint(2))
    assert CheckpointStore(folder).newest().checkpoint.about["step"] == 1


@pytest.mark.parametrize(("damaged", "left"), [("0_8", (8, 24)), ("8_16", (16, 24))])
def test_rows_that_both_checkpoints_need_are_gone_without_if_they_are_damaged(
    damaged: str, left: tuple[int, int], folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    saved(folder, 8, 16, 24)
    (folder.last.parent / f"mpo_replay_{damaged}.safetensors").write_bytes(b"")
    with caplog.at_level(logging.WARNING, "minerva"):
        found = CheckpointStore(folder).newest()
    assert f"mpo_replay_{damaged}.safetensors" in caplog.text
    assert found.rows_lost
    kept = torch.cat([part["float32"] for _, part in found.rows]).flatten()
    assert torch.equal(kept, torch.arange(*map(float, left)))
    replay = Replay(20, 1, {"reward": Field()}, torch.device("cpu"))
    replay.put = lambda first, rows: placed.append((first, len(rows["float32"])))  # type: ignore[method-assign]
    placed: list[tuple[int, int]] = []
    found.rows.put_into(replay, renumbered=True)
    assert replay.written == left[1] - left[0]
    assert placed == [(first, 8) for first in range(0, replay.written, 8)]


def test_damage_of_rows_that_only_the_last_needs_costs_one_checkpoint(folder: RunFolder) -> None:
    saved(folder, 8, 16, 24)
    (folder.last.parent / "mpo_replay_16_24.safetensors").write_bytes(b"")
    found = CheckpointStore(folder).newest()
    assert (found.path, found.rows_lost, found.checkpoint.about["step"]) == (folder.previous, False, 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_not_saved(value: float, folder: RunFolder) -> None:
    store = saved(folder, 8)
    with pytest.raises(TrainingError, match="weights of the agent is not finite"):
        store.save(checkpoint(1, value), best=True)
    assert not folder.best.exists()
    assert CheckpointStore(folder).newest().checkpoint.about["step"] == 0


def test_a_run_without_a_checkpoint_is_named(folder: RunFolder) -> None:
    assert not CheckpointStore(folder).exists()
    with pytest.raises(CheckpointError, match=r"mpo_last\.safetensors does not exist"):
        CheckpointStore(folder).newest()


def test_one_process_has_a_folder(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(RunError, match="Another process is training in"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        with locked(tmp_path):
            os.write(write, b"x")
            time.sleep(60)
            os._exit(0)
    assert os.read(read, 1) == b"x"
    try:
        with pytest.raises(RunError), locked(tmp_path):
            pass
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    with locked(tmp_path):
        pass


def test_a_link_in_a_runs_folder_is_refused(folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("as it was")
    folder.metrics.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=r"metrics\.jsonl is a link"):
        folder.existing_config()
