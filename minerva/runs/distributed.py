"""One run on several data-parallel ranks: rank zero owns the folder and decides, the others execute its commands.

A checkpoint looks like that of one process with all environments: state that is divided among the ranks is joined when
it is saved and divided again when it is loaded. So a run may be resumed with another number of ranks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from minerva.compute.ranks import Ranks
from minerva.compute.seeding import global_generators, set_global_generators
from minerva.compute.tree import Tree, mapped
from minerva.envs.engine import Episode
from minerva.runs.run import Run
from minerva.runs.run_group import RunGroup
from minerva.runs.settings import Result, RunSettings
from minerva.runs.signals import ignored_signals
from minerva.runs.store import ReplayRows
from minerva.runs.trainable import Trainable

BEGIN: Final = "begin"
CONTINUE: Final = "continue"
STOP: Final = "stop"


class RankZeroTrainer:
    """The trainer that the run of rank zero sees: its methods call the trainers of all ranks."""

    def __init__(self, trainer: Trainable, ranks: Ranks) -> None:
        self._trainer, self._ranks = trainer, ranks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)

    def state_dict(self) -> Tree:
        """Return the state of all ranks, as that of one process with all environments."""
        state: Tree = self._all("state_dict")
        return state

    def load_state_dict(self, state: Tree) -> str:
        """Load each rank's share; return why some environments could not be restored, or an empty string."""
        unavailable_reason: str = self._all("load_state_dict", state)
        return unavailable_reason

    def change(self, **settings: float) -> None:
        """Change settings of the coming updates on all ranks."""
        self._all("change", settings)

    def start(self, step: int) -> None:
        """Begin new episodes in the environments of all ranks."""
        self._all("start", step)

    @property
    def rows(self) -> "ShardedReplay | None":
        """Return the replays of all ranks as one, or None for an algorithm without a replay."""
        rows = self._trainer.rows
        return None if rows is None else ShardedReplay(rows, self._all)

    def _all(self, name: str, *arguments: Any) -> Any:
        """Call a method on every rank and return the joint result."""
        self._ranks.broadcast((name, arguments))
        return run_collective(self._trainer, self._ranks, name, *arguments)


class ShardedReplay:
    """The replays of all ranks as one, whose rows have all environments."""

    def __init__(self, rows: ReplayRows, call_all_ranks: Callable[..., Any]) -> None:
        self.steps, self.written = rows.steps, rows.written
        self._all = call_all_ranks

    def since(self, first: int, end: int) -> Tree:
        """Return the rows of all ranks of indices [first, end)."""
        rows: Tree = self._all("since", first, end)
        return rows

    def put(self, first: int, rows: Tree) -> None:
        """Write rows returned by `since` back, each rank its share."""
        self._all("put", first, rows)

    def hold(self, count: int) -> None:
        """Forget the rows of all ranks, and expect `count` from `put`, numbered from 0."""
        self._all("hold", count)


def run_collective(trainer: Trainable, ranks: Ranks, name: str, *arguments: Any) -> Any:
    """Call a method of this rank's trainer or replay, as every rank does, and return the joint result."""
    if name == "state_dict":
        return joined(trainer.state_dict(), ranks)
    if name == "load_state_dict":
        reasons = ranks.objects(trainer.load_state_dict(divided(arguments[0], ranks)))
        return next(filter(None, reasons), "")
    if name == "start":
        return trainer.start(*arguments)
    if name == "change":
        return trainer.change(**arguments[0])
    rows = trainer.rows
    assert rows is not None  # only `ShardedReplay` calls the methods below
    if name == "since":
        return mapped(lambda part: ranks.all_gathered(part, 1), rows.since(*arguments))
    if name == "hold":
        return rows.hold(*arguments)
    first, whole = arguments
    return rows.put(first, mapped(lambda part: ranks.local_shard(part, 1), whole))


# --- the state of all environments --------------------------------------------------------------------------------

AXES = {"envs": 0, "reward_norm": 0, "frames": 0, "rollout": 1, "exploration": 1}
"""Environment axis of the parts of a trainer's state that have one."""
DIVIDED = {
    *("obs", "returns", "lengths", "running", "largest", "noise", "components"),
    *("actions_raw", "next_obs", "rewards", "terminated", "truncated"),
    *("ages", "next_frames", "cut_frames", "oldest"),
}
"""Tensors in these parts that are divided among ranks along that axis."""


def joined(state: Tree, ranks: Ranks) -> Tree:
    """Return a trainer's state as if it had the environments of all ranks."""
    local = {name: state[name] for name in (*AXES, "episodes") if name in state}
    each = ranks.objects({**local, "generators": global_generators()})
    whole = {name: _joined([part[name] for part in each], AXES[name]) for name in local if name in AXES}
    episodes = [episode for part in each for episode in part["episodes"]]
    return {**state, **whole, "episodes": episodes, "generators": [part["generators"] for part in each]}


