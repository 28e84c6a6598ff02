"""Search spaces, derived from a config: each field's type, its range and its current value."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from minerva.config import TENSOR, Config, Within, checked, nearest
from minerva.data.horizon import RULES, settings_before_episodes
from minerva.errors import ConfigError
from minerva.trainers.registry import config_class

TIMES = 10.0
"""A positive float is searched from a tenth to ten times its value."""
TIMES_WHOLE = 4
"""An integer is searched from a quarter to four times its value."""
TIMES_SHORT = 5.0
"""A discount or trace parameter g is searched in 1 - g, from a fifth to five times its value."""


@dataclass(frozen=True)
class Dimension:
    """Search range of one hyperparameter: a list of choices, or an interval."""

    name: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    """Sample on a logarithmic scale."""
    whole: bool = False
    from_one: bool = False
    """The interval is that of 1 - value."""

    def value(self, drawn: Any) -> Any:
        """Return the hyperparameter's value for a sample of the interval."""
        return 1.0 - drawn if self.from_one else drawn

    def __str__(self) -> str:
        if self.choices:
            return f"{self.name} one of {', '.join(map(str, self.choices))}"
        low, high = (1 - self.high, 1 - self.low) if self.from_one else (self.low, self.high)
        return f"{self.name} {low:.4g} to {high:.4g}"


def space(algo: str, config: Config, wanted: Sequence[str]) -> list[Dimension]:
    """Return the dimensions named by `wanted` as `name`, `name=low:high` or `name=a,b,c`.

    None given: all positive numbers that the update takes as tensors, such as learning rates, bounds and discounts.
    """
    values, annotations = config.to_dict(), type(config).annotations()
    if values.keys() >= RULES.keys():  # what follows from the task is searched around its usual value
        values |= settings_before_episodes(values)
    if not wanted:
        return [_around(name, values[name], annotations[name]) for name in _numbers(algo, values)]
    return [_dimension(text, values, annotations) for text in wanted]


def _numbers(algo: str, values: Mapping[str, Any]) -> list[str]:
    names = config_class(algo).fields_with(TENSOR)
    return [name for name in names if isinstance(values[name], float) and 0 < values[name] < math.inf]


def _dimension(text: str, values: Mapping[str, Any], annotations: Mapping[str, Any]) -> Dimension:
    name, _, given = text.partition("=")
    if name not in annotations:
        raise ConfigError(f"{name} is not a hyperparameter that can be searched. {nearest(name, annotations)}")
    if not given:
        return _around(name, values[name], annotations[name])
    try:
        if ":" in given:
            low, high = (float(end) for end in given.split(":"))
            return _between(name, low, high, annotations[name])
        choices = tuple(checked(name, _literal(word), annotations[name]) for word in given.split(","))
        return Dimension(name, choices)
    except (ValueError, TypeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"search is {text}: write {name}, {name}=low:high or {name}=a,b,c.") from None


def _between(name: str, low: float, high: float, annotation: Any) -> Dimension:
    """Return the dimension of an interval given by the user."""
    whole = _plain(annotation) is int
    for end in (low, high):
        checked(name, int(end) if whole else end, annotation)
    if low >= high:
        raise ConfigError(f"{name} is searched from {low:g} to {high:g}: the second must be larger.")
    return Dimension(name, low=low, high=high, log=low > 0 and high / low >= TIMES_WHOLE, whole=whole)


def _around(name: str, value: Any, annotation: Any) -> Dimension:
    """Return the default dimension around a value, by its type and allowed range."""
    plain = _plain(annotation)
    if plain is bool:
        return Dimension(name, (False, True))
    if get_origin(plain) is Literal:
        return Dimension(name, get_args(plain))
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise ConfigError(f"{name} is {value}, which has no default range: give one, {name}=low:high or {name}=a,b,c.")
    if plain is int:
        return Dimension(name, low=max(value // TIMES_WHOLE, 1), high=value * TIMES_WHOLE, log=True, whole=True)
    lacking = 1.0 - value
    if 1.0 in _within(annotation) and 1.1 not in _within(annotation) and 0 < lacking < 0.5:
        return Dimension(name, low=lacking / TIMES_SHORT, high=min(lacking * TIMES_SHORT, 1.0), log=True, from_one=True)
    high = value * TIMES
    while high not in _within(annotation):
        high /= 2
    return Dimension(name, low=value / TIMES, high=high, log=True)


def _plain(annotation: Any) -> Any:
    """Return the type of an annotation, without range and without None."""
    wanted = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    others = [part for part in get_args(wanted) if part is not type(None)]
    return others[0] if type(None) in get_args(wanted) else wanted


def _within(annotation: Any) -> Within:
    limits = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((limit for limit in limits if isinstance(limit, Within)), Within("(-inf, inf)"))


def _literal(word: str) -> Any:
    """Parse a word as a number or a boolean; else return the word."""
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
