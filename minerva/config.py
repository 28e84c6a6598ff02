"""Base of all configs: checked types and ranges, roles of fields, and error messages that name the fix.

A field's range and its roles are part of its type, `Annotated[float, Within("(0, 1]"), TENSOR]`: the check, the error
message, the documentation and the code that looks up a role all read them there.
"""

import dataclasses
import difflib
import functools
import numbers
import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin

from minerva.errors import ConfigError
from minerva.formulas.exploration import first_log_std


@dataclass(frozen=True)
class Within:
    """An interval in the usual notation: `[` and `]` include the end, `(` and `)` do not."""

    interval: str

    def __contains__(self, value: float) -> bool:
        low, high = (float(end) for end in self.interval[1:-1].split(","))
        above = value >= low if self.interval[0] == "[" else value > low
        below = value <= high if self.interval[-1] == "]" else value < high
        return above and below


POSITIVE = Within("(0, inf)")
NOT_NEGATIVE = Within("[0, inf)")
FRACTION = Within("[0, 1]")
AT_LEAST_ONE = Within("[1, inf)")
FINITE = Within("(-inf, inf)")


@dataclass(frozen=True)
class Role:
    """A field's use, which an annotation states beside its range."""

    name: str


@dataclass(frozen=True)
class AlsoCalled:
    """Names of a setting in other libraries, with spaces between: who brings one is told the name here."""

    names: str


TENSOR = Role("tensor")
"""The field is passed to the update as a tensor: agents that are trained together may differ in it."""
LOOP = Role("loop")
"""The field is a setting of the trainer's loop: an agent without a trainer does not accept it."""
DIVIDED = Role("divided")
"""The field is split evenly across data-parallel ranks: a config holds the value of all ranks together."""

PER_ENV = Role("per environment")
"""The field counts for each environment: given another `num_envs` alone, it changes so that the total stays."""

OF_A_RUN = {
    "total_timesteps": "total_steps",
    "timesteps": "total_steps",
    "num_timesteps": "total_steps",
    "max_steps": "total_steps",
    "env_id": "env",
    "env_name": "env",
    "environment": "env",
    "task": "env",
    "n_eval_episodes": "eval_episodes",
    "eval_freq": "eval_every",
    "wandb_project": "wandb",
}
"""Names of a run's options in other libraries, and those that they have here."""

Activation = Literal["default", "tanh", "relu", "elu", "silu", "gelu"]
ImageEncoderName = Literal["auto", "nature", "impala", "small"]
LayerSizes = tuple[int, ...]
OptimizerType = Literal["adam", "sgd"]

CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
LARGEST_NUMBER = 1e300
LARGEST_TEXT = 1_000_000
"""Characters of a grid or a preset file; a real one has a few thousand."""
STEPS_PER_REPORT = 64
"""Fewest steps of each environment between two reports of an off-policy run: at a report the host waits for the GPU."""
MOST_SEEDS = 10_000
MOST_NAMES = 50
"""Names that a message lists; of more it gives examples."""
MOST_LAYERS = 100
"""Hidden layers of a network; each takes milliseconds to make, and a file could list many thousands."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests the most similar known names, or lists all if none is similar."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    some = names if len(names) <= MOST_NAMES else [*names[:8], f"... ({len(names)} in all)"]
    return f"Known: {', '.join(some)}."


@dataclass(frozen=True)
class Config:
    """Base of the algorithms' configs. Every value is checked on construction."""

    def __post_init__(self) -> None:
        for field, annotation in self.annotations().items():
            object.__setattr__(self, field, checked(field, getattr(self, field), annotation))
        self.check()

    @classmethod
    def published_as(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Return whose published results such settings are compared with, the closest first; empty: the algorithm's."""
        return ()

    def derived(self, actions: int) -> dict[str, str]:
        """Return what is not set but follows from the task: each rule and its reason, by the setting that overrides it.

        `actions` is the number of continuous ones, 0 for choices alone.
        """
        return {}

    MANY_ENVS: ClassVar[int] = 2048
    """Default number of environments of an engine that steps thousands together on a GPU."""

    @classmethod
    def at_scale(cls, num_envs: int) -> dict[str, Any]:
        """Return the defaults for an engine that steps `num_envs` environments together, thousands on a GPU."""
        return {"num_envs": num_envs}

    @staticmethod
    def rollouts_at_scale(num_envs: int) -> dict[str, Any]:
        """Return the sizes of on-policy rollouts of thousands of environments: short ones, in 16 large minibatches.

        A rollout has at least 2 ** 16 rows and 16 steps; published settings have 66,000 to 330,000 rows and 5 to 64
        steps with 2,048 to 4,096 environments. Discount and traces do not follow from the task: advantages could not
        reach beyond such short rollouts.
        """
        steps = max(16, -(-(2**16) // num_envs))
        sizes = {"num_envs": num_envs, "rollout_steps": steps, "minibatch_size": max(64, num_envs * steps // 16)}
        return {**sizes, "gamma": 0.99, "gae_lambda": 0.95}

    @staticmethod
    def replay_at_scale(num_envs: int, updates: int, rows: int) -> dict[str, Any]:
        """Return the sizes of off-policy learning in thousands of environments: few updates, each on a large batch.

        After each step of all environments there are `updates` on `rows` rows of each environment, from a replay of its
        last 2,048. Learning begins after the first report, which has measured the scale of observations.
        """
        return {
            "num_envs": num_envs,
            "replay_size": 2048 * num_envs,
            "batch_size": rows * num_envs,
            "update_after": STEPS_PER_REPORT * num_envs,
            "updates_per_step": updates / num_envs,
        }

    def check(self) -> None:
        """Raise ConfigError if fields contradict each other; algorithms override this."""

    @classmethod
    def annotations(cls) -> dict[str, Any]:
        """Return each field's annotation, with its range and roles."""
        hints = typing.get_type_hints(cls, include_extras=True)
        return {field.name: hints[field.name] for field in dataclasses.fields(cls)}

    @classmethod
    @functools.cache
    def fields_with(cls, role: Role) -> tuple[str, ...]:
        """Return the names of the fields that have this role, in the order of the class."""
        return tuple(name for name, hint in cls.annotations().items() if role in getattr(hint, "__metadata__", ()))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return a config with these values; raise ConfigError, with the nearest names, for an unknown name."""
        cls.refuse_unknown(values)
        return cls(**values)

    @classmethod
    def refuse_unknown(cls, names: Iterable[str]) -> None:
        """Raise ConfigError, with the nearest names, for the first name that is not a field."""
        for name in names:
            if name not in cls.annotations():
                here = cls.names_here(name)
                close = f"Here it is called {here}." if here else nearest(name, cls.annotations())
                raise ConfigError(f"{name} is not a setting of {cls.__name__}. {close}")

    @classmethod
    def names_here(cls, name: str) -> str:
        """Return what a setting of other libraries is called here, "" if it is not known."""
        found = [
            field
            for field, hint in cls.annotations().items()
            for other in getattr(hint, "__metadata__", ())
            if isinstance(other, AlsoCalled) and name in other.names.split()
        ]
        return " and ".join(found) or OF_A_RUN.get(name, "")

    @classmethod
    def overridden(cls, base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of `base` (others keep their defaults) with those that a person gave instead.

        Given another `num_envs` alone, a rollout keeps its number of rows, or has a few more.
        """
        before: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(cls)} | dict(base)
        values = {**base, **given}
        envs = given.get("num_envs")
        if type(envs) is int and envs > 0 and envs != before["num_envs"]:
            for name in cls.fields_with(PER_ENV):
                if name not in given:
                    values[name] = -(-before[name] * before["num_envs"] // envs)
        return values

    def share(self, processes: int) -> Self:
        """Return the config of one of `processes` data-parallel ranks, with its share of the divided fields."""
        if processes == 1:
            return self
        divided = self.fields_with(DIVIDED)
        for name in divided:
            if getattr(self, name) % processes:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}, and {processes} processes cannot have equal shares of it: "
                    f"give a multiple of {processes}."
                )
        return dataclasses.replace(self, **{name: getattr(self, name) // processes for name in divided})

    def changed(self, settings: Mapping[str, float]) -> Self:
        """Return the config with other values of fields that an update takes as input, as they may change in a run."""
        self.refuse_unknown(settings)
        known = self.fields_with(TENSOR)
        for name, value in settings.items():
            before = getattr(self, name)
            if name not in known:
                raise ConfigError(f"{name} cannot change during a run: what can is {', '.join(known)}.")
            if (value is None) != (before is None) or bool(value) != bool(before):
                raise ConfigError(
                    f"{name} cannot change from {before} to {value} during a run: what is None or 0 stays so, and a "
                    "number stays one; give it when the run begins."
                )
        return dataclasses.replace(self, **settings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as written to config.yaml."""
        values = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


@dataclass(frozen=True)
class OptimizerConfig(Config):
    """Optimiser settings, inherited by the algorithms' configs."""

    # Optimiser
    optimizer_type: OptimizerType = "adam"
    """"adam" (eps 1e-5) or "sgd"."""
    sgd_momentum: Annotated[float, FRACTION] = 0.9
    """Momentum of "sgd"."""


def rule_of_rewards(normalized: bool | None) -> dict[str, str]:
    """Return the rule for the scale of rewards of PPO and V-MPO, as `Config.derived` does."""
    if normalized is False:
        return {}
    apart = "; dm_control's stay as they are" if normalized is None else ""
    rule = "rewards divided by the standard deviation of the discounted return, because units differ"
    return {"normalize_rewards": f"{rule}{apart}"}


def rule_of_first_std(given: float | Literal["auto"] | None, actions: int) -> dict[str, str]:
    """Return the rule for the first spread of PPO's and V-MPO's actions, as `Config.derived` does."""
    rule = f"-max(1, log D) / 2 for D = {actions}, because many actions that vary at once explore too widely"
    return {"initial_log_std": f"{first_log_std(actions):.3g}, {rule}"} if given == "auto" and actions else {}


def rules_of_horizon(gamma: float | None, gae_lambda: float | None) -> dict[str, str]:
    """Return the rules for how far ahead rewards count in PPO and V-MPO, as `Config.derived` does."""
    rules = {
        "gamma": "1 - 1 / H; H is the mean length of episodes, 100 to 1,000 steps, because what never terminates is "
        "judged over its whole length, and at most 200 once one has terminated",
        "gae_lambda": "1 - 1 / (2 sqrt(H)), so that advantages reach further with H",
    }
    given = {"gamma": gamma, "gae_lambda": gae_lambda}
    return {name: rule for name, rule in rules.items() if given[name] is None}


def read_text(path: Path) -> str:
    """Return the text of a file that somebody wrote by hand. Raise OSError or ValueError if it cannot be one."""
    if path.exists() and not path.is_file():
        raise OSError("it is no regular file")  # opening a pipe would wait forever
    with open(path) as file:
        text = file.read(LARGEST_TEXT + 1)
    if len(text) > LARGEST_TEXT:
        raise ValueError(f"it is longer than {LARGEST_TEXT} characters")
    return text


def check_plain(value: Any) -> None:
    """Raise ValueError if nested values from a file are none that Minerva writes.

    These are keys that are no text, control characters other than tabs and line ends, and numbers beyond any float.
    """
    if isinstance(value, str) and (found := CONTROL_CHARACTER.search(value)):
        raise ValueError(f"it contains the control character {found[0]!a}")
    if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
        raise ValueError("it contains a number of hundreds of digits")
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        raise ValueError("it contains a key that is no text")
    for part in [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ():
        check_plain(part)


def checked(name: str, value: Any, annotation: Any) -> Any:
    """Return `value` in the type of `annotation`; raise ConfigError if it has another type or is out of range.

    Without a range it must be finite.
    """
    wanted, *limits = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    value = _typed(name, value, wanted)
    for limit in [limit for limit in limits if isinstance(limit, Within)] or [FINITE]:
        if isinstance(value, (int, float)) and value not in limit:
            raise ConfigError(f"{name} is {value}: it must be in {limit.interval}.")
    return value


def _typed(name: str, value: Any, wanted: Any) -> Any:
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        words = [word for part in arguments if get_origin(part) is Literal for word in get_args(part)]
        words += [None] if types.NoneType in arguments else []
        return value if value in words else _typed(name, value, arguments[0])
    if origin is Literal:
        if value not in arguments:
            raise ConfigError(f"{name} is {value!r}: it must be one of {', '.join(map(str, arguments))}.")
        return value
    if origin is tuple:
        return _layer_sizes(name, value)
    return _plain(name, value, wanted)


def _plain(name: str, value: Any, wanted: type) -> Any:
    if wanted is bool and isinstance(value, bool):
        return value
    if wanted is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if wanted is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return _as_float(name, value)
    if wanted is str and isinstance(value, str):
        return value
    if wanted is float and callable(value):
        raise ConfigError(f"{name} is a function: give a number, and change it during the run with minerva.Schedule.")
    words = {bool: "True or False", int: "a whole number", float: "a number", str: "text"}
    raise ConfigError(f"{name} is {value!r}: it must be {words[wanted]}.")


def whole_number(name: str, value: Any) -> int:
    """Return a number of steps, episodes or threads, or a seed, as an int, also NumPy's or one written as 1e6."""
    is_whole = isinstance(value, numbers.Real) and not isinstance(value, bool) and value == value // 1
    if not is_whole:
        raise ConfigError(f"{name} is {value!r}: it must be a whole number.")
    return int(value)


def _as_float(name: str, value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        raise ConfigError(f"{name} is larger than any floating-point number: give a smaller one.") from None


def _layer_sizes(name: str, value: Any) -> LayerSizes:
    whole = isinstance(value, (list, tuple)) and all(isinstance(n, int) and not isinstance(n, bool) for n in value)
    if not whole or not value or min(value) < 1:
        raise ConfigError(f"{name} is {value!r}: it must list at least one positive layer width, for example 64 64.")
    if len(value) > MOST_LAYERS:
        raise ConfigError(f"{name} lists {len(value)} layers: at most {MOST_LAYERS} are possible.")
    return tuple(value)


def parse_seeds(text: str) -> list[int]:
    """Return the seeds that a user writes as 0:8 or as 0,1,5."""
    try:
        if ":" in text:
            first, last = (int(part) for part in text.split(":"))
            seeds = list(range(first, min(last, first + MOST_SEEDS + 1)))
        else:
            seeds = [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0:
        raise ConfigError(f"seeds is {text[:40]}: write 0:8 for seeds 0 to 7, or list them as 0,1,5.")
    if len(seeds) > MOST_SEEDS:
        raise ConfigError(f"seeds is {text[:40]}: at most {MOST_SEEDS:,} are possible.")
    return seeds
