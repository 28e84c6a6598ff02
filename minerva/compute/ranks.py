"""Ranks that learn as one, each from environments of its own.

Everything an agent owns is the same in all of them. What has an axis of environments or rows is divided along it, and
what is computed over that axis (a gradient, a mean, a selection of the best rows) is computed over all ranks. A
`Ranks` is a process that is alone: every method gives its argument back, so nothing is added to what one computes.
"""

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from minerva.errors import ConfigError

PATIENCE = timedelta(hours=2)
"""How long one process waits for another: the first evaluates and saves while the others wait."""


class Ranks:
    """One process, which learns alone."""

    rank = 0
    count = 1

    def mean(self, values: Tensor) -> Tensor:
        """The mean over all processes; not to be differentiated."""
        return values

    def means(self, *values: Tensor) -> tuple[Tensor, ...]:
        """The means of several vectors, at once."""
        return values

    def all(self, flag: Tensor) -> Tensor:
        """Whether a boolean is true in all processes."""
        return flag

    def all_gathered(self, rows: Tensor, axis: int = 0) -> Tensor:
        """The rows of all processes along `axis`, in the order of their ranks."""
        return rows

    def local_shard(self, rows: Tensor, axis: int = 0) -> Tensor:
        """This process's part of rows along `axis` that are the same everywhere, as those of `gathered`."""
        return rows

    def scaled_local_shard(self, weights: Tensor) -> Tensor:
        """Its own part of weights, such that the mean over processes of weighted sums is the sum over all rows."""
        return weights

    def each(self, *values: Tensor) -> list[tuple[Tensor, ...]]:
        """These tensors of each process."""
        return [values]

    def objects(self, value: Any) -> list[Any]:
        """A plain value of each process."""
        return [value]

    def broadcast(self, value: Any) -> Any:
        """What the first process gives here."""
        return value

    def shutdown(self) -> None:
        """Learn together no longer."""


class Distributed(Ranks):
    """One of the processes of torch.distributed's default group."""

    def __init__(self) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()

    def mean(self, values: Tensor) -> Tensor:
        """See `Ranks`."""
        total = values.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total / self.count

    def means(self, *values: Tensor) -> tuple[Tensor, ...]:
        """See `Ranks`."""
        return self.mean(torch.cat(values)).split([value.shape[0] for value in values])

    def all(self, flag: Tensor) -> Tensor:
        """See `Ranks`."""
        return self.mean(flag.to(torch.float32)) == 1

    def all_gathered(self, rows: Tensor, axis: int = 0) -> Tensor:
        """See `Ranks`."""
        return torch.cat(self._of_each(rows), axis)

    def local_shard(self, rows: Tensor, axis: int = 0) -> Tensor:
        """See `Ranks`."""
        size = rows.shape[axis] // self.count
        return rows.narrow(axis, self.rank * size, size)

    def scaled_local_shard(self, weights: Tensor) -> Tensor:
        """See `Ranks`."""
        return self.local_shard(weights) * self.count

    def each(self, *values: Tensor) -> list[tuple[Tensor, ...]]:
        """See `Ranks`."""
        return list(zip(*(self._of_each(value) for value in values), strict=True))

    def objects(self, value: Any) -> list[Any]:
        """See `Ranks`."""
        found: list[Any] = [None] * self.count
        dist.all_gather_object(found, value)
        return found

    def broadcast(self, value: Any) -> Any:
        """See `Ranks`."""
        box = [value]
        dist.broadcast_object_list(box)
        return box[0]

    def shutdown(self) -> None:
        """See `Ranks`."""
        dist.destroy_process_group()

    def _of_each(self, values: Tensor) -> list[Tensor]:
        """These values of each process."""
        parts = [torch.empty_like(values, memory_format=torch.contiguous_format) for _ in range(self.count)]
        dist.all_gather(parts, values.contiguous())
        return parts


SINGLE = Ranks()


def init_from_torchrun(device: str) -> Ranks:
    """The processes that torchrun has started this one with, met for the first time; or this one alone.

    On CUDA each takes the GPU of its number on the machine, and "cuda" means that one from now on.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return SINGLE
    if not dist.is_available():
        raise ConfigError("This PyTorch is built without torch.distributed: train with one process.")
    on_gpu = device.startswith("cuda")
    if on_gpu:
        local, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if device != "cuda":
            raise ConfigError(f"device is {device}: under torchrun give cuda, and each process takes a GPU of its own.")
        if local >= gpus:
            raise ConfigError(f"torchrun started process {local} here, and there are {gpus} GPUs: lower its number.")
        torch.cuda.set_device(local)
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=PATIENCE)
    return Distributed()
