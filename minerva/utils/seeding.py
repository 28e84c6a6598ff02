"""Independent random streams from one seed."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


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
