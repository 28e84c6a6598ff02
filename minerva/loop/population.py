"""Train many seeds at about the cost of one: agents act and learn in batched calls, each in its own run."""

import logging
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from minerva.compute.compiled import torch_threads
from minerva.config import TENSOR, whole_number
from minerva.errors import ConfigError, TrainingError
from minerva.loop.collector import Collector, LocalCollector
from minerva.loop.trainer import Trainer
from minerva.runs.output import make_console
from minerva.runs.run import Run
from minerva.runs.run_group import RunGroup
from minerva.runs.settings import Result, RunSettings
from minerva.runs.signals import STOPS, StopSignals, raise_received
from minerva.runs.terminal import ProgressView

logger = logging.getLogger("minerva")


class Population:
    """Trainers of one algorithm and one shape, trained together in one process, each as it would be trained alone.

    Their configs may differ only in numbers that an update takes as input (rates, bounds, discounts).
    """

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        if not trainers:
            raise ConfigError("A population needs at least one seed.")
        self.trainers = list(trainers)
        first = self.trainers[0]
        for other in self.trainers[1:]:
            _check_alike(first, other)
            if other.env is first.env:  # one function or object: seeds of one task, whatever else is known of it
                other.saved_env = first.saved_env
        seen = [(trainer.seed, trainer.config) for trainer in self.trainers]
        if any(seen.count(one) > 1 for one in seen):
            raise ConfigError(f"seeds are {[seed for seed, _ in seen]}: two of them would be the same run.")

    def train(self, total_steps: int, out_dirs: Sequence[str | Path], **settings: Any) -> list[Result]:
        """Train each trainer for `total_steps` environment steps, into its own folder.

        `settings` are the fields of `RunSettings`. An unfinished run of the same config in a folder is resumed. After
        Ctrl-C checkpoints are written and KeyboardInterrupt raised; after SIGTERM, TerminatedError.
        """
        results = self.run(total_steps, out_dirs, **settings)
        raise_received(*results)
        return results

    def run(self, total_steps: int, out_dirs: Sequence[str | Path], **settings: Any) -> list[Result]:
        """Train as `train` does, but return the results also if a signal stopped the runs."""
        how, total_steps = RunSettings.of(settings), whole_number("total_steps", total_steps)
        self.trainers[0].check(total_steps)
        with ExitStack() as stack:
            stack.enter_context(torch_threads(how.threads))
            signals = stack.enter_context(StopSignals())
            runs = [
                Run(trainer, total_steps, Path(folder), how, signals, n, len(self.trainers))
                for n, (trainer, folder) in enumerate(zip(self.trainers, out_dirs, strict=True))
            ]
            begin_at = _common_step(runs)
            for run in runs:
                run.begin_at, run.group = begin_at, _group_name(runs[0].folder.path)
                stack.enter_context(run)
            _warn_if_steps_differ(runs)
            console, first = make_console(how.quiet), min(run.step for run in runs)
            view = stack.enter_context(ProgressView(console, total_steps, first, how.quiet))
            try:
                self._train(runs, lambda step: view.show(step, lambda: [run.status() for run in runs]))
            except STOPS:
                if not signals.received:
                    raise
                for run in runs:
                    run.stop_at_last_checkpoint()
        return [run.result() for run in runs]

    def _train(self, runs: Sequence[Run], show: Callable[[int], None]) -> None:
        """Train the runs that are furthest behind until they catch up with the next ones, and so on to the end."""
        failures: list[TrainingError] = []
        while True:
            going = [n for n, run in enumerate(runs) if not run.ended]
            if not going:
                break
            behind = min(runs[n].step for n in going)
            group = [n for n in going if runs[n].step == behind]
            ahead = [runs[n].step for n in going if runs[n].step > behind]
            trainers = [self.trainers[n] for n in group]
            together = RunGroup([runs[n] for n in group], min(ahead, default=None), show)
            collector = joined_collector(trainers) if len(group) > 1 else trainers[0].collector
            try:
                type(trainers[0]).loop(trainers, collector, together)
            except TrainingError:
                if len(together.failures) < len(group):  # not the fault of single seeds: an environment, the disk
                    raise
            failures += together.failures.values()
        if len(failures) == len(runs):
            raise failures[0]


def joined_collector(trainers: Sequence[Trainer]) -> Collector:
    """Return a collector that acts in the environments of each trainer in turn."""
    engines = [trainer.envs for trainer in trainers]
    return LocalCollector(type(engines[0]).joined(engines))


def _common_step(runs: Sequence[Run]) -> int | None:
    """Return the newest step at which all started runs have a checkpoint; None if there is none.

    A kill may come after some have saved and others have not. From a common step they resume together, bit for bit.
    """
    known = [run.store.steps() for run in runs if run.store.exists()]
    common = set.intersection(*known) if known else set()
    return max(common, default=None)


def _group_name(first: Path) -> str:
    """Return the seeds' common name, from the first folder: `<algo>_<env>_<time>`, or the parent of `seed0`."""
    shared = re.sub(r"(^|_)seed\d+", "", first.absolute().name)
    return shared or first.absolute().parent.name


def _warn_if_steps_differ(runs: Sequence[Run]) -> None:
    steps = sorted({run.step for run in runs if not run.already_finished})
    if len(steps) > 1:
        logger.warning(
            "The seeds are at steps %s: those behind catch up first. Training alone and training together differ in "
            "the last digits.",
            ", ".join(f"{step:,}" for step in steps),
        )


def _check_alike(first: Trainer, other: Trainer) -> None:
    """Raise ConfigError if two trainers cannot be stacked."""
    mine, theirs = first.config.to_dict(), other.config.to_dict()
    for name, value in mine.items():
        inputs = name in first.config.fields_with(TENSOR) and (value is None) == (theirs[name] is None)
        if theirs[name] != value and not (inputs and bool(value) == bool(theirs[name])):
            raise ConfigError(
                f"{name} is {value} for one seed and {theirs[name]} for another: seeds that are trained together may "
                f"differ in {', '.join(first.config.fields_with(TENSOR))} alone. Train these apart."
            )
