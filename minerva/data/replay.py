"""A replay: the last steps of E environments in preallocated memory. Every row is data; there are no reset rows.

Fields of one dtype lie side by side in one tensor, so that keeping a step is one copy and sampling a batch one gather
for each dtype that occurs.
"""

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor

from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.seeding import generator, restore_generator
from minerva.compute.tree import Tree
from minerva.data.fields import Field, Fields
from minerva.errors import CheckpointError
from minerva.spec import Array

FLAGS = ("terminated", "truncated")
"""Kept as numbers, last among the float32 columns."""


class Replay:
    """Keeps the newest `capacity` transitions and gives them back in random batches.

    `fields` are those of `transition_fields`, `actions_executed` and what else the learner wants.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        fields: Fields,
        device: torch.device,
        seed: int = 0,
        ranks: Ranks = SINGLE,
    ) -> None:
        """`ranks` have a replay each and draw from them what is learned from together."""
        others = {name: field for name, field in fields.items() if name not in FLAGS}
        self.fields = {**others, **dict.fromkeys(FLAGS, Field())}
        self.num_envs = num_envs
        self.steps = max(capacity // num_envs, 1)
        self.columns = _columns(self.fields)
        storage = {
            _name(dtype): torch.zeros(self.steps, num_envs, sum(sizes.values()), dtype=dtype, device=device)
            for dtype, sizes in self.columns.items()
        }
        self.state: Tree = {"storage": storage, "newest": torch.zeros((), dtype=torch.int64, device=device)}
        self.written = 0
        self.cuts: list[int] = []
        self.ranks = ranks
        self.generator = generator(seed, "replay", torch.device("cpu"))

    def __len__(self) -> int:
        return min(self.written, self.steps) * self.num_envs

    @property
    def device(self) -> torch.device:
        """Where the rows lie."""
        device: torch.device = self.state["newest"].device
        return device

    def add(self, **fields: Tensor) -> None:
        """Keep one step of all environments: every field as [E, ...]."""
        ReplayWriter([self], self.state).add(fields)

    def cut(self) -> None:
        """Mark that what is added next does not follow the newest rows, as after a restart of the environments."""
        if self.written:
            self.cuts.append(self.written - 1)
            self._mark_cuts()

    def sample(self, size: int) -> dict[str, Tensor]:
        """Draw transitions, every one equally likely.  [size, ...] by field"""
        return self.transitions(self.state, self.starts(size).to(self.device))

    def sample_sequences(self, size: int, length: int) -> dict[str, Tensor]:
        """Draw sequences, every start equally likely.  [size, length, ...] by field"""
        return self.sequences(self.state, self.starts(size).to(self.device), length)

    def starts(self, size: int) -> Tensor:
        """Draw random rows, to be given to `transitions` or `sequences`.  [size]

        Drawn on the CPU: for a few hundred indices a kernel launch costs more.
        """
        drawn = torch.randint(len(self), (self.ranks.count * size,), generator=self.generator)
        return self.ranks.local_shard(drawn)

    def transitions(self, state: Tree, starts: Tensor) -> dict[str, Tensor]:
        """Return the rows at `starts`."""
        taken = {name: rows.flatten(0, 1).index_select(0, starts) for name, rows in state["storage"].items()}
        return self.by_field(taken)

    def sequences(self, state: Tree, starts: Tensor, length: int) -> dict[str, Tensor]:
        """Return sequences from `starts` on, none crossing an episode's end.

        One that reaches its end earlier, or the newest row, repeats its last row, which then is marked as
        terminated or truncated: whatever follows a mark is to be left out.
        """
        rows = state["storage"]["float32"].flatten(0, 1)
        first = starts.unsqueeze(-1)
        steps, envs = first // self.num_envs, first % self.num_envs
        ahead = (steps + torch.arange(length, device=starts.device)) % self.steps
        flags = rows[:, -2:].index_select(0, (ahead * self.num_envs + envs).flatten()).view(*ahead.shape, 2)
        ends = (flags > 0).any(-1) | (ahead == state["newest"])
        goes_on = torch.cumprod(~ends[:, :-1], 1)
        offsets = torch.cat((torch.zeros_like(first), goes_on.cumsum(1)), 1)  # 0, 1, 2, ... and no further than the end
        places = ahead.gather(1, offsets) * self.num_envs + envs
        batch = self.by_field(
            {
                name: values.flatten(0, 1).index_select(0, places.flatten()).view(*places.shape, -1)
                for name, values in state["storage"].items()
            }
        )
        batch["truncated"] = ends.gather(1, offsets).float() - batch["terminated"]
        return batch

    def by_field(self, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the columns of rows by the name of their field, each in its own shape."""
        found: dict[str, Tensor] = {}
        for dtype, sizes in self.columns.items():
            for name, part in zip(sizes, rows[_name(dtype)].split(list(sizes.values()), -1), strict=True):
                shape = self.fields[name].shape
                found[name] = part.unflatten(-1, shape) if shape else part.squeeze(-1)
        return found

    def move(self, state: Tree) -> None:
        """Keep the rows in these tensors, which hold the same numbers, from now on."""
        self.state = state

    def since(self, first: int) -> Tree:
        """Return the rows from number `first` on, of all that were ever added.  [rows, E, width] by dtype"""
        slots = self._slots(first, self.written - first)
        return {name: rows[slots].cpu() for name, rows in self.state["storage"].items()}

    def put(self, first: int, rows: Tree) -> None:
        """Take back rows that `since` gave, in a replay that knows by its state how many were written."""
        for name, storage in self.state["storage"].items():
            if name not in rows or rows[name].shape[1:] != storage.shape[1:]:
                raise CheckpointError(
                    f"The checkpoint's replay has other rows than this one, of {tuple(storage.shape[1:])} {name} "
                    "numbers: give the environment and the settings that it was made with."
                )
            kept = rows[name][max(self.written - self.steps - first, 0) :]
            storage[self._slots(first + len(rows[name]) - len(kept), len(kept))] = kept.to(storage.device)
        self._mark_cuts()

    def hold(self, rows: Tree) -> None:
        """Hold these rows and no others, as if they were all that was ever added."""
        self.load_state_dict({**self.state_dict(), "written": len(next(iter(rows.values()))), "cuts": []})
        self.put(0, rows)

    def state_dict(self) -> Tree:
        """Return all but the rows: how many were written, after which a restart came, and the generator."""
        return {"written": self.written, "cuts": self.cuts, "generator": self.generator.get_state()}

    def load_state_dict(self, state: Tree) -> None:
        """Take over a state made by `state_dict` of a replay of the same size; its rows follow by `put`."""
        self.written, self.cuts = state["written"], list(state["cuts"])
        self.state["newest"].fill_((self.written - 1) % self.steps)
        restore_generator(self.generator, state["generator"])

    def _slots(self, first: int, count: int) -> Tensor:
        return torch.arange(first, first + count, device=self.device) % self.steps

    def _mark_cuts(self) -> None:
        """Mark the rows after which the environments began anew: on disk they are as they were added."""
        self.cuts = [row for row in self.cuts if row >= self.written - self.steps]
        for row in self.cuts:
            marked = self.by_field({name: rows[row % self.steps] for name, rows in self.state["storage"].items()})
            marked["truncated"].copy_(1 - marked["terminated"])


