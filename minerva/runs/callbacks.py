"""A user's code in a run: callbacks hear of the run's events, log numbers, change settings and stop the run."""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from minerva.errors import ConfigError

EVENTS = ("start", "episode", "evaluation", "update", "checkpoint", "end")

SMALLEST = 2.0**-126
"""The smallest number that float32 holds with all its digits: a rate or a coefficient of this size has no effect."""

logger = logging.getLogger("minerva")

Function = Callable[[int, Mapping[str, float], Any], bool | None]


class Callback:
    """Base of callbacks that hear of several events: override what you need. Returning True stops the run.

    Each method takes the environment step, metrics and the trainer. A plain function in place of a callback is its
    `on_update`.
    """

    def on_start(self, step: int, metrics: Mapping[str, float], trainer: Any) -> bool | None:
        """Hear that training begins at `step`, which is not 0 in a resumed run."""

    def on_episode(self, step: int, metrics: Mapping[str, float], trainer: Any) -> bool | None:
        """Hear of a training episode that ended since the last update: its return, length and the numbers in `info`."""

    def on_evaluation(self, step: int, metrics: Mapping[str, float], trainer: Any) -> bool | None:
        """Hear of an evaluation: the metrics `eval/...`."""

    def on_update(self, step: int, metrics: Mapping[str, float], trainer: Any) -> bool | None:
        """Hear of a report: its metrics, and those of the last evaluation. Off-policy, it covers many updates."""

    def on_checkpoint(self, step: int, metrics: Mapping[str, float], trainer: Any) -> bool | None:
        """Hear that a checkpoint was written; settings that are changed here are not in it."""

    def on_end(self, step: int, metrics: Mapping[str, float], trainer: Any) -> bool | None:
        """Hear that the run is finished or stopped, before its last checkpoint is written."""


class Schedule(Callback):
    """Sets a setting as a function of the step, at the start and after every report.

    `value` is that function, or numbers by step: between two steps the number moves in a straight line, and is rounded
    for a setting that is a whole number. A 0 becomes the smallest number above it, for what is on stays on.
    """

    def __init__(self, name: str, value: Callable[[int], float] | Mapping[int, float]) -> None:
        if isinstance(value, Mapping):
            if not value:
                raise ConfigError(f"The schedule of {name} is empty: give numbers by step, such as {{0: 3e-4}}.")
            value = functools.partial(_between, sorted(value.items()))
        self.name, self._value = name, value

    def on_start(self, step: int, metrics: Mapping[str, float], trainer: Any) -> None:
        """Set the value at the run's first step, or at the one that it is resumed from."""
        if self.name.endswith("_lr") and trainer.config.anneal_lr:
            logger.warning(
                "%s has a schedule, and anneal_lr lowers it to 0 over the run besides: set anneal_lr to False for the "
                "schedule alone.",
                self.name,
            )
        self._set(step, trainer)

    def on_update(self, step: int, metrics: Mapping[str, float], trainer: Any) -> None:
        """Set the value at this step."""
        self._set(step, trainer)

    def _set(self, step: int, trainer: Any) -> None:
        value, before = self._value(step), getattr(trainer.agent.config, self.name, None)
        if isinstance(before, int):
            value = round(value)
        elif before and value == 0:
            value = SMALLEST
        trainer.change(**{self.name: value})


def _between(points: Sequence[tuple[int, float]], step: int) -> float:
    """Return the number at `step` on the straight lines between points, sorted by step; constant outside of them."""
    for (begin, first), (end, second) in pairwise(points):
        if begin <= step < end:
            return first + (second - first) * (step - begin) / (end - begin)
    return points[0][1] if step < points[0][0] else points[-1][1]


class Metrics(dict[str, float]):
    """What a callback is told: it cannot be changed, because nobody would read the change."""

    def __setitem__(self, name: str, value: float) -> NoReturn:
        raise TypeError(f"A callback's metrics are only read: to log a number, call trainer.log({name!r}, value).")


def tell(
    callbacks: Sequence[Callback | Function], event: str, step: int, metrics: Mapping[str, float], trainer: Any
) -> bool:
    """Tell every callback of an event; return whether one asks to stop the run."""
    hearing = [function for callback in callbacks if (function := _hearing(callback, event))]
    stops = [function(step, Metrics(metrics), trainer) for function in hearing]  # all hear of it, whoever stops
    return any(stops)


def _hearing(callback: Any, event: str) -> Function | None:
    """Return what of a callback hears of this event, if anything does."""
    method: Function | None = getattr(callback, f"on_{event}", None)
    if method is None and event == "update" and callable(callback):
        return callback  # type: ignore[no-any-return]
    return method


def check_callbacks(callbacks: Any) -> None:
    """Raise ConfigError if something among the callbacks can hear of no event."""
    if callable(callbacks) or not isinstance(callbacks, Sequence):
        raise ConfigError("callbacks must be a list: write callbacks=[f].")
    for callback in callbacks:
        if isinstance(callback, type):
            raise ConfigError(f"The callback {callback.__name__} is a class: give an instance, {callback.__name__}().")
        methods = {name for name in dir(callback) if name.startswith("on_") and callable(getattr(callback, name))}
        unknown = sorted(methods - {f"on_{event}" for event in EVENTS})
        if unknown:
            raise ConfigError(
                f"The callback {type(callback).__name__} has {unknown[0]}, which is never called: "
                f"the events are {', '.join(f'on_{event}' for event in EVENTS)}."
            )
        if not methods and not callable(callback):
            raise ConfigError(f"The callback {callback!r} is no function and has no method such as on_update.")
