"""Independent random streams from one seed."""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from minerva.compute.tree import Tree
from minerva.errors import ConfigError

GENERATOR_STATES = (16, 5056)
"""Bytes of a CUDA generator's state, and of a CPU's."""


def stream_seed(seed: int, stream: str) -> int:
    """A seed for the named stream. Streams of one run, and equal streams of two seeds, do not overlap."""
    entropy = [seed, *stream.encode()]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))


@contextmanager
def seeded(seed: int, stream: str) -> Iterator[None]:
    """torch's global CPU generator seeded inside the block, and as it was after it."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream_seed(seed, stream))  # torch.manual_seed reseeds the GPUs' as well
        yield


def generator(seed: int, stream: str, device: torch.device) -> torch.Generator:
    """A private generator on `device`."""
    return torch.Generator(device).manual_seed(stream_seed(seed, stream))


def restore_generator(drawing: torch.Generator, state: torch.Tensor) -> None:
    """Let a generator draw on from a state. That of another kind of device seeds what is drawn from here on."""
    if state.dtype != torch.uint8 or state.ndim != 1 or len(state) not in GENERATOR_STATES:
        raise ValueError(f"a generator's state should be {GENERATOR_STATES} bytes long")
    if state.shape == drawing.get_state().shape:
        drawing.set_state(state.cpu())
    else:
        digest = hashlib.sha256(state.cpu().numpy().tobytes()).digest()
        drawing.manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def global_generators() -> Tree:
    """The generators that a process has one of. Minerva draws from none of them, but an environment may."""
    version, words, gauss = random.getstate()
    legacy = np.random.get_state(legacy=False)  # noqa: NPY002  the very one
    legacy["state"]["key"] = torch.from_numpy(legacy["state"]["key"].astype(np.int64))
    python = {"version": version, "words": torch.tensor(words), "gauss": gauss}
    return {"python": python, "numpy": legacy, "torch": torch.get_rng_state()}


def set_global_generators(state: Tree) -> None:
    """Take over a state made by `global_generators`."""
    python, legacy = state["python"], state["numpy"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    key = legacy["state"]["key"].numpy().astype(np.uint32)
    np.random.set_state({**legacy, "state": {**legacy["state"], "key": key}})  # noqa: NPY002
    torch.set_rng_state(state["torch"])


def parse_seeds(text: str) -> list[int]:
    """0:8 or 0,1,5 as a list of seeds."""
    try:
        if ":" in text:
            first, last = (int(part) for part in text.split(":"))
            seeds = list(range(first, last))
        else:
            seeds = [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0:
        raise ConfigError(f"seeds is {text}: write 0:8 for seeds 0 to 7, or list them as 0,1,5.")
    return seeds
