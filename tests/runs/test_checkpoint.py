"""Checkpoint files: what goes in comes out, damage is noticed, nothing is executed, a failed write changes nothing."""

import errno
import json
import math
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tiny_runs import same

from minerva.errors import CheckpointError, TrainingError
from minerva.runs import checkpoint as module
from minerva.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

ABOUT = {"algo": "ppo", "env": "Pendulum-v1", "hyperparameters": {"layers": [64, 64], "rate": 3e-4, "kl": None}}

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


def round_trip(tmp_path: Path, state: dict[str, Any]) -> Any:
    save_checkpoint(tmp_path / "a.pt", Checkpoint(ABOUT, state))
    about, loaded = load_checkpoint(tmp_path / "a.pt")
    assert about == ABOUT
    return loaded


# --- round trip -----------------------------------------------------------------------------------------------


def test_a_nested_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    state = {
        "networks": {"layer.0.weight": torch.randn(3, 4), "deeper": {"still": {"bias": torch.randn(4)}}},
        "list": [torch.arange(3), {"inside": torch.ones(1)}, [1, "two", None]],
        "generator": torch.Generator().manual_seed(3).get_state(),
        "pcg64": {"state": 2**127 + 12345, "inc": 2**128 - 1, "has_uint32": 0},
        "flags": [True, False],
        "none": None,
        "numbers": [0, -1, 0.1, -0.0, 1e-320, math.inf, -math.inf, 1.7976931348623157e308],
        "text": 'quotes " and \\ and \n and λ',
        "empty": {},
        "nothing": [],
    }
    assert same(round_trip(tmp_path, state), state)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (5,), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_shape_comes_back_to_the_last_bit(
    dtype: torch.dtype, shape: tuple[int, ...], tmp_path: Path
) -> None:
    tensor = (torch.randn(shape) * 10).to(dtype)
    assert same(round_trip(tmp_path, {"x": tensor}), {"x": tensor})


def test_nan_and_signed_zero_keep_their_bits(tmp_path: Path) -> None:
    tensor = torch.tensor([math.nan, -0.0, math.inf])
    loaded = round_trip(tmp_path, {"x": tensor, "number": math.nan})
    assert same(loaded["x"], tensor)
    assert math.isnan(loaded["number"])


def test_tensors_that_share_memory_or_are_views_are_kept_apart(tmp_path: Path) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    loaded = round_trip(
        tmp_path, {"whole": whole, "transposed": whole.T, "row": whole[1], "expanded": whole[0].expand(2, 4)}
    )
    assert torch.equal(loaded["transposed"], whole.T)
    assert torch.equal(loaded["expanded"], torch.stack([whole[0], whole[0]]))
    loaded["row"].zero_()
    assert torch.equal(loaded["whole"], whole)


def test_parameters_come_back_as_plain_tensors(tmp_path: Path) -> None:
    loaded = round_trip(tmp_path, {"weight": torch.nn.Parameter(torch.ones(2))})
    assert type(loaded["weight"]) is torch.Tensor
    assert not loaded["weight"].requires_grad


def test_a_numpy_generator_goes_on_where_it_was(tmp_path: Path) -> None:
    source = np.random.default_rng(7)
    source.normal(size=3)
    state: Any = source.bit_generator.state
    restored = np.random.default_rng()
    restored.bit_generator.state = round_trip(tmp_path, {"rng": state})["rng"]
    assert np.array_equal(restored.normal(size=5), source.normal(size=5))


@pytest.mark.parametrize(
    "state",
    [
        {"x": np.ones(2)},
        {"x": np.int64(3)},
        {"x": {1, 2}},
        {"x": object()},
        {"x": b"bytes"},
        {"x": 1j},
        {"x": {3: "a key that is no text"}},
        {"x": {"__tensor__": "what a reference to a tensor looks like"}},
        {"a/b": torch.ones(1), "a": {"b": torch.zeros(1)}},
    ],
    ids=["array", "numpy scalar", "set", "object", "bytes", "complex", "number as key", "reference", "one name twice"],
)
def test_what_would_not_come_back_the_same_is_refused(state: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="checkpoint"):
        save_checkpoint(tmp_path / "a.pt", Checkpoint(ABOUT, state))
    assert list(tmp_path.iterdir()) == []


# --- damage ---------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A checkpoint of a few hundred bytes."""
    path = tmp_path / "small.pt"
    save_checkpoint(path, Checkpoint({"algo": "ppo"}, {"step": 4096, "x": torch.arange(4), "y": torch.ones(2)}))
    return path


def refusal(path: Path) -> str:
    """Why the checkpoint is refused; empty if it is not."""
    try:
        load_checkpoint(path)
    except CheckpointError as error:
        return str(error)
    return ""


def test_a_flipped_bit_is_noticed_wherever_it_is(small: Path) -> None:
    whole = small.read_bytes()
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << (at % 8)
        small.write_bytes(flipped)
        assert str(small) in refusal(small), f"bit {at % 8} of byte {at}"
    small.write_bytes(whole)
    assert refusal(small) == ""


def test_a_file_cut_anywhere_is_refused(small: Path) -> None:
    whole = small.read_bytes()
    for length in range(len(whole)):
        small.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"small\.pt"):
            load_checkpoint(small)


