"""The fuzzer itself: it finds every way in which a reader can misbehave, and gives the same inputs again."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import fuzzing
import pytest
from fuzzing import Reader, fuzz, mutations
from mutation import mutated_bytes

from minerva.errors import TrainingError

CORPUS = [b"a good one", b"a bad one"]


def reader(read: Callable[[Path], Any]) -> Reader:
    return Reader("probe", "file", [read], [lambda content, source: mutated_bytes(content, CORPUS, source)])


def refuse(folder: Path, text: str) -> None:
    if b"bad" in (folder / "file").read_bytes():
        raise TrainingError(text)


def loop(folder: Path) -> None:
    while True:
        pass


MISBEHAVING = {
    "a traceback": (lambda folder: [][1], "IndexError"),
    "several lines": (lambda folder: refuse(folder, "one\ntwo"), "several lines"),
    "writing": (lambda folder: (folder / "other").write_text("x"), "it did"),
    "removing": (lambda folder: (folder / "file").unlink(), "it did"),
    "a process": (lambda folder: subprocess.run(["true"], check=True), "it did"),
    "no end": (loop, r"it took (more than )?[\d.]+ s"),
    "memory": (lambda folder: None, "MiB"),
}


@pytest.mark.parametrize("name", MISBEHAVING)
def test_a_reader_that_misbehaves_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, problem = MISBEHAVING[name]
    monkeypatch.setattr(fuzzing, "FOUND", tmp_path / "found")
    monkeypatch.setattr(fuzzing, "MOST_SECONDS", 0.5)
    if name == "memory":  # it is the process's largest so far, which an earlier test may have set
        monkeypatch.setattr(fuzzing, "_peak_memory", iter(range(0, 10**12, 1 << 30)).__next__)
    with pytest.raises(AssertionError, match=problem):
        fuzz(reader(read), CORPUS, tmp_path, seconds=1.0)
    kept = [path.read_bytes() for path in (tmp_path / "found").iterdir()]
    assert len(kept) == 1
    assert kept[0] in CORPUS


def test_a_module_that_an_input_imports_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "FOUND", tmp_path / "found")
    monkeypatch.syspath_prepend(tmp_path)
    modules = [f"theirs_{number}" for number in range(2 * len(CORPUS) + 1)]
    for name in modules:
        (tmp_path / f"{name}.py").touch()
    left = iter(modules)
    with pytest.raises(AssertionError, match="it imported"):
        fuzz(reader(lambda folder: importlib.import_module(next(left))), CORPUS, tmp_path, seconds=1.0)
    for name in modules:
        sys.modules.pop(name, None)


def test_inputs_are_the_same_again_and_those_of_another_seed_are_not() -> None:
    def inputs(seed: int) -> list[bytes]:
        return list(islice(mutations(reader(lambda folder: None), CORPUS, seed), 200))

    assert inputs(0) == inputs(0)
    assert inputs(0) != inputs(1)


def test_a_reader_is_given_the_corpus_and_then_the_mutations(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def read(folder: Path) -> None:
        seen.append((folder / "file").read_bytes())
        refuse(folder, "It is bad: give another.")

    count = fuzz(reader(read), CORPUS, tmp_path, seconds=0.05, seed=3)
    expected = [*CORPUS, *islice(mutations(reader(read), CORPUS, 3), count - len(CORPUS))]
    assert seen == [*CORPUS, *expected]  # the corpus once more, before anything is observed
