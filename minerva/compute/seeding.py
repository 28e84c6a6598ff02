"""Independent random streams from one seed."""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from minerva.compute.tree import Tree

GENERATOR_STATES = (16, 5056)
"""Bytes of the state of a CUDA generator, and of a CPU generator."""


def stream_seed(seed: int, stream: str) -> int:
    """Return a seed for the named stream. Streams of one seed, and one stream of two seeds, do not overlap."""
    entropy = [seed, *stream.encode()]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))


@contextmanager
def seeded(seed: int, stream: str) -> Iterator[None]:
    """Seed torch's global CPU generator inside the block, and restore its state after it."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream_seed(seed, stream))  # torch.manual_seed also reseeds the GPUs
        yield


def generator(seed: int, stream: str, device: torch.device) -> torch.Generator:
    """Return a generator on `device` for the named stream; the device "meta" has none, and draws nothing."""
    return torch.Generator("cpu" if device.type == "meta" else device).manual_seed(stream_seed(seed, stream))


def restore_generator(target: torch.Generator, state: torch.Tensor) -> None:
    """Set a generator to a saved state. A state from another kind of device is hashed into a new seed."""
    if state.dtype != torch.uint8 or state.ndim != 1 or len(state) not in GENERATOR_STATES:
        raise ValueError(f"a generator's state should be {GENERATOR_STATES} bytes long")
    if state.shape == target.get_state().shape:
        target.set_state(state.cpu())
    else:
        digest = hashlib.sha256(state.cpu().numpy().tobytes()).digest()
        target.manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def seed_global_generators(seed: int) -> None:
    """Seed the process-wide generators of Python, NumPy and torch's CPU: in a process that is not the user's."""
    drawn = stream_seed(seed, "process")
    random.seed(drawn)
    np.random.seed(drawn % 2**32)  # noqa: NPY002  environments draw from it
    torch.default_generator.manual_seed(drawn)


def global_generators() -> Tree:
    """Return the states of the process-wide generators. Minerva draws from none of them, but an environment may."""
    version, words, gauss = random.getstate()
    legacy = np.random.get_state(legacy=False)  # noqa: NPY002  environments draw from it
    legacy["state"]["key"] = torch.from_numpy(legacy["state"]["key"].astype(np.int64))
    python = {"version": version, "words": torch.tensor(words), "gauss": gauss}
    return {"python": python, "numpy": legacy, "torch": torch.get_rng_state()}


def set_global_generators(state: Tree) -> None:
    """Restore the states that `global_generators` returned."""
    python, legacy = state["python"], state["numpy"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    key = legacy["state"]["key"].numpy().astype(np.uint32)
    np.random.set_state({**legacy, "state": {**legacy["state"], "key": key}})  # noqa: NPY002
    torch.set_rng_state(state["torch"])