@pytest.mark.parametrize(
    ("right", "wrong"), [(b'"shape":[2,3]', b'"shape":[3,2]'), (b'"I32"', b'"F32"'), (b'"one":{', b'"two":{')]
)
def test_a_header_that_reads_the_same_bytes_otherwise_is_noticed(right: bytes, wrong: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    save_checkpoint(path, Checkpoint(ABOUT, {"one": torch.ones(2, 3, dtype=torch.int32)}))
    whole = path.read_bytes()
    assert whole.count(right) == 1
    path.write_bytes(whole.replace(right, wrong))
    with pytest.raises(CheckpointError, match=r"a\.pt is damaged"):
        load_checkpoint(path)


@pytest.mark.parametrize("text", ["null", "3", "[]", "{}", "not json"])
def test_a_foreign_text_in_our_place_is_refused(text: str, tmp_path: Path) -> None:
    save_file({"x": torch.ones(1)}, tmp_path / "a.pt", metadata={"minerva": text})
    with pytest.raises(CheckpointError, match=r"a\.pt"):
        load_checkpoint(tmp_path / "a.pt")


def test_a_newer_format_is_refused_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "FORMAT", 7)
        save_checkpoint(tmp_path / "a.pt", Checkpoint(ABOUT, {}))
    with pytest.raises(CheckpointError, match="format 7, and this Minerva reads 3: update Minerva"):
        load_checkpoint(tmp_path / "a.pt")


def test_more_tensors_than_any_run_has_are_refused_unread(tmp_path: Path) -> None:
    whole = {f"{i}": torch.zeros(0) for i in range(module.MOST_TENSORS + 1)}
    save_file(whole, tmp_path / "a.pt", metadata={"minerva": "{}"})
    with pytest.raises(CheckpointError, match=r"a\.pt .* 20001 tensors"):
        load_checkpoint(tmp_path / "a.pt")


def written_by_hand(path: Path, state: str) -> Path:
    """A checkpoint whose state is this JSON text, with the right digest."""
    tensors = {"x": torch.ones(3)}
    text = f'{{"format": {module.FORMAT}, "about": {{}}, "state": {state}}}'
    save_file(tensors, path, metadata={"minerva": text, "sha256": module._digest(text, tensors)})
    return path


REFERENCE = '{"__tensor__": "x"}'


@pytest.mark.parametrize(
    "state",
    [
        f'{{"a": {REFERENCE}, "b": {REFERENCE}}}',
        '{"a": {"__tensor__": "y"}}',
        '{"a": {"__tensor__": ["x"]}}',
        REFERENCE,
    ],
)
def test_a_state_that_minerva_does_not_write_is_refused(state: str, tmp_path: Path) -> None:
    assert refusal(written_by_hand(tmp_path / "good.pt", f'{{"a": {REFERENCE}}}')) == ""
    assert str(tmp_path) in refusal(written_by_hand(tmp_path / "a.pt", state))


def test_however_deep_a_state_is_it_is_read_or_refused(tmp_path: Path) -> None:
    texts = [
        text
        for deep in (10, *range(400, 520, 5), 900, 100_000)
        for text in (
            '{"rows":' * deep + "1" + "}" * deep,
            '{"trainer":{"agent":' + '{"a":' * deep + "1" + "}" * (deep + 2),
        )
    ]
    answers = [refusal(written_by_hand(tmp_path / "a.pt", text)) for text in texts]
    assert answers[0] == ""
    assert "a.pt" in answers[-1]


# --- nothing is executed --------------------------------------------------------------------------------------


class _Hostile:
    """Unpickling it creates a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (open, (str(self.marker), "w"))


@pytest.mark.parametrize("kind", ["pickle", "torch.save", "in the text"])
def test_loading_executes_nothing(kind: str, tmp_path: Path) -> None:
    path, marker = tmp_path / "hostile.pt", tmp_path / "marker"
    if kind == "pickle":
        path.write_bytes(pickle.dumps(_Hostile(marker)))
    elif kind == "torch.save":
        torch.save({"state": _Hostile(marker)}, path)
        assert zipfile.is_zipfile(path)
    else:
        text = json.dumps({"format": module.FORMAT, "about": pickle.dumps(_Hostile(marker), 0).decode(), "state": {}})
        save_file({}, path, metadata={"minerva": text})
    with pytest.raises(CheckpointError, match=r"hostile\.pt"):
        load_checkpoint(path)
    assert not marker.exists()


def test_the_hostile_pickle_is_hostile(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(_Hostile(tmp_path / "marker"))).close()
    assert (tmp_path / "marker").exists()


# --- failed writes --------------------------------------------------------------------------------------------


def _no_space(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_checkpoint_and_no_other_file(
    where: str, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = small.read_bytes()
    monkeypatch.setattr(os, where, _no_space)
    with pytest.raises(TrainingError, match=r"small\.pt could not be written \(No space left on device\)"):
        save_checkpoint(small, Checkpoint(ABOUT, {"x": torch.zeros(9)}))
    assert small.read_bytes() == before
    assert list(small.parent.iterdir()) == [small]


def test_a_write_that_reads_back_differently_does_not_replace_the_old_checkpoint(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, save = small.read_bytes(), module.save
    monkeypatch.setattr(module, "save", lambda *args, **kwargs: save(*args, **kwargs)[:-1] + b"\x00")
    with pytest.raises(CheckpointError):
        save_checkpoint(small, Checkpoint(ABOUT, {"x": torch.ones(9)}))
    assert small.read_bytes() == before
    assert list(small.parent.iterdir()) == [small]


def test_the_file_is_synced_before_it_is_renamed_and_the_folder_after(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append("sync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda *paths: (calls.append("rename"), replace(*paths)))
    save_checkpoint(small, Checkpoint(ABOUT, {}))
    assert calls == ["sync", "rename", "sync"]
