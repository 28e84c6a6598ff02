"""A replay: the last steps of E environments in one preallocated tensor. Every row is data; there are no reset rows.

A row is a line of float32 numbers, so that keeping a step is one copy and sampling a batch is one gather.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.seeding import generator, restore_generator
from minerva.compute.tree import Tree
from minerva.errors import CheckpointError

Array = np.ndarray[Any, np.dtype[Any]]

OWN_FIELDS = {"rewards": 1, "terminated": 1, "truncated": 1}
"""What every row has, flags last."""


class Replay:
    """Keeps the newest `capacity` transitions and gives them back in random batches.

    `widths` says how many numbers each further field has: `obs`, `actions_executed`, `next_obs` and what else the
    learner wants. `next_obs` is the true next observation, also at an episode's end.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        widths: Mapping[str, int],
        device: torch.device,
        seed: int = 0,
        ranks: Ranks = SINGLE,
    ) -> None:
        """`processes` have a replay each and draw from them what is learned from together."""
        self.widths = {**widths, **OWN_FIELDS}
        self.num_envs = num_envs
        self.steps = max(capacity // num_envs, 1)
        self._sizes = list(self.widths.values())
        self.state = {
            "storage": torch.zeros(self.steps, num_envs, sum(self._sizes), device=device),
            "newest": torch.zeros((), dtype=torch.int64, device=device),
        }
        self.written = 0
        self.cuts: list[int] = []
        self.ranks = ranks
        self.generator = generator(seed, "replay", torch.device("cpu"))
        self._writer = Writer([self], self.state)

    def __len__(self) -> int:
        return min(self.written, self.steps) * self.num_envs

    @property
    def storage(self) -> Tensor:
        """All rows.  [steps, E, widths]"""
        return self.state["storage"]

    def add(self, **fields: Array) -> None:
        """Keep one step of all environments: every field as [E] or [E, width]."""
        self._writer.add(fields)

    def cut(self) -> None:
        """Say that what is added next does not follow the newest rows: the environments were started anew."""
        if self.written:
            self.cuts.append(self.written - 1)
            self._mark_cuts()

    def sample(self, size: int) -> dict[str, Tensor]:
        """Transitions, every one equally likely.  [size, width] by field"""
        return self.transitions(self.state, self.starts(size).to(self.storage.device))

    def sample_sequences(self, size: int, length: int) -> dict[str, Tensor]:
        """Sequences, every start equally likely.  [size, length, width] by field"""
        return self.sequences(self.state, self.starts(size).to(self.storage.device), length)

    def starts(self, size: int) -> Tensor:
        """Random rows, to be given to `transitions` or `sequences`.  [size]

        They are drawn on the host, where so few numbers are had sooner than a GPU begins.
        """
        return self.ranks.local_shard(torch.randint(len(self), (self.ranks.count * size,), generator=self.generator))

    def transitions(self, state: Tree, starts: Tensor) -> dict[str, Tensor]:
        """The rows at `starts`."""
        return self.by_field(state["storage"].flatten(0, 1).index_select(0, starts))

    def sequences(self, state: Tree, starts: Tensor, length: int) -> dict[str, Tensor]:
        """Sequences from `starts` on, none crossing an episode's end.

        One that reaches its end earlier, or the newest row, repeats its last row, which then is marked as
        terminated or truncated: whatever follows a mark is to be left out.
        """
        rows = state["storage"].flatten(0, 1)
        first = starts.unsqueeze(-1)
        steps, envs = first // self.num_envs, first % self.num_envs
        ahead = (steps + torch.arange(length, device=starts.device)) % self.steps
        flags = rows[:, -2:].index_select(0, (ahead * self.num_envs + envs).flatten()).view(*ahead.shape, 2)
        ends = (flags > 0).any(-1) | (ahead == state["newest"])
        goes_on = torch.cumprod(~ends[:, :-1], 1)
        offsets = torch.cat((torch.zeros_like(first), goes_on.cumsum(1)), 1)  # 0, 1, 2, ... and no further than the end
        places = ahead.gather(1, offsets) * self.num_envs + envs
        batch = self.by_field(rows.index_select(0, places.flatten()).view(*ahead.shape, -1))
        batch["truncated"] = ends.gather(1, offsets).unsqueeze(-1).float() - batch["terminated"]
        return batch

    def move(self, state: Tree) -> None:
        """Keep the rows in these tensors, which hold the same numbers, from now on."""
        self.state = state
        self._writer = Writer([self], state)

    def since(self, first: int) -> Tensor:
        """The rows from number `first` on, of all that were ever added.  [rows, E, width]"""
        return self.storage[self._slots(first, self.written - first)].cpu()

    def put(self, first: int, rows: Tensor) -> None:
        """Take back rows that `since` gave, in a replay that knows by its state how many were written."""
        if rows.shape[1:] != self.storage.shape[1:]:
            raise CheckpointError(
                f"The checkpoint's replay has rows of {tuple(rows.shape[1:])} numbers, and this one of "
                f"{tuple(self.storage.shape[1:])}: give the environment and the settings that it was made with."
            )
        kept = rows[max(self.written - self.steps - first, 0) :]
        self.storage[self._slots(first + len(rows) - len(kept), len(kept))] = kept.to(self.storage.device)
        self._mark_cuts()

    def hold(self, rows: Tensor) -> None:
        """Hold these rows and no others, as if they were all that was ever added."""
        self.load_state_dict({**self.state_dict(), "written": len(rows), "cuts": []})
        self.put(0, rows)

    def state_dict(self) -> Tree:
        """All but the rows: how many were written, after which the environments began anew, and the generator."""
        return {"written": self.written, "cuts": self.cuts, "generator": self.generator.get_state()}

    def load_state_dict(self, state: Tree) -> None:
        """Take over a state made by `state_dict` of a replay of the same size; its rows follow by `put`."""
        self.written, self.cuts = state["written"], list(state["cuts"])
        self.state["newest"].fill_((self.written - 1) % self.steps)
        restore_generator(self.generator, state["generator"])

    def _slots(self, first: int, count: int) -> Tensor:
        return torch.arange(first, first + count, device=self.storage.device) % self.steps

    def _mark_cuts(self) -> None:
        """Mark the rows after which the environments began anew: on disk they are as they were added."""
        self.cuts = [row for row in self.cuts if row >= self.written - self.steps]
        for row in self.cuts:
            marked = self.by_field(self.storage[row % self.steps])
            marked["truncated"].copy_(1 - marked["terminated"])

    def by_field(self, rows: Tensor) -> dict[str, Tensor]:
        """The columns of rows by name."""
        return dict(zip(self.widths, rows.split(self._sizes, -1), strict=True))


class Writer:
    """Keeps steps in one replay, or in several that are equally full and whose rows lie stacked in `state`."""

    def __init__(self, replays: Sequence[Replay], state: Tree) -> None:
        first, self._replays, self._state = replays[0], list(replays), state
        sizes = list(first.widths.values())
        on_gpu = state["storage"].is_cuda
        self._step = torch.zeros(len(replays) * first.num_envs, sum(sizes), pin_memory=on_gpu)
        columns = np.split(self._step.numpy(), np.cumsum(sizes)[:-1], -1)
        self._columns = dict(zip(first.widths, columns, strict=True))

    def add(self, fields: Mapping[str, Array]) -> None:
        """Keep one step of all environments, those of one replay after another's; fields without a place are left."""
        for name, columns in self._columns.items():
            columns[:] = fields[name].reshape(columns.shape)
        place = self._replays[0].written % self._replays[0].steps
        rows = self._state["storage"].select(-3, place)
        rows.copy_(self._step.view(rows.shape), non_blocking=True)
        self._state["newest"].fill_(place)
        for replay in self._replays:
            replay.written += 1
