"""Checkpoint files: a tree of tensors and plain values, written whole or not at all.

A checkpoint is a safetensors file: tensors by path, and one JSON text for everything else. Reading it executes
nothing. It carries a format number and a digest of all its contents.
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

from minerva.errors import CheckpointError, TrainingError
from minerva.utils.tree import Tree

FORMAT = 1
KEY, DIGEST = "minerva", "sha256"
TENSOR = "__tensor__"


class Checkpoint(NamedTuple):
    """What a checkpoint holds: `about` describes it (algorithm, environment, config, step), `state` is the state."""

    about: dict[str, Any]
    state: Tree


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write to a temporary file, sync it, read it back, rename it into place: at `path` is the old file or the new."""
    tensors: dict[str, Tensor] = {}
    plain = _split(checkpoint.state, "", tensors)
    text = json.dumps({"format": FORMAT, "about": checkpoint.about, "state": plain})
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(save(tensors, metadata={KEY: text, DIGEST: _digest(text, tensors)}))
            file.flush()
            os.fsync(file.fileno())
        load_checkpoint(temporary)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise TrainingError(
            f"{path} could not be written ({error.strerror}): the checkpoint before it is kept, if there was one. "
            "Once the disk can be written to, go on with --resume."
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read and verify a checkpoint, or say what is wrong with it."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist: give a checkpoint file or the folder of a run.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
        content = json.loads(metadata.get(KEY, "null"))
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is cut off, or no checkpoint at all ({error}): give a checkpoint from a run's folder."
        ) from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} was not written by Minerva: give a checkpoint from a run's folder.")
    if content.get("format") != FORMAT:
        found = content.get("format")
        raise CheckpointError(f"{path} has checkpoint format {found}, and this Minerva reads {FORMAT}: update Minerva.")
    if metadata.get(DIGEST) != _digest(metadata[KEY], tensors):
        raise CheckpointError(
            f"{path} is damaged: its contents do not match its digest. Use the run's other checkpoint."
        )
    return Checkpoint(content["about"], _join(content["state"], tensors))


def _split(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """`value` with every tensor moved to `tensors` and a reference left in its place."""
    if isinstance(value, Tensor):
        if path in tensors:
            raise TypeError(f"{path} names two tensors: a key of a checkpoint's dict must not contain a slash")
        tensors[path] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {TENSOR: path}
    if isinstance(value, dict):
        if not all(isinstance(key, str) and key != TENSOR for key in value):
            raise TypeError(f"{path} is a dict with keys {list(value)}: a checkpoint's keys are text, not {TENSOR}")
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


def _digest(text: str, tensors: dict[str, Tensor]) -> str:
    sha = hashlib.sha256(text.encode())
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
