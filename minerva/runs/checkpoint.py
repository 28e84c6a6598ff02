"""Checkpoint files: a tree of tensors and plain values, written whole or not at all.

A checkpoint is a safetensors file: tensors by path, and one JSON text for everything else. Reading it executes
nothing. It carries a format number and a digest of its contents.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from minerva.errors import CheckpointError
from minerva.utils.tree import Tree

FORMAT = 1
KEY = "minerva"
TENSOR = "__tensor__"


class Checkpoint(NamedTuple):
    """What a checkpoint holds: `about` describes it (algorithm, environment, config, step), `state` is the state."""

    about: dict[str, Any]
    state: Tree


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write to a temporary file, sync it, rename it into place: a reader sees the old file or the new one."""
    tensors: dict[str, Tensor] = {}
    plain = _split(checkpoint.state, "", tensors)
    text = {"format": FORMAT, "about": checkpoint.about, "state": plain, "digest": _digest(tensors)}
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(save(tensors, metadata={KEY: json.dumps(text)}))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read and verify a checkpoint, or say what is wrong with it."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist: give a checkpoint file or the folder of a run.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
        text = json.loads(metadata[KEY])
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path} is not a readable Minerva checkpoint: {error or type(error).__name__}.") from None
    if not isinstance(text, dict) or text.get("format") != FORMAT:
        found = text.get("format") if isinstance(text, dict) else None
        raise CheckpointError(f"{path} has checkpoint format {found}, and this Minerva reads {FORMAT}: update Minerva.")
    if text.get("digest") != _digest(tensors):
        raise CheckpointError(f"{path} is damaged: its contents do not match its digest.")
    return Checkpoint(text["about"], _join(text["state"], tensors))


def _split(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """`value` with every tensor moved to `tensors` and a reference left in its place."""
    if isinstance(value, Tensor):
        tensors[path] = value.detach().cpu().contiguous().clone()
        return {TENSOR: path}
    if isinstance(value, dict):
        return {key: _split(part, f"{path}/{key}" if path else key, tensors) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_split(part, f"{path}/{i}", tensors) for i, part in enumerate(value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{path} is a {type(value).__name__}: a checkpoint holds tensors and plain values only")


def _join(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `_split`."""
    if isinstance(value, dict):
        if TENSOR in value:
            return tensors[value[TENSOR]]
        return {key: _join(part, tensors) for key, part in value.items()}
    return [_join(part, tensors) for part in value] if isinstance(value, list) else value


def _digest(tensors: dict[str, Tensor]) -> str:
    sha = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
