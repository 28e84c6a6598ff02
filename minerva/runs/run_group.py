"""Runs that advance in lockstep: a single one, or the seeds of a population."""

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
    """The runs of one training loop. In a population, a failed run is logged and dropped; the others continue."""

    def __init__(
        self, runs: Sequence[Run], until: int | None = None, show: Callable[[int], None] = lambda step: None
    ) -> None:
        """Group runs that train up to step `until`, None for their end; call `show(step)` after each report."""
        self.runs, self.until, self.show = list(runs), until, show
        self.failures: dict[int, TrainingError] = {}
        first = self.runs[0]
        self.total_steps, self.eval_every, self.settings = first.total_steps, first.eval_every, first.settings

    @property
    def step(self) -> int:
        """Return the environment steps taken by each run that goes on."""
        return (self._going() or self.runs)[0].step

    @property
    def interrupted(self) -> bool:
        """Return whether a signal was received, so that the loop should report soon and stop."""
        return any(run.interrupted for run in self.runs)

    def steps(self, by: int) -> Iterator[int]:
        """Yield the number of environment steps that each coming iteration ends at, `by` apart."""
        iterators = {n: run.steps(by) for n, run in enumerate(self.runs)}
        while True:
            reached = [self._dropping_failures(n, partial(next, steps, None)) for n, steps in iterators.items()]
            next_steps = [step for step in reached if step is not None]
            if not next_steps or (self.until is not None and next_steps[0] > self.until):
                return
            yield next_steps[0]

    def pause(self, step: int) -> None:
        """Stop all runs at `step`, between two reports."""
        for run in self._going():
            run.pause(step)

    def report(self, step: int, metrics: Sequence[Mapping[str, float]], episodes: Sequence[Sequence[Episode]]) -> None:
        """Report the metrics and episodes up to `step`, one item per run."""
        save = save_is_due(self._going())
        for n, (run, row, ended) in enumerate(zip(self.runs, metrics, episodes, strict=True)):
            if not run.ended:
                self._dropping_failures(n, partial(run.report, step, row, ended, save))
        self.show(step)

    def _going(self) -> list[Run]:
        """Return the runs that have neither failed nor been stopped, as a callback may stop one of several."""
        return [run for n, run in enumerate(self.runs) if n not in self.failures and not run.ended]

    def _dropping_failures(self, n: int, action: Callable[[], T]) -> T | None:
        """Return the result of an action of run n, or None if it failed. Raise the error if no run is left."""
        if n in self.failures:
            return None
        try:
            return action()
        except TrainingError as error:
            self.failures[n] = error
            self.runs[n].stop_at_last_checkpoint()
            if len(self.failures) == len(self.runs):
                raise
            logger.error("%s: %s The other seeds continue.", self.runs[n].folder.path.name, error)
            return None
