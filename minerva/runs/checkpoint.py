"""Checkpoint files: a tree of tensors and plain values, written atomically.

A checkpoint is a safetensors file: tensors by path, and one JSON text for everything else. Reading it executes no
code. It carries a format number and a digest of all its contents.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from minerva.compute.tree import Tree
from minerva.config import check_plain
from minerva.errors import CheckpointError, TrainingError
from minerva.runs import files
from minerva.spec import ActionSpec, ObservationSpec

FORMAT = 3
POLICY_FORMAT = 2
"""Oldest format whose policies can still be loaded, although its runs cannot be resumed."""
KEY, DIGEST = "minerva", "sha256"
TENSOR = "__tensor__"

LARGEST_HEADER = 16 << 20
"""Bytes. The header is parsed before the digest is checked, and a giant one would take minutes and all memory."""
MOST_TENSORS = 20_000
"""A real checkpoint has a few dozen, and one for each environment. Each takes time to read, even if it is empty."""


class Checkpoint(NamedTuple):
    """Contents of a checkpoint: `about` describes it (algorithm, environment, config, step), `state` is the state."""

    about: dict[str, Any]
    state: Tree


def save_checkpoint(path: Path, checkpoint: Checkpoint, backup: Path | None = None, copy: Path | None = None) -> str:
    """Write a checkpoint atomically and return its digest: `path` always holds the old file or the complete new one.

    A temporary file is written, synced, read back and renamed. The old file is kept as `backup`; the new one is
    linked as `copy` before it replaces `path`.
    """
    tensors: dict[str, Tensor] = {}
    plain = _split(checkpoint.state, "", tensors)
    text = json.dumps({"format": FORMAT, "about": checkpoint.about, "state": plain})
    digest = _digest(text, tensors)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        files.write(temporary, save(tensors, metadata={KEY: text, DIGEST: digest}))
        read_checkpoint(temporary)
        if copy is not None:
            files.link_copy(temporary, copy)
        if backup is not None and path.exists():
            files.link_backup(path, backup)
        files.replace(temporary, path)
        files.sync(path.parent)
    except OSError as error:
        left = "the previous checkpoint is unchanged" if path.exists() else "there is no previous checkpoint"
        fix = "continue with --resume" if path.exists() else "run the same command with this --run-dir"
        raise TrainingError(
            f"{path} could not be written ({error.strerror}): {left}. Once the disk can be written to, {fix}."
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
    return digest


def load_checkpoint(path: Path) -> Checkpoint:
    """Read and verify a checkpoint. Raise CheckpointError, with the reason, if it cannot be used."""
    return read_checkpoint(path)[0]


def read_checkpoint(path: Path) -> tuple[Checkpoint, str]:
    """Read and verify a checkpoint; return it and its digest. Raise CheckpointError if it cannot be used."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist: give a checkpoint file or the folder of a run.")
    try:
        _refuse_giant_header(path)
        with safe_open(path, framework="pt") as file:
            metadata, names = file.metadata() or {}, file.keys()
            if len(names) > MOST_TENSORS:
                raise ValueError(f"it holds {len(names)} tensors, more than {MOST_TENSORS}")
            tensors = {name: file.get_tensor(name) for name in names}
        content = json.loads(metadata.get(KEY, "null"))
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is cut off, or not a checkpoint ({error}): give a checkpoint from a run's folder."
        ) from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} was not written by Minerva: give a checkpoint from a run's folder.")
    version = content.get("format")
    if version not in (POLICY_FORMAT, FORMAT):
        raise CheckpointError(
            f"{path} has checkpoint format {version}, and this Minerva reads {FORMAT}: update Minerva."
        )
    if metadata.get(DIGEST) != _digest(metadata[KEY], tensors):
        raise CheckpointError(
            f"{path} is damaged: its contents do not match its digest. Use the run's other checkpoint."
        )
    try:
        about, state = content["about"], _join(content["state"], tensors)
        if version == POLICY_FORMAT:
            about |= _specs_of_format_2(about)
        if not isinstance(about, dict) or not isinstance(state, dict):
            raise TypeError("a description or a state")
        check_plain(about)
        bad = non_finite(state)
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{path} lacks {error}: give a checkpoint that Minerva wrote.") from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{path} is not as Minerva writes it ({error}): give a run's checkpoint.") from None
    if bad:
        raise CheckpointError(f"{path} has a value in {bad} that is not finite: it cannot be used.")
    return Checkpoint(about, state), metadata[DIGEST]


def digest(tree: Tree) -> str:
    """Return the SHA-256 of a tree of tensors: their names, types, shapes and values."""
    tensors: dict[str, Tensor] = {}
    _split(tree, "", tensors)
    return _digest("", tensors)


def non_finite(state: Tree) -> str | None:
    """Return the name of a tensor of the agent's state or the replay with a non-finite value, or None."""
    trainer = state.get("trainer")
    agent = trainer.get("agent") if isinstance(trainer, dict) else None
    learned = agent if isinstance(agent, dict) else {}
    for name, tensor in _tensors({"rows": state.get("rows"), **learned}):
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            return name
    return None


def check_structure(expected: Tree, found: Any, path: str = "state") -> None:
    """Raise ValueError unless two trees have the same keys, and tensors of the same shape and dtype under them."""
    if not isinstance(found, dict) or expected.keys() != found.keys():
        raise ValueError(f"{path} should hold {sorted(expected)}")
    for name, value in expected.items():
        if isinstance(value, dict):
            check_structure(value, found[name], f"{path}/{name}")
        elif isinstance(value, Tensor):
            other = found[name]
            if not isinstance(other, Tensor) or (other.shape, other.dtype) != (value.shape, value.dtype):
                raise ValueError(f"{path}/{name} should be {value.dtype} of {tuple(value.shape)}")


def _tensors(tree: Tree) -> Iterator[tuple[str, Tensor]]:
    for name, value in tree.items():
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, dict):
            yield from ((f"{name}/{inner}", tensor) for inner, tensor in _tensors(value))


def _specs_of_format_2(about: dict[str, Any]) -> dict[str, Any]:
    """Return the observation and action specs of a checkpoint of format 2; a file of replay rows has none."""
    if "obs_dim" not in about:
        return {"format": POLICY_FORMAT}
    action = ActionSpec.continuous(about["action_low"], about["action_high"])
    return {
        "format": POLICY_FORMAT,
        "observation": ObservationSpec.of(about["obs_dim"]).to_dict(),
        "action": action.to_dict(),
    }


def _refuse_giant_header(path: Path) -> None:
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if length > min(LARGEST_HEADER, path.stat().st_size):
        raise ValueError(f"its header would be {length} bytes long")


def _split(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Return `value` with every tensor moved to `tensors` and a reference left in its place."""
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
    """Return the value that `_split` took apart, with its tensors back in place, each of them once."""
    if isinstance(value, dict):
        if TENSOR in value:
            return tensors.pop(value[TENSOR])
        return {key: _join(part, tensors) for key, part in value.items()}
    return [_join(part, tensors) for part in value] if isinstance(value, list) else value


def _digest(text: str, tensors: dict[str, Tensor]) -> str:
    sha = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()
