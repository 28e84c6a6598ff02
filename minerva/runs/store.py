"""A run's checkpoints: the last and the one before it, the best, and the replay's rows, each written once.

Saving writes the rows that are new since the last time as one more file, then the checkpoint that names all files its
window needs, and removes what neither it nor the one before it needs. So at every moment there is a whole checkpoint.
"""

import contextlib
import logging
from pathlib import Path
from typing import NamedTuple, Protocol

from minerva.compute.tree import Tree
from minerva.errors import CheckpointError, TrainingError
from minerva.runs import files
from minerva.runs.checkpoint import Checkpoint, load_checkpoint, non_finite, read_checkpoint, save_checkpoint
from minerva.runs.folder import RunFolder

logger = logging.getLogger("minerva")

SEGMENTS = "replay_segments"


class ReplayRows(Protocol):
    """A replay as the store sees it: numbered rows, of which the newest `steps` are kept."""

    steps: int
    written: int

    def since(self, first: int) -> Tree:
        """Return the rows from number `first` on, as tensors by dtype."""

    def put(self, first: int, rows: Tree) -> None:
        """Take back rows that `since` gave."""

    def hold(self, rows: Tree) -> None:
        """Hold these rows and no others."""


class Segment(NamedTuple):
    """A file with the rows from number `first` to before `end`."""

    first: int
    end: int
    digest: str


class Found(NamedTuple):
    """A checkpoint read back: where from, what, and the replay's rows by the number of their first."""

    path: Path
    checkpoint: Checkpoint
    rows: list[tuple[int, Tree]]
    segments: list[Segment]
    """The files of these rows; none if the rows before them could not be read, for then they are numbered anew."""

    @property
    def lost(self) -> bool:
        """Whether rows that came before these could not be read."""
        return bool(self.rows) and not self.segments


class CheckpointStore:
    """Saves and finds the checkpoints in a run's folder."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._segments: list[Segment] = []  # of the last good checkpoint
        self._last_is_good = True

    def save(self, checkpoint: Checkpoint, rows: ReplayRows | None = None, best: bool = False) -> None:
        """Make this the last checkpoint, and the last one the previous. If it is the `best`, that comes first.

        A kill in between leaves a run that evaluates again, and finds again that it is the best.
        """
        _refuse_non_finite(checkpoint)
        segments = self._with_new_rows(rows) if rows is not None else []
        state = {**checkpoint.state, SEGMENTS: [list(segment) for segment in segments]}
        backup = self.folder.previous if self._last_is_good else None
        copy = self.folder.best if best else None
        save_checkpoint(self.folder.last, Checkpoint(checkpoint.about, state), backup=backup, copy=copy)
        needed = {self._path(segment) for segment in (*segments, *self._segments)}
        self._segments, self._last_is_good = segments, True
        for path in set(self.folder.last.parent.glob(f"{self.folder.algo}_replay_*.pt")) - needed:
            files.remove(path)

    def exists(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return self.folder.last.exists() or self.folder.previous.exists()

    def steps(self) -> set[int]:
        """At which there is a checkpoint to go on from."""
        found: set[int] = set()
        for path in (self.folder.last, self.folder.previous):
            with contextlib.suppress(CheckpointError, KeyError, TypeError):
                found.add(load_checkpoint(path).state["step"])
        return found

    def newest(self, step: int | None = None) -> Found:
        """The last checkpoint, or if that is damaged the one before it, or what is left of them.

        With `step`, that of the two which is of this step.
        """
        for path in self.folder.last.parent.glob(".*.tmp"):  # of a process that was killed
            files.remove(path)
        errors: list[CheckpointError] = []
        for whole in (True, False):  # rows are written once: if both need those that are damaged, go on without them
            for path in (self.folder.last, self.folder.previous):
                try:
                    found = self._read(path, whole)
                except CheckpointError as error:
                    errors.append(error)
                    continue
                if step not in (None, found.checkpoint.state.get("step")):
                    continue
                if errors:
                    other = path if whole else f"what is left of {path}"
                    logger.warning("%s Going on from %s instead.", errors[0], other)
                self._segments, self._last_is_good = found.segments, path == self.folder.last
                return found
        raise errors[0] if errors else CheckpointError(f"{self.folder.path} has no checkpoint of step {step}.")

    def _read(self, path: Path, whole: bool) -> Found:
        """A checkpoint with all its rows; or, if not `whole`, with those after the last segment that is damaged."""
        checkpoint, _ = read_checkpoint(path)
        try:
            segments = [Segment(int(first), int(end), str(digest)) for first, end, digest in checkpoint.state[SEGMENTS]]
        except (KeyError, TypeError, ValueError):
            raise CheckpointError(f"{path} is not the last checkpoint of a run: give a run's folder.") from None
        rows: list[tuple[int, Tree]] = []
        for segment in segments:
            try:
                rows.append((segment.first, self._read_rows(segment, path)))
            except CheckpointError:
                if whole or segment is segments[-1]:
                    raise
                rows = []
        return Found(path, checkpoint, rows, segments if whole else [])

    def _read_rows(self, segment: Segment, path: Path) -> Tree:
        """A segment's rows. Its name is made from numbers: nothing in a checkpoint can lead out of the folder."""
        (_, state), digest = read_checkpoint(self._path(segment))
        if digest != segment.digest or not isinstance(state.get("rows"), dict):
            raise CheckpointError(
                f"{self._path(segment)} is not what {path.name} was saved with: it was changed since."
            )
        rows: Tree = state["rows"]
        return rows

    def _with_new_rows(self, rows: ReplayRows) -> list[Segment]:
        """The segments that hold the replay's window; what none of them holds yet is written."""
        oldest = max(rows.written - rows.steps, 0)
        known = [segment for segment in self._segments if segment.end > oldest]
        first = max(known[-1].end if known else 0, oldest)
        if first < rows.written:
            new = Segment(first, rows.written, "")
            digest = save_checkpoint(self._path(new), Checkpoint({}, {"rows": rows.since(first)}))
            known.append(new._replace(digest=digest))
        return known

    def _path(self, segment: Segment) -> Path:
        return self.folder.last.with_name(f"{self.folder.algo}_replay_{segment.first}_{segment.end}.pt")


def _refuse_non_finite(checkpoint: Checkpoint) -> None:
    bad = non_finite(checkpoint.state)
    if bad:
        raise TrainingError(
            f"{bad} of the agent is not finite any more: it is not saved, and the checkpoint before it is kept. "
            "A lower learning rate or a tighter max_grad_norm usually helps."
        )
