"""Runs that go in step: one, or the seeds of a population."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from minerva.envs.engine import Episode
from minerva.errors import TrainingError
from minerva.runs.run import Run, save_is_due

logger = logging.getLogger("minerva")

T = TypeVar("T")


class RunGroup:
    """What a loop sees of its runs. In a population, one that fails is named and left behind; the others go on."""

    def __init__(
        self, runs: Sequence[Run], until: int | None = None, show: Callable[[int], None] = lambda step: None
    ) -> None:
        """They go on to `until`, or to their end; `show` is called with the step after each report."""
        self.runs, self.until, self.show = list(runs), until, show
        self.failures: dict[int, TrainingError] = {}
        first = self.runs[0]
        self.total_steps, self.eval_every, self.settings = first.total_steps, first.eval_every, first.settings

    @property
    def step(self) -> int:
        """Steps taken by each run."""
        return next(run.step for n, run in enumerate(self.runs) if n not in self.failures)

    @property
    def interrupted(self) -> bool:
        """Whether a signal asks to report soon and be stopped."""
        return any(run.interrupted for run in self.runs)

    def steps(self, by: int) -> Iterator[int]:
        """The number of steps after each of the iterations to come, `by` apart."""
        under_way = {n: run.steps(by) for n, run in enumerate(self.runs)}
        while True:
            reached = [self._kept(n, partial(next, steps, None)) for n, steps in under_way.items()]
            wanted = [step for step in reached if step is not None]
            if not wanted or (self.until is not None and wanted[0] > self.until):
                return
            yield wanted[0]

    def pause(self, step: int) -> None:
        """Stop all runs at `step`, amid what would have become one report."""
        for n, run in enumerate(self.runs):
            if n not in self.failures:
                run.pause(step)

    def report(self, step: int, metrics: Sequence[Mapping[str, float]], episodes: Sequence[Sequence[Episode]]) -> None:
        """Each run's own metrics and episodes up to `step`."""
        save = save_is_due([run for n, run in enumerate(self.runs) if n not in self.failures])
        for n, (run, row, ended) in enumerate(zip(self.runs, metrics, episodes, strict=True)):
            self._kept(n, partial(run.report, step, row, ended, save))
        self.show(step)

    def _kept(self, n: int, action: Callable[[], T]) -> T | None:
        """What an action of run n gives. A run that fails is stopped; the error of the last one is raised."""
        if n in self.failures:
            return None
        try:
            return action()
        except TrainingError as error:
            self.failures[n] = error
            self.runs[n].break_off()
            if len(self.failures) == len(self.runs):
                raise
            logger.error("%s: %s The other seeds go on.", self.runs[n].folder.path.name, error)
            return None
