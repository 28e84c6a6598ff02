"""One run of several processes: the first keeps the folder and decides, the others do as they are told.

A checkpoint is that of one process with all environments: what is divided among the processes is joined when it is
saved and divided again when it is loaded. So a run may go on with another number of processes than it was begun with.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from minerva.compute.ranks import Processes
from minerva.compute.seeding import global_generators, set_global_generators
from minerva.compute.tree import Tree
from minerva.envs.vector import Episode
from minerva.runs.run import Result, Run, RunSettings
from minerva.runs.run_group import Together
from minerva.runs.signals import ignored_signals
from minerva.runs.store import Rows
from minerva.runs.trainable import Trainable

BEGIN: Final = "begin"
GO_ON: Final = "go on"
STOP: Final = "stop"


class Led:
    """A trainer as the first process's run sees it: what is asked of it is asked of those of all processes."""

    def __init__(self, trainer: Trainable, processes: Processes) -> None:
        self._trainer, self._processes = trainer, processes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)

    def state_dict(self) -> Tree:
        """The state of one process with all environments."""
        state: Tree = self._all("state_dict")
        return state

    def load_state_dict(self, state: Tree) -> str:
        """Let each process take over its share; why some environments could not be restored, or nothing."""
        obstacle: str = self._all("load_state_dict", state)
        return obstacle

    def start(self, step: int) -> None:
        """Begin new episodes everywhere."""
        self._all("start", step)

    @property
    def rows(self) -> "LedRows | None":
        """The replays of all processes as one."""
        rows = self._trainer.rows
        return None if rows is None else LedRows(rows, self._all)

    def _all(self, name: str, *arguments: Any) -> Any:
        """Let every process do the same."""
        self._processes.told((name, arguments))
        return done(self._trainer, self._processes, name, *arguments)


class LedRows:
    """The replays of all processes as one whose rows have all environments."""

    def __init__(self, rows: Rows, everywhere: Callable[..., Any]) -> None:
        self.steps, self.written = rows.steps, rows.written
        self._all = everywhere

    def since(self, first: int) -> Tensor:
        """See `Rows`."""
        rows: Tensor = self._all("since", first)
        return rows

    def put(self, first: int, rows: Tensor) -> None:
        """See `Rows`."""
        self._all("put", first, rows)

    def hold(self, rows: Tensor) -> None:
        """See `Rows`."""
        self._all("hold", rows)


def done(trainer: Trainable, processes: Processes, name: str, *arguments: Any) -> Any:
    """One process's part of what all do."""
    if name == "state_dict":
        return joined(trainer.state_dict(), processes)
    if name == "load_state_dict":
        obstacles = processes.objects(trainer.load_state_dict(divided(arguments[0], processes)))
        return next(filter(None, obstacles), "")
    if name == "start":
        return trainer.start(*arguments)
    rows = trainer.rows
    assert rows is not None  # `LedRows` asks for these
    if name == "since":
        return processes.gathered(rows.since(*arguments), 1)
    *before, whole = arguments
    return getattr(rows, name)(*before, processes.own(whole, 1))


# --- the state of all environments --------------------------------------------------------------------------------

AXES = {"envs": 0, "reward_norm": 0, "rollout": 1}
"""The axis of the environments in the parts of a trainer's state that have one."""
DIVIDED = {"obs", "returns", "lengths", "running", "actions_raw", "next_obs", "rewards", "terminated", "ended", "noise"}
"""Their tensors along it."""


def joined(state: Tree, processes: Processes) -> Tree:
    """A trainer's state as if it had the environments of all processes."""
    own = {name: state[name] for name in (*AXES, "episodes") if name in state}
    each = processes.objects({**own, "generators": global_generators()})
    whole = {name: _joined([part[name] for part in each], AXES[name]) for name in own if name in AXES}
    episodes = [episode for part in each for episode in part["episodes"]]
    return {**state, **whole, "episodes": episodes, "generators": [part["generators"] for part in each]}


