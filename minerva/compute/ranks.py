"""Data-parallel training: ranks that train one agent together, each with its own environments.

The agent's state is replicated on every rank. Data with an axis of environments or rows is sharded along that axis, and
whatever is computed over it (a gradient, a mean, a selection of the best rows) is computed over all ranks. `Ranks` is
the single-process case: every method returns its argument, so it adds no operation.
"""

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from minerva.errors import ConfigError

COLLECTIVE_TIMEOUT = timedelta(hours=2)
"""Longest wait for the other ranks in a collective: they wait while rank 0 evaluates and saves."""


class Ranks:
    """Rank 0 of 1: training in a single process, without collectives."""

    rank = 0
    count = 1

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over ranks; gradients do not flow through it."""
        return values

    def means(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Return the mean over ranks of each of several vectors, in one collective."""
        return values

    def all(self, flag: Tensor) -> Tensor:
        """Return whether a boolean tensor is true on every rank."""
        return flag

    def all_gathered(self, rows: Tensor, axis: int = 0) -> Tensor:
        """Return the rows of all ranks, concatenated along `axis` in rank order."""
        return rows

    def local_shard(self, rows: Tensor, axis: int = 0) -> Tensor:
        """Return this rank's slice, along `axis`, of rows that are replicated on every rank."""
        return rows

    def scaled_local_shard(self, weights: Tensor) -> Tensor:
        """Return this rank's slice of weights, scaled so that the mean over ranks of their sums is the sum over all."""
        return weights

    def each(self, *values: Tensor) -> list[tuple[Tensor, ...]]:
        """Return the given tensors of every rank: one tuple per rank."""
        return [values]

    def objects(self, value: Any) -> list[Any]:
        """Return the given picklable value of every rank, in rank order."""
        return [value]

    def broadcast(self, value: Any) -> Any:
        """Return the value that rank 0 passes."""
        return value

    def shutdown(self) -> None:
        """Leave the process group."""


class Distributed(Ranks):
    """One rank of torch.distributed's default process group."""

    def __init__(self) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over ranks by an all-reduce; gradients do not flow through it."""
        total = values.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total / self.count

    def means(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Return the mean over ranks of each of several vectors, in one all-reduce."""
        return self.mean(torch.cat(values)).split([value.shape[0] for value in values])

    def all(self, flag: Tensor) -> Tensor:
        """Return whether a boolean tensor is true on every rank, by an all-reduce."""
        return self.mean(flag.to(torch.float32)) == 1

    def all_gathered(self, rows: Tensor, axis: int = 0) -> Tensor:
        """Return the rows of all ranks by an all-gather, concatenated along `axis` in rank order."""
        return torch.cat(self._all_gather(rows), axis)

    def local_shard(self, rows: Tensor, axis: int = 0) -> Tensor:
        """Return this rank's slice, along `axis`, of rows that are replicated on every rank; sends nothing."""
        size = rows.shape[axis] // self.count
        return rows.narrow(axis, self.rank * size, size)

    def scaled_local_shard(self, weights: Tensor) -> Tensor:
        """Return this rank's slice of weights times the number of ranks: the mean over ranks cancels that factor."""
        return self.local_shard(weights) * self.count

    def each(self, *values: Tensor) -> list[tuple[Tensor, ...]]:
        """Return the given tensors of every rank, by one all-gather per tensor: one tuple per rank."""
        return list(zip(*(self._all_gather(value) for value in values), strict=True))

    def objects(self, value: Any) -> list[Any]:
        """Return the given picklable value of every rank, by an all-gather of objects."""
        gathered: list[Any] = [None] * self.count
        dist.all_gather_object(gathered, value)
        return gathered

    def broadcast(self, value: Any) -> Any:
        """Return the value that rank 0 passes, by a broadcast of objects."""
        box = [value]
        dist.broadcast_object_list(box)
        return box[0]

    def shutdown(self) -> None:
        """Destroy the process group; no collective may follow."""
        dist.destroy_process_group()

    def _all_gather(self, values: Tensor) -> list[Tensor]:
        """Return the given tensor of every rank, in rank order."""
        parts = [torch.empty_like(values, memory_format=torch.contiguous_format) for _ in range(self.count)]
        dist.all_gather(parts, values.contiguous())
        return parts


SINGLE = Ranks()
"""Training in a single process."""


def init_from_torchrun(device: str) -> Ranks:
    """Join the process group that torchrun set up and return its ranks; without torchrun return `SINGLE`.

    On CUDA each rank uses the GPU with the number of its local rank, and "cuda" means that GPU from then on.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return SINGLE
    if not dist.is_available():
        raise ConfigError("This PyTorch is built without torch.distributed: train with one process.")
    on_gpu = device.startswith("cuda")
    if on_gpu:
        local, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if device != "cuda":
            raise ConfigError(f"device is {device}: under torchrun give cuda, and each process takes its own GPU.")
        if local >= gpus:
            raise ConfigError(
                f"torchrun started local rank {local}, and this machine has {gpus} GPUs: lower --nproc-per-node."
            )
        torch.cuda.set_device(local)
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=COLLECTIVE_TIMEOUT)
    return Distributed()
