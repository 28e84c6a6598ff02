"""Replay buffer: the last steps of E environments in preallocated memory. Every row is data; there are no reset rows.

Fields of one dtype are columns of one tensor, so that adding a step takes one copy per dtype and sampling a batch one
gather per dtype. Of images, each frame is stored once (`frames.py`).
"""

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor

from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.seeding import generator, restore_generator
from minerva.compute.tree import Tree, copy_
from minerva.data.fields import OBSERVATIONS, Field, Fields
from minerva.data.frames import Frames
from minerva.data.normalizers import ReturnScale
from minerva.errors import CheckpointError, ConfigError
from minerva.layout import Array
from minerva.spec import ObservationSpec

FLAGS = ("terminated", "truncated")
"""Stored as numbers, in the last of the float32 columns."""


class Replay:
    """A replay buffer of the newest `capacity` transitions, sampled uniformly.

    `fields` are those of `transition_fields`, `actions_executed` and any others that the learner needs.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        fields: Fields,
        device: torch.device,
        seed: int = 0,
        ranks: Ranks = SINGLE,
        observation: ObservationSpec | None = None,
        sampled_on: torch.device | None = None,
    ) -> None:
        """Allocate the storage. Each of `ranks` has its own replay and samples its slice of a batch from it.

        `observation` tells of images, whose frames are then stored once. Indices of rows are sampled on the device
        `sampled_on`, the engine's; None: the CPU.
        """
        self.num_envs, self.kept = num_envs, max(capacity // num_envs, 1)
        self.steps = self.kept
        """Steps of the storage; of these, the newest `kept` are sampled."""
        self.frames: Frames | None = None
        others = {name: field for name, field in fields.items() if name not in FLAGS}
        if observation is not None and observation.images:
            self.frames = Frames(observation, self.kept, num_envs)
            self.steps = self.frames.slots
            others = {name: field for name, field in others.items() if name not in OBSERVATIONS}
            others |= self.frames.fields
        self.fields = {**others, **dict.fromkeys(FLAGS, Field())}
        self.columns = _columns(self.fields)
        self.state: Tree = self._allocated(capacity * ranks.count, device)
        self.written = 0
        self.cuts: list[int] = []
        self.ranks = ranks
        self.generator = generator(seed, "replay", sampled_on or torch.device("cpu"))

    def _allocated(self, replay_size: int, device: torch.device) -> Tree:
        """Return the storage of each dtype [steps, E, width], and the rest; raise ConfigError without enough memory."""
        shapes = {dtype: (self.steps, self.num_envs, sum(sizes.values())) for dtype, sizes in self.columns.items()}
        try:
            rows = {_name(dtype): torch.zeros(shape, dtype=dtype, device=device) for dtype, shape in shapes.items()}
            rest = {} if self.frames is None else self.frames.allocated(device)
            return {"storage": rows, "newest": torch.zeros((), dtype=torch.int64, device=device), **rest}
        except (RuntimeError, TypeError, OverflowError):  # too little memory, or more than a number can count
            needed = sum(prod(shape) * dtype.itemsize for dtype, shape in shapes.items())
            raise ConfigError(
                f"replay_size is {replay_size:,}: the replay needs {needed:,} bytes ({needed / 2**30:,.1f} GiB), more "
                f"than {device} has free. Give a smaller replay_size."
            ) from None

    def __len__(self) -> int:
        return (self.written - self._oldest) * self.num_envs

    @property
    def _oldest(self) -> int:
        """Number of the oldest step that is sampled."""
        return max(self.written - self.kept, 0 if self.frames is None else self.frames.oldest)

    @property
    def device(self) -> torch.device:
        """Device of the storage."""
        device: torch.device = self.state["newest"].device
        return device

    def add(self, **fields: Tensor) -> None:
        """Add one step of all environments: every field as [E, ...]."""
        ReplayWriter([self], self.state).add(fields)

    def cut(self) -> None:
        """Mark the newest rows as not followed by the next ones, as after a reset of the environments."""
        if self.written:
            self.cuts.append(self.written - 1)
            if self.frames is not None:
                self.frames.cut(self.state, self.written - 1)
            self._mark_cuts()

    def sample(self, size: int) -> dict[str, Tensor]:
        """Sample transitions uniformly.  [size, ...] by field"""
        return self.transitions(self.state, self.starts(size).to(self.device))

    def sample_sequences(self, size: int, length: int) -> dict[str, Tensor]:
        """Sample sequences with uniform starts.  [size, length, ...] by field"""
        return self.sequences(self.state, self.starts(size).to(self.device), length)

    def starts(self, size: int) -> Tensor:
        """Sample indices of rows uniformly, for `transitions` or `sequences`.  [size]

        For environments on the CPU they are sampled there: for a few hundred indices a kernel launch costs more. For
        thousands on a GPU, whose batches are as large, the GPU would wait for their copy.
        """
        source, count = self.generator, self.ranks.count * size
        drawn = torch.randint(len(self), (count,), generator=source, device=source.device)
        if self.frames is not None:  # the oldest steps of the storage only complete the frames of others
            drawn = (drawn + self._oldest * self.num_envs) % (self.steps * self.num_envs)
        return self.ranks.local_shard(drawn)

    def transitions(self, state: Tree, starts: Tensor) -> dict[str, Tensor]:
        """Return the transitions at the row indices `starts`.  [size, ...] by field"""
        sampled = {name: rows.flatten(0, 1).index_select(0, starts) for name, rows in state["storage"].items()}
        return self._with_images(state, starts, self.by_field(sampled))

    def sequences(self, state: Tree, starts: Tensor, length: int) -> dict[str, Tensor]:
        """Return sequences that begin at the row indices `starts`; none crosses an episode's end.

        A sequence that reaches an episode's end or the newest row repeats that row, flagged terminated or truncated:
        ignore everything after the first flag.
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
        found = self.transitions(state, places.flatten())
        batch = {name: values.unflatten(0, places.shape) for name, values in found.items()}
        batch["truncated"] = ends.gather(1, offsets).float() - batch["terminated"]
        return batch

    def _with_images(self, state: Tree, places: Tensor, fields: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the fields of rows at these places with observations in place of what the storage has of them."""
        if self.frames is None:
            return fields
        others = {name: values for name, values in fields.items() if name not in self.frames.fields}
        return {**self.frames.observations(state, places, fields), **others}

    def by_field(self, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Split the columns of rows by field, each in its field's shape."""
        fields: dict[str, Tensor] = {}
        for dtype, sizes in self.columns.items():
            for name, part in zip(sizes, rows[_name(dtype)].split(list(sizes.values()), -1), strict=True):
                shape = self.fields[name].shape
                fields[name] = part.unflatten(-1, shape) if shape else part.squeeze(-1)
        return fields

    def move(self, state: Tree) -> None:
        """Use these tensors, which hold equal values, as the storage."""
        self.state = state

    def since(self, first: int, end: int | None = None) -> Tree:
        """Return the rows from number `first` to `end`, counted from the first ever added.  [rows, E, width] by dtype

        None: to the newest.
        """
        slots = self._slots(first, (self.written if end is None else end) - first)
        rows = {name: rows[slots].cpu() for name, rows in self.state["storage"].items()}
        if self.frames is not None:
            ended = (self.state["storage"]["float32"][slots][..., -2:] > 0).any(-1)
            rows["finals"] = self.frames.finals_of(self.state, slots, ended, padded=self.ranks.count > 1)
        return rows

    def newest(self, steps: int) -> dict[str, Tensor]:
        """Return the transitions of the newest `steps` steps, or of as many as there are.  [steps * E, ...] by field"""
        count = min(steps, len(self) // self.num_envs)
        slots = self._slots(self.written - count, count).unsqueeze(-1)
        places = slots * self.num_envs + torch.arange(self.num_envs, device=self.device)
        return self.transitions(self.state, places.flatten())

    def put(self, first: int, rows: Tree) -> None:
        """Restore rows that `since` returned, after `load_state_dict` has restored how many were written."""
        for name, storage in self.state["storage"].items():
            if name not in rows or rows[name].shape[1:] != storage.shape[1:]:
                raise CheckpointError(
                    f"The checkpoint's replay has other rows than this one, of {tuple(storage.shape[1:])} {name} "
                    "numbers: give the environment and the settings that it was made with."
                )
            newest = rows[name][max(self.written - self.steps - first, 0) :]
            storage[self._slots(first + len(rows[name]) - len(newest), len(newest))] = newest.to(storage.device)
        if self.frames is not None:
            ended = (rows["float32"][..., -2:] > 0).any(-1)
            self.frames.put_finals(self.state, first, ended, rows["finals"], max(self.written - self.steps - first, 0))
            self.frames.put_next(self.state, self.written)
        self._mark_cuts()

    def hold(self, count: int) -> None:
        """Forget all rows, and expect `count` from `put`, numbered from 0, as if no others had ever been added."""
        self.load_state_dict({**self.state_dict(), "written": count, "cuts": []})
        if self.frames is not None:
            self.frames.forget_history(count)

    def state_dict(self) -> Tree:
        """Return everything but rows and frames: how many were written, the cuts, and the generator's state."""
        return {"written": self.written, "cuts": self.cuts, "generator": self.generator.get_state()}

    def load_state_dict(self, state: Tree) -> None:
        """Load a state made by `state_dict` of a replay of equal size; restore its rows with `put`."""
        self.written, self.cuts = state["written"], list(state["cuts"])
        self.state["newest"].fill_((self.written - 1) % self.steps)
        restore_generator(self.generator, state["generator"])

    def _slots(self, first: int, count: int) -> Tensor:
        """Return the positions in the ring buffer of `count` rows from number `first` on."""
        return torch.arange(first, first + count, device=self.device) % self.steps

    def _mark_cuts(self) -> None:
        """Flag the rows before each cut as truncated; saved rows do not hold these flags."""
        self.cuts = [row for row in self.cuts if row >= self.written - self.steps]
        for row in self.cuts:
            marked = self.by_field({name: rows[row % self.steps] for name, rows in self.state["storage"].items()})
            marked["truncated"].copy_(1 - marked["terminated"])


class ReplayWriter:
    """Adds steps to one replay, or to several equally full ones whose storage is stacked in `state`."""

    def __init__(
        self, replays: Sequence[Replay], state: Tree, source: torch.device | None = None, returns: Tree | None = None
    ) -> None:
        """`source` is the device of the steps: from the CPU to a GPU they are staged and sent in one copy per dtype.

        `returns` is the state of the replays' `ReturnScale`, which then follows the rewards.
        """
        first, self._replays, self._state, self._returns = replays[0], list(replays), state, returns
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
        """Add one step of all environments, ordered replay by replay; fields that the replay lacks are ignored."""
        place = self._first.written % self._first.steps
        slots = {name: rows.select(-3, place) for name, rows in self._state["storage"].items()}
        if self._first.frames is not None:
            fields = self._with_frames(self._first.frames, fields)
        for name, columns in self._columns.items():
            columns[:] = fields[name].numpy().reshape(columns.shape)
        for name, staged in self._staged.items():
            slots[name].copy_(staged.view(slots[name].shape), non_blocking=True)
        if not self._staged:
            for name, column in self._first.by_field(slots).items():
                column.copy_(fields[name].reshape(column.shape))
        self._state["newest"].fill_(place)
        if self._returns is not None:
            new = self._first.by_field(slots)
            ended = torch.maximum(new["terminated"], new["truncated"])
            copy_(self._returns, ReturnScale.followed(self._returns, new["rewards"], ended))
        for replay in self._replays:
            replay.written += 1

    def _with_frames(self, frames: Frames, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the fields of a step in the form in which images are stored, and note what follows it."""
        each = [replay.frames for replay in self._replays if replay.frames is not None]
        ages, expected = torch.cat([one.ages for one in each]), torch.cat([one.next for one in each])
        obs, next_obs = (fields[name].cpu().flatten(1) for name in OBSERVATIONS)
        stored, following = frames.taken_apart(obs, next_obs, ages, expected)
        ended = ((fields["terminated"] > 0) | (fields["truncated"] > 0)).cpu().flatten()
        after = self._state["storage"]["uint8"].select(-3, (self._first.written + 1) % self._first.steps)
        after[..., -frames.size - 1 : -1].copy_(following.view(*after.shape[:-1], -1))
        parts = zip(self._replays, each, ended.chunk(len(each)), following.chunk(len(each)), strict=True)
        for replay, one, over, frame in parts:
            one.follow(replay.state, replay.written, over, frame)
        return {**fields, **{name: values.to(fields["rewards"].device) for name, values in stored.items()}}


def _columns(fields: Fields) -> dict[torch.dtype, dict[str, int]]:
    """Return the width of each field in the storage of its dtype."""
    columns: dict[torch.dtype, dict[str, int]] = {}
    for name, field in fields.items():
        columns.setdefault(field.dtype, {})[name] = prod(field.shape)
    return columns


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
