"""A run's checkpoints: the last, the previous and the best, and the replay's rows, each row written once.

Saving writes the rows that are new since the last checkpoint as more files (segments), then the checkpoint that lists
all segments of the replay's window, and removes segments that neither it nor the previous checkpoint needs. So there is
a complete checkpoint at every moment. Rows are written and read one segment at a time: a replay may fill the memory.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

from minerva.compute.tree import Tree
from minerva.errors import CheckpointError, TrainingError
from minerva.runs import files
from minerva.runs.checkpoint import Checkpoint, load_checkpoint, non_finite, read_checkpoint, save_checkpoint
from minerva.runs.folder import RunFolder

logger = logging.getLogger("minerva")

SEGMENTS = "replay_segments"
SEGMENT_BYTES = 1 << 24
"""Largest size of a segment; a row larger than that is a segment of its own."""


class ReplayRows(Protocol):
    """A replay as the store sees it: consecutively numbered rows, of which it holds the newest `steps`."""

    steps: int
    written: int

    def since(self, first: int, end: int) -> Tree:
        """Return the rows of indices [first, end), as tensors by dtype."""

    def put(self, first: int, rows: Tree) -> None:
        """Write rows returned by `since(first, end)` back."""

    def hold(self, count: int) -> None:
        """Forget all rows, and expect `count` from `put`, of indices from 0."""


class Segment(NamedTuple):
    """A file with the rows of indices [first, end), and its digest."""

    first: int
    end: int
    digest: str


class SavedRows:
    """The replay's rows on disk. Iterating reads one segment after the other, each with the index of its first row."""

    def __init__(self, segments: Sequence[Segment], read: Callable[[Segment], Tree]) -> None:
        self.segments, self._read = segments, read

    def __len__(self) -> int:
        return len(self.segments)

    def __iter__(self) -> Iterator[tuple[int, Tree]]:
        for segment in self.segments:
            yield segment.first, self._read(segment)

    def put_into(self, replay: ReplayRows, renumbered: bool) -> None:
        """Put the rows into a replay. `renumbered`: as its only rows, of indices from 0."""
        first = self.segments[0].first if renumbered else 0
        if renumbered:
            replay.hold(self.segments[-1].end - first)
        for index, rows in self:
            replay.put(index - first, rows)


class LoadedCheckpoint(NamedTuple):
    """A checkpoint read from disk, with its path and the replay's rows."""

    path: Path
    checkpoint: Checkpoint
    rows: SavedRows
    segments: list[Segment]
    """Files of these rows; empty if earlier rows could not be read, because the rows are then renumbered."""

    @property
    def rows_lost(self) -> bool:
        """Return whether rows before these could not be read."""
        return bool(self.rows) and not self.segments