class ReplayWriter:
    """Keeps steps in one replay, or in several that are equally full and whose rows lie stacked in `state`."""

    def __init__(self, replays: Sequence[Replay], state: Tree, source: torch.device | None = None) -> None:
        """`source` is the device that steps come from: from the CPU a GPU is sent them in one copy a dtype."""
        first, self._replays, self._state = replays[0], list(replays), state
        self._first = first
        pinned, rows = first.device.type == "cuda", len(replays) * first.num_envs
        self._staged: dict[str, Tensor] = {}
        self._columns: dict[str, Array] = {}
        if source is None or source.type == "cpu":
            for dtype, sizes in first.columns.items():
                staged = torch.zeros(rows, sum(sizes.values()), dtype=dtype, pin_memory=pinned)
                self._staged[_name(dtype)] = staged
                parts = staged.split(list(sizes.values()), -1)
                self._columns |= {name: part.numpy() for name, part in zip(sizes, parts, strict=True)}

    def add(self, fields: Mapping[str, Tensor]) -> None:
        """Keep one step of all environments, those of one replay after another's; other fields are left out."""
        place = self._first.written % self._first.steps
        slots = {name: rows.select(-3, place) for name, rows in self._state["storage"].items()}
        for name, columns in self._columns.items():
            columns[:] = fields[name].numpy().reshape(columns.shape)
        for name, staged in self._staged.items():
            slots[name].copy_(staged.view(slots[name].shape), non_blocking=True)
        if not self._staged:
            for name, column in self._first.by_field(slots).items():
                column.copy_(fields[name].reshape(column.shape))
        self._state["newest"].fill_(place)
        for replay in self._replays:
            replay.written += 1


def _columns(fields: Fields) -> dict[torch.dtype, dict[str, int]]:
    """Return how many numbers each field takes in the storage of its dtype."""
    found: dict[torch.dtype, dict[str, int]] = {}
    for name, field in fields.items():
        found.setdefault(field.dtype, {})[name] = prod(field.shape)
    return found


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
