"""Images in a replay: each frame is stored once, although it belongs to several observations.

An image may be a stack of the newest k frames of an episode, which shares k - 1 of them with the next observation. A
row of the replay holds the newest frame of each image alone, and its `age`: how many frames of its episode came before,
up to k - 1. The older frames are those of the rows before it; before there were k, the episode's first one is repeated.
The newest frame of the next observation is that of the next row. Only where another episode follows is there no such
row: these frames are kept in a pool, `finals`.
"""

from math import prod

import torch
from torch import Tensor

from minerva.compute.tree import Tree
from minerva.data.fields import Field, Fields
from minerva.errors import TrainingError
from minerva.layout import NUMBER_BYTES
from minerva.spec import ObservationSpec

FINAL_SHARE = 10
"""The pool has a place for one row in this many: with shorter episodes the replay holds fewer rows than it could."""


class Frames:
    """How the rows of observations with images are taken apart, stored and rebuilt, for the E environments of a replay.

    `steps` are those of which transitions can be sampled. The storage has `depth` more: the frames before the oldest of
    them, and the frame after the newest.
    """

    def __init__(self, observation: ObservationSpec, steps: int, num_envs: int) -> None:
        counts = observation.frames or (1,) * len(observation.images)
        shapes = zip(counts, observation.images, strict=True)
        self.stacks = [(count, prod(shape) // count) for count, (_, *shape) in shapes]
        """Frames of each image, and bytes of a frame."""
        self.depth = max(counts)
        self.numbers, self.row = observation.numbers * NUMBER_BYTES, observation.size
        self.size = sum(size for _, size in self.stacks)
        self.steps, self.slots, self.num_envs = steps, steps + self.depth, num_envs
        self.pool = steps * num_envs // FINAL_SHARE + num_envs
        self.ages = torch.zeros(num_envs, dtype=torch.uint8)
        """Age of the next observations' newest frames."""
        self.next = torch.zeros(num_envs, self.size, dtype=torch.uint8)
        """The next observations' newest frames."""
        self.oldest = 0
        """Number of the oldest row whose frames are all there."""
        self.cut_frames: dict[int, Tensor] = {}
        """By the number of a row before a cut: the newest frames of the observations that followed it."""
        self._forget_finals()

    def _forget_finals(self) -> None:
        self._finals = 0  # how many were ever put into the pool
        self._rows_of = torch.full((self.pool,), -1, dtype=torch.int64)  # number of the row that each place belongs to

    @property
    def fields(self) -> Fields:
        """The fields that a row has in place of `obs` and `next_obs`."""
        numbers = {"numbers": self.numbers, "next_numbers": self.numbers} if self.numbers else {}
        sizes = {**numbers, "frames": self.size, "age": 1}
        return {name: Field((size,), torch.uint8) for name, size in sizes.items()}

    def allocated(self, device: torch.device) -> Tree:
        """Return the tensors beside the storage: the pool, and the place in it that each row's frame has, or -1."""
        return {
            "finals": torch.zeros(self.pool, self.size, dtype=torch.uint8, device=device),
            "final_of": torch.full((self.slots, self.num_envs), -1, dtype=torch.int64, device=device),
        }

    # --- from rows to frames --------------------------------------------------------------------------------

    def stacked(self, rows: Tensor) -> list[Tensor]:
        """Return the frames of each image in rows.  [n, row] -> [n, frames, bytes] each"""
        parts, first = [], self.numbers
        for count, size in self.stacks:
            parts.append(rows[:, first : first + count * size].unflatten(-1, (count, size)))
            first += count * size
        return parts

    def newest(self, rows: Tensor) -> Tensor:
        """Return the newest frame of each image, one after another.  [n, row] -> [n, size]"""
        return torch.cat([stack[:, -1] for stack in self.stacked(rows)], -1)

    def taken_apart(self, obs: Tensor, next_obs: Tensor, ages: Tensor, expected: Tensor) -> tuple[Tree, Tensor]:
        """Return the fields that a step stores, and the newest frames of its next observations.  [n, row] -> [n, size]

        Raise TrainingError if these are not stacks of an episode's newest frames, as their space says.
        """
        first = ages == 0
        newest, following = self.newest(obs), self.newest(next_obs)
        fits = torch.equal(newest[~first], expected[~first])
        for before, after in zip(self.stacked(obs), self.stacked(next_obs), strict=True):
            fits &= torch.equal(before[:, 1:], after[:, :-1])
            fits &= bool((before[first] == before[first][:, -1:]).all())
        if not fits:
            raise TrainingError(
                "The observations are not stacks of an episode's newest frames, as their space says: give no space "
                "with frames to what changes single observations."
            )
        fields = {"frames": newest, "age": ages.unsqueeze(-1)}
        if self.numbers:
            fields |= {"numbers": obs[:, : self.numbers], "next_numbers": next_obs[:, : self.numbers]}
        return fields, following

    def follow(self, state: Tree, number: int, ended: Tensor, following: Tensor) -> None:
        """Note what follows the row of this number: other episodes in the environments that `ended`.  [E], [E, size]"""
        place = number % self.slots
        state["final_of"][place].fill_(-1)
        self.ages = torch.where(ended, 0, (self.ages + 1).clamp(max=max(self.depth - 1, 1))).to(torch.uint8)
        self.next = following
        self._keep(state, number, ended, following)
        self.cut_frames = {row: frames for row, frames in self.cut_frames.items() if row > number - self.slots}

    def cut(self, state: Tree, number: int) -> None:
        """Note that other episodes follow the row of this number, the newest, in all environments."""
        self._keep(state, number, state["final_of"][number % self.slots].cpu() < 0, self.next)
        self.cut_frames[number] = self.next
        self.ages = torch.zeros_like(self.ages)

    def _keep(self, state: Tree, number: int, which: Tensor, frames: Tensor) -> None:
        """Put frames that follow a row in these environments into the pool.  [E], [E, size]"""
        envs = which.nonzero().squeeze(-1)
        if not len(envs):
            return
        places = (self._finals + torch.arange(len(envs))) % self.pool
        self.oldest = max(self.oldest, int(self._rows_of[places].max()) + 1)  # what these replace is lost
        self._rows_of[places] = number
        self._finals += len(envs)
        device = state["finals"].device
        state["finals"][places.to(device)] = frames[envs].to(device)
        state["final_of"][number % self.slots, envs.to(device)] = places.to(device)

    # --- from frames to rows --------------------------------------------------------------------------------

    def observations(self, state: Tree, places: Tensor, fields: Tree) -> Tree:
        """Return `obs` and `next_obs` of the rows at these places, whose own fields are given.  [n] -> [n, row] each"""
        steps, envs = (places // self.num_envs).unsqueeze(-1), (places % self.num_envs).unsqueeze(-1)
        back = torch.arange(self.depth - 1, -1, -1, device=places.device)
        before = steps - torch.minimum(back, fields["age"].long())
        needed = torch.cat((before, steps + 1), -1) % self.slots * self.num_envs + envs
        storage = state["storage"]["uint8"].flatten(0, 1)
        first = storage.shape[-1] - self.size - 1  # the last columns are the frames and their age
        found = storage.index_select(0, needed.flatten())[:, first:-1].unflatten(0, needed.shape)
        final = state["final_of"].flatten().index_select(0, places).unsqueeze(-1)
        ended = state["finals"].index_select(0, final.squeeze(-1).clamp(min=0))
        following = torch.where(final >= 0, ended, found[:, -1])
        frames = torch.cat((found[:, :-1], following.unsqueeze(1)), 1)
        obs = self._row(fields.get("numbers"), frames[:, :-1])
        return {"obs": obs, "next_obs": self._row(fields.get("next_numbers"), frames[:, 1:])}

    def _row(self, numbers: Tensor | None, frames: Tensor) -> Tensor:
        """Return rows with these numbers and newest `depth` frames.  [n, bytes], [n, depth, size] -> [n, row]"""
        parts, first = [] if numbers is None else [numbers], 0
        for count, size in self.stacks:
            parts.append(frames[:, self.depth - count :, first : first + size].flatten(1))
            first += size
        filling = self.row - sum(part.shape[-1] for part in parts)
        return torch.cat([*parts, parts[0].new_zeros((len(frames), filling))], -1)

    # --- saving ---------------------------------------------------------------------------------------------

    def finals_of(self, state: Tree, slots: Tensor, ended: Tensor, padded: bool) -> Tensor:
        """Return the frames after the ended rows of these slots, in their order.  [n], [n, E] -> [m, E, size]

        m is the largest number of them in an environment or, `padded`, n: the same on all ranks.
        """
        most = len(slots) if padded else int(ended.sum(0).max()) if len(slots) else 0
        frames = torch.zeros(most, self.num_envs, self.size, dtype=torch.uint8)
        rows, envs = ended.nonzero(as_tuple=True)
        places = state["final_of"][slots][rows, envs]
        frames[(ended.long().cumsum(0) - 1)[rows, envs].cpu(), envs.cpu()] = state["finals"][places].cpu()
        return frames

    def put_finals(self, state: Tree, first: int, ended: Tensor, frames: Tensor, skipped: int) -> None:
        """Restore what `finals_of` returned for rows from number `first` on, but for the first `skipped`."""
        order = ended.long().cumsum(0) - 1
        for row in range(skipped, len(ended)):
            number, which = first + row, ended[row]
            state["final_of"][number % self.slots].fill_(-1)
            if not which.any() and number not in self.cut_frames:
                continue
            following = self.cut_frames.get(number, torch.zeros_like(self.next)).clone()
            envs = which.nonzero().squeeze(-1)
            following[envs] = frames[order[row, envs], envs]
            self._keep(state, number, which | (number in self.cut_frames), following)

    def put_next(self, state: Tree, written: int) -> None:
        """Write the frames that follow the newest row to their place in the storage."""
        following = state["storage"]["uint8"][written % self.slots][:, -self.size - 1 : -1]
        following.copy_(self.next)

    def state_dict(self) -> Tree:
        """Return everything but rows and pool; each tensor has the environments first."""
        none = torch.zeros(0, self.num_envs, self.size, dtype=torch.uint8)
        cut = torch.cat([none, *(frames.unsqueeze(0) for frames in self.cut_frames.values())])
        oldest = torch.full((self.num_envs,), self.oldest, dtype=torch.int64)
        tensors = {"ages": self.ages, "next_frames": self.next, "cut_frames": cut.transpose(0, 1), "oldest": oldest}
        return {**tensors, "cut_rows": list(self.cut_frames)}

    def load_state_dict(self, state: Tree) -> None:
        """Load a state made by `state_dict`; restore the pool with `put_finals`."""
        self.ages, self.next, self.oldest = state["ages"], state["next_frames"], int(state["oldest"][0])
        self.cut_frames = dict(zip(state["cut_rows"], state["cut_frames"].unbind(1), strict=True))
        self._forget_finals()

    def forget_history(self, count: int) -> None:
        """Expect `count` rows, numbered from 0, of which the first may lack the frames before them."""
        self.oldest, self.cut_frames = max(min(self.depth, count) - 1, 0), {}
        self._forget_finals()
