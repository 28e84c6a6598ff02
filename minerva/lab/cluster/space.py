"""What can be searched, read off a config class: each field's type, its range and where it stands now."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from minerva.config import TENSOR, Config, Within, checked, nearest
from minerva.errors import ConfigError
from minerva.trainers.registry import config_class

TIMES = 10.0
"""A positive number is searched from a tenth to ten times of what it is."""
TIMES_WHOLE = 4
"""A whole number from a quarter to four times."""
TIMES_SHORT = 5.0
"""What a discount or trace parameter lacks to 1, from a fifth to five times."""


@dataclass(frozen=True)
class Dimension:
    """One hyperparameter's values: a list of choices, or an interval."""

    name: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    """Drawn so that factors count, not differences."""
    whole: bool = False
    from_one: bool = False
    """The interval is of what the value lacks to 1."""

    def value(self, drawn: Any) -> Any:
        """The hyperparameter's value for what was drawn."""
        return 1.0 - drawn if self.from_one else drawn

    def __str__(self) -> str:
        if self.choices:
            return f"{self.name} one of {', '.join(map(str, self.choices))}"
        low, high = (1 - self.high, 1 - self.low) if self.from_one else (self.low, self.high)
        return f"{self.name} {low:.4g} to {high:.4g}"


def space(algo: str, config: Config, wanted: Sequence[str]) -> list[Dimension]:
    """The dimensions that `wanted` names, as `name`, `name=low:high` or `name=a,b,c`; none: what an update takes as
    numbers, such as rates, bounds and discounts."""
    values, annotations = config.to_dict(), type(config).annotations()
    if not wanted:
        return [_around(name, values[name], annotations[name]) for name in _numbers(algo, values)]
    return [_dimension(text, values, annotations) for text in wanted]


def _numbers(algo: str, values: Mapping[str, Any]) -> list[str]:
    names = config_class(algo).fields_with(TENSOR)
    return [name for name in names if isinstance(values[name], float) and 0 < values[name] < math.inf]


def _dimension(text: str, values: Mapping[str, Any], annotations: Mapping[str, Any]) -> Dimension:
    name, _, given = text.partition("=")
    if name not in annotations:
        raise ConfigError(f"{name} is not a setting that can be searched. {nearest(name, annotations)}")
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
    """An interval that was given."""
    whole = _plain(annotation) is int
    for end in (low, high):
        checked(name, int(end) if whole else end, annotation)
    if low >= high:
        raise ConfigError(f"{name} is searched from {low:g} to {high:g}: the second has to be larger.")
    return Dimension(name, low=low, high=high, log=low > 0 and high / low >= TIMES_WHOLE, whole=whole)


def _around(name: str, value: Any, annotation: Any) -> Dimension:
    """The interval around a value that its type and its range suggest."""
    plain = _plain(annotation)
    if plain is bool:
        return Dimension(name, (False, True))
    if get_origin(plain) is Literal:
        return Dimension(name, get_args(plain))
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise ConfigError(f"{name} is {value}, which suggests no range: write it, as {name}=low:high or {name}=a,b,c.")
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
    """The type itself, without range and without None."""
    wanted = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    others = [part for part in get_args(wanted) if part is not type(None)]
    return others[0] if type(None) in get_args(wanted) else wanted


def _within(annotation: Any) -> Within:
    limits = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((limit for limit in limits if isinstance(limit, Within)), Within("(-inf, inf)"))


def _literal(word: str) -> Any:
    """A number, true or false, or the word itself."""
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