def divided(state: Tree, ranks: Ranks) -> Tree:
    """Return this rank's part of a state of all environments."""
    local = {name: _divided(state[name], axis, ranks) for name, axis in AXES.items() if name in state}
    generators = state.get("generators", [])
    if len(generators) == ranks.count:
        set_global_generators(generators[ranks.rank])
    return {**state, **local, "episodes": state["episodes"] if ranks.rank == 0 else []}


def _joined(parts: Sequence[Any], axis: int) -> Any:
    if parts[0] is None:
        return None
    whole = dict(parts[0])
    for name, value in whole.items():
        if name == "simulators":
            whole[name] = [one for part in parts for one in part[name]]
        elif name == "unavailable_reason":
            whole[name] = next((part[name] for part in parts if part[name]), "")
        elif name in DIVIDED and value is not None:
            whole[name] = torch.cat([part[name].cpu() for part in parts], axis)
    return whole


def _divided(whole: Any, axis: int, ranks: Ranks) -> Any:
    if whole is None:
        return None
    part = {name: ranks.local_shard(value, axis) if _has_axis(name, value) else value for name, value in whole.items()}
    if "simulators" in part:
        size = len(part["simulators"]) // ranks.count
        part["simulators"] = part["simulators"][ranks.rank * size : (ranks.rank + 1) * size]
    return part


def _has_axis(name: str, value: Any) -> bool:
    return name in DIVIDED and value is not None


# --- what the training loop calls ---------------------------------------------------------------------------------


class CoordinatorRuns(RunGroup):
    """The run of rank zero, which also commands the other ranks to continue or stop.

    A signal takes effect only after a report, where all ranks have reached the same step.
    """

    def __init__(self, run: Run, ranks: Ranks) -> None:
        super().__init__([run])
        self._ranks = ranks
        ranks.broadcast((BEGIN, (run.step, run.eval_every)))

    interrupted = False  # type: ignore[assignment]

    def steps(self, by: int) -> Iterator[int]:
        """Yield the step that each coming iteration ends at, after commanding the other ranks to continue."""
        for step in super().steps(by):
            self._ranks.broadcast((CONTINUE, ()))
            yield step
        self._ranks.broadcast((STOP, ()))

    def report(self, step: int, metrics: Sequence[Mapping[str, float]], episodes: Sequence[Sequence[Episode]]) -> None:
        """Report the metrics with the episodes of all ranks."""
        ended = [episode for part in self._ranks.objects(episodes[0]) for episode in part]
        super().report(step, metrics, [ended])


class FollowerRuns(RunGroup):
    """The loop of a rank other than zero: executes the commands of rank zero between iterations."""

    def __init__(self, trainer: Trainable, total_steps: int, settings: RunSettings, ranks: Ranks) -> None:
        self.total_steps, self.settings = total_steps, settings
        self._trainer, self._ranks = trainer, ranks
        self._step = self.eval_every = 0

    interrupted = False  # type: ignore[assignment]

    @property
    def step(self) -> int:
        """Return the step that all ranks have reached."""
        return self._step

    def begins(self) -> bool:
        """Wait until the run begins; return False if it had already finished."""
        command, arguments = self._serve()
        if command == BEGIN:
            self._step, self.eval_every = arguments
        return command == BEGIN

    def steps(self, by: int) -> Iterator[int]:
        """Yield the step that each coming iteration ends at, until rank zero commands to stop."""
        while self._serve()[0] == CONTINUE:
            yield self._step + by

    def report(self, step: int, metrics: Sequence[Mapping[str, float]], episodes: Sequence[Sequence[Episode]]) -> None:
        """Send the episodes to rank zero, which writes the report."""
        self._ranks.objects(episodes[0])
        self._step = step

    def _serve(self) -> tuple[str, tuple[Any, ...]]:
        """Execute commands of rank zero until one begins, continues or stops the loop, and return that one."""
        while True:
            command, arguments = self._ranks.broadcast(None)
            if command in (BEGIN, CONTINUE, STOP):
                return command, arguments
            run_collective(self._trainer, self._ranks, command, *arguments)


def lead(run: Run, ranks: Ranks, loop: Callable[[RunGroup], None]) -> Result:
    """Run rank zero's part of a run and return the result; `loop` is the trainer's training loop."""
    with run:
        if run.already_finished:
            ranks.broadcast((STOP, ()))
        else:
            loop(CoordinatorRuns(run, ranks))
    result: Result = ranks.broadcast(run.result())
    return result


def follow(following: FollowerRuns, ranks: Ranks, loop: Callable[[RunGroup], None]) -> Result:
    """Run the part of another rank and return the result. Only rank zero handles signals."""
    with ignored_signals():
        if following.begins():
            loop(following)
        result: Result = ranks.broadcast(None)
    return result