class CheckpointStore:
    """Storage of the checkpoints in a run's folder."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._segments: list[Segment] = []  # of the last good checkpoint
        self._last_is_good = True

    def save(self, checkpoint: Checkpoint, rows: ReplayRows | None = None, best: bool = False) -> None:
        """Save a checkpoint as the last one and keep the former last as the previous. `best`: save it as best first.

        A run killed in between evaluates again when it is resumed, and finds the same best again.
        """
        _refuse_non_finite(checkpoint)
        segments = self._with_new_rows(rows) if rows is not None else []
        state = {**checkpoint.state, SEGMENTS: [list(segment) for segment in segments]}
        backup = self.folder.previous if self._last_is_good else None
        copy = self.folder.best if best else None
        save_checkpoint(self.folder.last, Checkpoint(checkpoint.about, state), backup=backup, copy=copy)
        needed = {self._path(segment) for segment in (*segments, *self._segments)}
        self._segments, self._last_is_good = segments, True
        for path in set(self.folder.last.parent.glob(f"{self.folder.algo}_replay_*{self.folder.suffix}")) - needed:
            files.remove(path)

    def exists(self) -> bool:
        """Return whether there is a checkpoint to resume from."""
        return self.folder.last.exists() or self.folder.previous.exists()

    def steps(self) -> set[int]:
        """Return the steps of the checkpoints that the run can be resumed from."""
        found: set[int] = set()
        for path in (self.folder.last, self.folder.previous):
            with contextlib.suppress(CheckpointError, KeyError, TypeError):
                found.add(load_checkpoint(path).state["step"])
        return found

    def newest(self, step: int | None = None) -> LoadedCheckpoint:
        """Load the last checkpoint, or the previous one if that is damaged, or what can be read of either.

        With `step`, load whichever of the two is of this step.
        """
        for path in self.folder.last.parent.glob(".*.tmp"):  # left by a process that was killed
            files.remove(path)
        errors: list[CheckpointError] = []
        for whole in (True, False):  # both may need the same damaged rows: then resume without those
            for path in (self.folder.last, self.folder.previous):
                try:
                    found = self._read(path, whole)
                except CheckpointError as error:
                    errors.append(error)
                    continue
                if step not in (None, found.checkpoint.state.get("step")):
                    continue
                if errors:
                    other = path if whole else f"the readable part of {path}"
                    logger.warning("%s Resuming from %s instead.", errors[0], other)
                self._segments, self._last_is_good = found.segments, path == self.folder.last
                return found
        raise errors[0] if errors else CheckpointError(f"{self.folder.path} has no checkpoint of step {step}.")

    def _read(self, path: Path, whole: bool) -> LoadedCheckpoint:
        """Read a checkpoint and verify its rows; if not `whole`, leave out those up to the last damaged segment."""
        checkpoint, _ = read_checkpoint(path)
        if "format" in checkpoint.about:
            raise CheckpointError(
                f"{path} was written by an earlier Minerva, whose runs cannot be resumed: start a new one from its "
                "policy, with init_from."
            )
        try:
            segments = [Segment(int(first), int(end), str(digest)) for first, end, digest in checkpoint.state[SEGMENTS]]
        except (KeyError, TypeError, ValueError):
            raise CheckpointError(f"{path} is not the last checkpoint of a run: give a run's folder.") from None
        intact: list[Segment] = []
        for segment in segments:
            try:
                self._read_rows(segment, path)
                intact.append(segment)
            except CheckpointError:
                if whole or segment is segments[-1]:
                    raise
                intact = []
        rows = SavedRows(intact, partial(self._read_rows, path=path))
        return LoadedCheckpoint(path, checkpoint, rows, segments if whole else [])

    def _read_rows(self, segment: Segment, path: Path) -> Tree:
        """Read a segment's rows. Its name is made of numbers, so no checkpoint can point outside the folder."""
        (_, state), digest = read_checkpoint(self._path(segment))
        if digest != segment.digest or not isinstance(state.get("rows"), dict):
            raise CheckpointError(
                f"{self._path(segment)} does not match {path.name}: it was changed since the checkpoint was saved."
            )
        rows: Tree = state["rows"]
        return rows

    def _with_new_rows(self, rows: ReplayRows) -> list[Segment]:
        """Write the rows that no segment holds yet, and return the segments of the replay's window."""
        oldest = max(rows.written - rows.steps, 0)
        known = [segment for segment in self._segments if segment.end > oldest]
        first = max(known[-1].end if known else 0, oldest)
        if first < rows.written:
            row_bytes = sum(part.nbytes for part in rows.since(first, first + 1).values())
            starts = range(first, rows.written, max(SEGMENT_BYTES // row_bytes, 1))
            for start, end in pairwise([*starts, rows.written]):
                new = Segment(start, end, "")
                digest = save_checkpoint(self._path(new), Checkpoint({}, {"rows": rows.since(start, end)}))
                known.append(new._replace(digest=digest))
        return known

    def _path(self, segment: Segment) -> Path:
        return self.folder.last.with_name(
            f"{self.folder.algo}_replay_{segment.first}_{segment.end}{self.folder.suffix}"
        )


def _refuse_non_finite(checkpoint: Checkpoint) -> None:
    bad = non_finite(checkpoint.state)
    if bad:
        raise TrainingError(
            f"{bad} of the agent is not finite any more: no checkpoint is saved, and the previous one is kept. "
            "A lower learning rate or max_grad_norm usually helps."
        )