def divided(state: Tree, processes: Processes) -> Tree:
    """This process's part of such a state."""
    own = {name: _divided(state[name], axis, processes) for name, axis in AXES.items() if name in state}
    generators = state.get("generators", [])
    if len(generators) == processes.count:
        set_global_generators(generators[processes.rank])
    return {**state, **own, "episodes": state["episodes"] if processes.rank == 0 else []}


def _joined(parts: Sequence[Any], axis: int) -> Any:
    if parts[0] is None:
        return None
    whole = dict(parts[0])
    for name, value in whole.items():
        if name == "simulators":
            whole[name] = [one for part in parts for one in part[name]]
        elif name == "obstacle":
            whole[name] = next((part[name] for part in parts if part[name]), "")
        elif name in DIVIDED and value is not None:
            whole[name] = torch.cat([part[name].cpu() for part in parts], axis)
    return whole


def _divided(whole: Any, axis: int, processes: Processes) -> Any:
    if whole is None:
        return None
    part = {name: processes.own(value, axis) if _has_axis(name, value) else value for name, value in whole.items()}
    if "simulators" in part:
        size = len(part["simulators"]) // processes.count
        part["simulators"] = part["simulators"][processes.rank * size : (processes.rank + 1) * size]
    return part


def _has_axis(name: str, value: Any) -> bool:
    return name in DIVIDED and value is not None


# --- the loop's calls ---------------------------------------------------------------------------------------------


class Leading(Together):
    """What the first process's loop sees of its run; it tells the others when to go on.

    A signal is heeded after a report and not before, for then all processes stand at the same step.
    """

    def __init__(self, run: Run, processes: Processes) -> None:
        super().__init__([run])
        self._processes = processes
        processes.told((BEGIN, (run.step, run.eval_every)))

    interrupted = False  # type: ignore[assignment]

    def steps(self, by: int) -> Iterator[int]:
        """See `Together`."""
        for step in super().steps(by):
            self._processes.told((GO_ON, ()))
            yield step
        self._processes.told((STOP, ()))

    def report(self, step: int, metrics: Sequence[Mapping[str, float]], episodes: Sequence[Sequence[Episode]]) -> None:
        """See `Together`. The episodes are those of all processes."""
        ended = [episode for part in self._processes.objects(episodes[0]) for episode in part]
        super().report(step, metrics, [ended])


class Following(Together):
    """What the loop of another process sees of the run: it does what the first one wants until it is to go on."""

    def __init__(self, trainer: Trainable, total_steps: int, settings: RunSettings, processes: Processes) -> None:
        self.total_steps, self.settings = total_steps, settings
        self._trainer, self._processes = trainer, processes
        self._step = self.eval_every = 0

    interrupted = False  # type: ignore[assignment]

    @property
    def step(self) -> int:
        """See `Together`."""
        return self._step

    def begins(self) -> bool:
        """Wait until the run begins; False if it is finished already."""
        command, arguments = self._obey()
        if command == BEGIN:
            self._step, self.eval_every = arguments
        return command == BEGIN

    def steps(self, by: int) -> Iterator[int]:
        """See `Together`."""
        while self._obey()[0] == GO_ON:
            yield self._step + by

    def report(self, step: int, metrics: Sequence[Mapping[str, float]], episodes: Sequence[Sequence[Episode]]) -> None:
        """See `Together`."""
        self._processes.objects(episodes[0])
        self._step = step

    def _obey(self) -> tuple[str, tuple[Any, ...]]:
        """Do what the first process asks for, until it says how to go on."""
        while True:
            command, arguments = self._processes.told(None)
            if command in (BEGIN, GO_ON, STOP):
                return command, arguments
            done(self._trainer, self._processes, command, *arguments)


def lead(run: Run, processes: Processes, loop: Callable[[Together], None]) -> Result:
    """The first process's part of a run; `loop` is the trainer's."""
    with run:
        if run.already_finished:
            processes.told((STOP, ()))
        else:
            loop(Leading(run, processes))
    result: Result = processes.told(run.result())
    return result


def follow(following: Following, processes: Processes, loop: Callable[[Together], None]) -> Result:
    """The part of each other process. What a signal means, the first one decides."""
    with ignored_signals():
        if following.begins():
            loop(following)
        result: Result = processes.told(None)
    return result
