"""Malicious files: made to execute code, write elsewhere, exhaust memory, or pass wrong values as valid."""

import json
import os
import pickle
import random
import resource
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fault_runs import Case, Child, Outcome, dying_at, reference, train
from tiny_runs import snapshot

from minerva.cli.main import main
from minerva.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

Spoil = Callable[[Path], None]
"""Changes a run's folder; what it does must not show outside of it."""

MEMORY = 12 << 30
SECONDS = 60
"""Seconds of CPU time, not wall-clock time: the machine may be busy."""

CANARY = "canary"
"""A folder beside the run's; a file `marker` in it would say that code was run or a path left the folder."""


class Payload:
    """Object that creates a marker file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (open, (str(self.marker), "w"))


def tried(algo: str, spoil: Spoil, folder: Path, number: int, harmless: bool) -> str:
    """Spoil a copy of the algorithm's half-finished run and try to use it; nothing, or how that went wrong.

    Unless it may be `harmless`, going on with it has to be refused.
    """
    place = folder / f"hostile_{number}" / "run"
    shutil.copytree(folder / algo, place)
    canary = place.parent / CANARY
    canary.mkdir()
    (canary / "precious").write_text("as it was")
    spoil(place)
    before = snapshot(canary)
    commands = [
        ["train", algo, "--resume", str(place), "--trust-env"],
        ["evaluate", str(place), "--last", "--episodes", "1", "--trust-env"],
    ]
    problem = ""
    for command in commands:
        ended = Child(lambda command=command: _limited(command), place.parent / "log").wait()
        refused = ended.code in (1, 2) and "error:" in ended.text
        if not (refused or (ended.code == 0 and (harmless or command[0] == "evaluate"))) or "Traceback" in ended.text:
            problem = f"{command[0]}: exit code {ended.code}: {ended.text[-700:]}"
    if snapshot(canary) != before:
        problem = f"something was written outside: {list(snapshot(canary))}"
    shutil.rmtree(place.parent)
    return problem


def _limited(command: list[str]) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    return main(command)


# --- what is tried --------------------------------------------------------------------------------------------------


def hostile(folder: Path) -> Case:
    """Each kind in turn, again and again with other places and values."""
    kinds = [_pickles, _torch_saved, _archive, _headers, _json_bombs, _values, _values, _tensors, _rows, _links]
    kinds += [_configs, _snapshots, _unknown, _folders, _pipes]
    for algo in ("ppo", "mpo"):
        run = reference(algo, folder / f"reference_{algo}")
        train(algo, folder / algo, dying_at(len(run.operations) * 3 // 4)).wait()

    def case(number: int) -> Outcome:
        source = random.Random(f"hostile {number}")
        algo = source.choice(("ppo", "mpo"))
        kind = kinds[number % len(kinds)]
        name, spoil = kind(algo, source)
        harmless = kind in (_values, _unknown, _snapshots)  # what is replaced may not matter
        return Outcome(f"{name} ({algo})", tried(algo, spoil, folder, number, harmless))

    return case


def _checkpoint(place: Path, algo: str) -> Path:
    return place / "checkpoints" / f"{algo}_last.safetensors"


def _alone(place: Path, algo: str) -> Path:
    """The last checkpoint, with no other one to fall back to."""
    (place / "checkpoints" / f"{algo}_previous.safetensors").unlink(missing_ok=True)
    return _checkpoint(place, algo)


def _pickles(algo: str, source: random.Random) -> tuple[str, Spoil]:
    protocol = source.randrange(6)

    def spoil(place: Path) -> None:
        payload = Payload(place.parent / CANARY / "marker")
        _alone(place, algo).write_bytes(pickle.dumps(payload, min(protocol, pickle.HIGHEST_PROTOCOL)))

    return f"a pickle of protocol {protocol}", spoil


def _torch_saved(algo: str, source: random.Random) -> tuple[str, Spoil]:
    old = source.random() < 0.5

    def spoil(place: Path) -> None:
        payload = {"state": Payload(place.parent / CANARY / "marker")}
        torch.save(payload, _alone(place, algo), _use_new_zipfile_serialization=not old)

    return "a file of torch.save with code", spoil


def _archive(algo: str, source: random.Random) -> tuple[str, Spoil]:
    name = source.choice(("../../canary/marker", "../canary/marker", "/tmp/minerva_marker", "..\\canary\\marker"))

    def spoil(place: Path) -> None:
        with zipfile.ZipFile(_alone(place, algo), "w") as archive:
            archive.writestr(name, "x")

    return f"an archive that holds {name}", spoil


def _headers(algo: str, source: random.Random) -> tuple[str, Spoil]:
    length = source.choice((0, 1, 2**31, 2**40, 2**63, 2**64 - 1, 100_000_001, source.randrange(2**24)))
    filling = source.choice((b"{", b"[", b" ", b"\x00", b'{"a":'))

    def spoil(place: Path) -> None:
        _alone(place, algo).write_bytes(struct.pack("<Q", length) + filling * 100_000)

    return f"a header of {length} bytes of {filling!r}", spoil


def _json_bombs(algo: str, source: random.Random) -> tuple[str, Spoil]:
    depth = source.choice((1_000, 100_000, 1_000_000))
    opening = source.choice(("[", '{"a":'))

    def spoil(place: Path) -> None:
        text = opening * depth + "1" + {"[": "]", "{": "}"}[opening[0]] * depth
        header = json.dumps({"__metadata__": {"minerva": text, "sha256": "0"}}).encode()
        _alone(place, algo).write_bytes(struct.pack("<Q", len(header)) + header)

    return f"{depth} times {opening} in the text", spoil


ODD: list[Any] = [
    None,
    True,
    -1,
    2**70,
    1e308,
    float("nan"),
    "",
    "../../x",
    "x" * 1000,
    [],
    {},
    [[]],
    {"a": {}},
    [1, 2, 3],
]


def _values(algo: str, source: random.Random) -> tuple[str, Spoil]:
    """Any plain value of the checkpoint replaced by an odd one, the digest right."""
    value, lot = source.choice(ODD), source.random()

    def spoil(place: Path) -> None:
        path = _alone(place, algo)
        about, state = load_checkpoint(path)
        owner, key = _leaf([about, state], lot)
        owner[key] = value
        save_checkpoint(path, Checkpoint(about, state))

    return f"a value replaced by {str(value)[:20]!r} ({lot:.3f})", spoil


def _leaf(trees: list[Any], lot: float) -> tuple[Any, Any]:
    """One of all places of plain values in the trees."""
    places: list[tuple[Any, Any]] = []

    def walk(tree: Any) -> None:
        pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for key, value in list(pairs):
            if not isinstance(value, torch.Tensor):
                places.append((tree, key))
            if isinstance(value, (dict, list)):
                walk(value)

    for tree in trees:
        walk(tree)
    return places[int(lot * len(places))]


def _tensors(algo: str, source: random.Random) -> tuple[str, Spoil]:
    """A tensor of another shape or type, or with a number that is none, the digest right."""
    how, lot = source.choice(("shape", "empty", "type", "nan", "inf", "gone", "plain")), source.random()

    def spoil(place: Path) -> None:
        path = _alone(place, algo)
        about, state = load_checkpoint(path)
        owner, key, tensor = _tensor(state["trainer"]["agent"], lot)
        if how in ("nan", "inf"):
            owner[key] = torch.full(tensor.shape, float(how))
        elif how == "gone":
            del owner[key]
        else:
            other = {"shape": torch.ones(7, 3), "empty": torch.zeros(0), "plain": [1.0]}
            owner[key] = other.get(how, tensor.to(torch.complex64 if tensor.is_floating_point() else torch.float16))
        save_checkpoint(path, Checkpoint(about, state)) if how not in ("nan", "inf") else _written(path, about, state)

    return f"a tensor made {how} ({lot:.3f})", spoil


def _written(path: Path, about: Any, state: Any) -> None:
    """As Minerva writes it, but without its own look at what it wrote."""
    from minerva.runs import checkpoint

    read = checkpoint.read_checkpoint
    checkpoint.read_checkpoint = lambda path: None  # type: ignore[assignment, return-value]
    try:
        save_checkpoint(path, Checkpoint(about, state))
    finally:
        checkpoint.read_checkpoint = read


def _tensor(tree: dict[str, Any], lot: float) -> tuple[dict[str, Any], str, torch.Tensor]:
    found: list[tuple[dict[str, Any], str, torch.Tensor]] = []

    def walk(part: dict[str, Any]) -> None:
        for key, value in part.items():
            if isinstance(value, torch.Tensor):
                found.append((part, key, value))
            elif isinstance(value, dict):
                walk(value)

    walk(tree)
    return found[int(lot * len(found))]


def _rows(algo: str, source: random.Random) -> tuple[str, Spoil]:
    """Names of replay files that lead elsewhere or nowhere."""
    segments = source.choice(
        ([["../../canary/marker", 3, ""]], [[-5, 10**9, ""]], [[0, 2**63, "x"]], "..", [[1]], [[0, 1, 2, 3]], {"a": 1})
    )

    def spoil(place: Path) -> None:
        path = _alone(place, algo)
        about, state = load_checkpoint(path)
        save_checkpoint(path, Checkpoint(about, {**state, "replay_segments": segments}))

    return f"replay rows in {segments}", spoil


def _links(algo: str, source: random.Random) -> tuple[str, Spoil]:
    name = source.choice(
        ("metrics.jsonl", "eval/evaluations.jsonl", "config.yaml", f"checkpoints/{algo}_last.safetensors")
    )
    target = source.choice(("precious", "marker"))

    def spoil(place: Path) -> None:
        (place / name).unlink(missing_ok=True)
        os.symlink(place.parent / CANARY / target, place / name)

    return f"{name} as a link to {target} elsewhere", spoil


def _folders(algo: str, source: random.Random) -> tuple[str, Spoil]:
    name = source.choice(("checkpoints", "eval", "tensorboard", "videos"))

    def spoil(place: Path) -> None:
        elsewhere = place.parent / CANARY / "folder"
        elsewhere.mkdir()
        if source.random() < 0.5:
            shutil.copytree(place / name, elsewhere, dirs_exist_ok=True)
        shutil.rmtree(place / name)
        os.symlink(elsewhere, place / name)

    return f"{name} as a link to a folder elsewhere", spoil


def _pipes(algo: str, source: random.Random) -> tuple[str, Spoil]:
    """Replace a file by a named pipe, whose opening would block forever."""
    name = source.choice(
        ("metrics.jsonl", "eval/evaluations.jsonl", "config.yaml", f"checkpoints/{algo}_last.safetensors", "x")
    )

    def spoil(place: Path) -> None:
        (place / name).unlink(missing_ok=True)
        _alone(place, algo)
        os.mkfifo(place / name)

    return f"{name} as a pipe", spoil


def _configs(algo: str, source: random.Random) -> tuple[str, Spoil]:
    line = source.choice(
        (
            '!!python/object/apply:os.system ["touch ../canary/marker"]',
            "!!python/object/new:os.system [touch ../canary/marker]",
            "!!python/name:os.system",
            "&a [*a, *a]",
            "[" * 100_000,
            "x" * 2_000_000,
            "__import__('os').system('touch ../canary/marker')",
            "\x00",
        )
    )
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    text = bomb if source.random() < 0.1 else f"algo: {algo}\nseed: {line}\n"

    def spoil(place: Path) -> None:
        (place / "config.yaml").write_text(text)

    return f"a config with {text[:40]!r}", spoil


def _snapshots(algo: str, source: random.Random) -> tuple[str, Spoil]:
    """A simulator's state that would put something else into an environment than numbers."""
    old, new = source.choice(
        (
            ('"_elapsed_steps"', '"step": {"same": 0}, "_elapsed_steps"'),
            ('"_elapsed_steps"', '"reset": 3, "_elapsed_steps"'),
            ('"array": ["<f8"', '"array": ["O"'),
            ('"array": ["<f8", [', '"array": ["<f8", [1000000000000,'),
            ('"array": ["<f8", [', '"array": ["<f8", [-1,'),
            ('"same": ', '"same": 9999'),
            ('"keep": null', '"method": 1'),
            ('"object"', '"simulation"'),
            ("{", "[" * 5000),
        )
    )

    def spoil(place: Path) -> None:
        path = _alone(place, algo)
        about, state = load_checkpoint(path)
        for one in state["trainer"]["envs"]["simulators"]:
            one["values"] = one["values"].replace(old, new, 1)
        save_checkpoint(path, Checkpoint(about, state))

    return f"a simulator with {new[:30]}", spoil


def _unknown(algo: str, source: random.Random) -> tuple[str, Spoil]:
    """Names that no checkpoint has, as attributes and as paths."""
    where, name = (
        source.choice(("about", "logs", "returns", "state")),
        source.choice(("__class__", "../../canary/marker")),
    )

    def spoil(place: Path) -> None:
        path = _alone(place, algo)
        about, state = load_checkpoint(path)
        owner = {"about": about, "state": state, "logs": state["logs"], "returns": state["returns"]}[where]
        owner[name.replace("/", "\\") if where == "state" else name] = 3
        save_checkpoint(path, Checkpoint(about, state))

    return f"{name} in {where}", spoil
