"""Specs of observations and actions, as plain values that a checkpoint can hold.

Agents, storage and exported policies are built from these two specs, without the environment.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np

from minerva.errors import TrainingError
from minerva.layout import (
    CHOICES,
    NUMBER_BYTES,
    Layout,
    array_shape,
    arrays,
    image_bytes,
    image_shapes,
    number_name,
    rows,
    vector_sizes,
)
from minerva.layout import Array as Array

LARGEST = float(np.finfo(np.float32).max)
"""The largest number that networks, rollouts and replays hold: they are float32."""

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
"""Types in which environments take choices."""

ActionKind = Literal["continuous", "discrete", "multi_discrete", "dict", "tuple"]


@dataclass(frozen=True)
class ObservationSpec:
    """Shape and dtype of the row that one observation becomes: a vector of numbers or, with images, of bytes."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    layout: Layout = field(default=None, compare=False, hash=False)
    """How the environment gives it, if that is no vector: `flatten` turns the one into the other."""
    frames: tuple[int, ...] = field(default=(), compare=False)
    """Of each image, how many frames of an episode it stacks along its first axis; empty: none does."""
    images: tuple[tuple[int, ...], ...] = field(init=False)
    """Largest value and shape of each image."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "images", image_shapes(self.layout))

    @classmethod
    def of(cls, obs: "int | ObservationSpec") -> "ObservationSpec":
        """Return a spec unchanged, or the spec of a vector of `obs` numbers."""
        return obs if isinstance(obs, ObservationSpec) else ObservationSpec((int(obs),))

    @classmethod
    def of_layout(cls, layout: Layout, mask_size: int = 0, frames: tuple[int, ...] = ()) -> Self:
        """Return the spec of observations with this layout, followed by a mask of the possible choices."""
        numbers, images = sum(vector_sizes(layout)) + mask_size, image_shapes(layout)
        if not images:
            return cls((numbers,), layout=layout)
        return cls((numbers * NUMBER_BYTES + image_bytes(images),), "uint8", layout, frames)

    @property
    def size(self) -> int:
        """Number of elements of a row."""
        return math.prod(self.shape)

    @property
    def numbers(self) -> int:
        """Number of numbers in a row, beside the images; those of a mask are the last."""
        return (self.size - image_bytes(self.images)) // NUMBER_BYTES if self.images else self.size

    def numbers_of(self, rows: Array) -> Array:
        """Return the numbers of rows.  [..., row] -> [..., N]"""
        return rows[..., : self.numbers * NUMBER_BYTES].view(np.float32) if self.images else rows

    def first_infinite(self, numbers: Array) -> str:
        """Return the first number of a row that float32 does not hold, with its place: `nan at velocity[0]`."""
        index = int(np.flatnonzero(~(np.abs(numbers) <= LARGEST))[0])
        return f"{numbers[index]} at {f'[{index}]' if self.layout is None else number_name(self.layout, index)}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        layout = {} if self.layout is None else {"layout": self.layout}
        return {"shape": list(self.shape), "dtype": self.dtype, **layout}

    def lead(self, observation: Any) -> tuple[int, ...]:
        """Return the leading axes of a batch of what the environment gives, or of rows; none for a single one.

        Raise ValueError if it has another form.
        """
        if self._is_row(observation):
            return np.shape(observation)[:-1]
        leaf, values, _ = arrays(self.layout, observation)[0]
        return values.shape[: values.ndim - len(array_shape(leaf))]

    def flatten(self, observation: Any, mask: Array | None = None) -> Array:
        """Return what the environment gives, single or batched, as rows with this mask; rows of bytes stay as they are.

        Raise ValueError if it has another form.
        """
        if not self._is_row(observation):
            return rows(self.layout, observation, mask)
        vectors = np.asarray(observation)
        if vectors.dtype.kind not in "fiub":
            try:
                vectors = vectors.astype(np.float64)  # None becomes NaN, which is named with its place
            except (TypeError, ValueError):
                raise ValueError(f"it is {type(observation).__name__}, and not numbers") from None
        if self.images and vectors.dtype != np.uint8:
            raise ValueError(f"it is a row of {vectors.dtype}, and with images a row has bytes, {self.size} of them")
        return vectors if mask is None or self.images else np.concatenate((vectors, mask), -1)

    def _is_row(self, observation: Any) -> bool:
        """Return whether an observation has the form of rows, rather than that in which the environment gives it."""
        if isinstance(observation, (Mapping, tuple)):
            return False
        if self.layout is None:
            return True
        values = np.asarray(observation)
        if self._as_given(values):
            return False
        sizes = (self.size,) if self.images else (self.size, sum(vector_sizes(self.layout)))  # without a mask, too
        return values.ndim > 0 and values.shape[-1] in sizes

    def _as_given(self, values: Array) -> bool:
        """Return whether an array has the form in which the environment gives it, which may be that of a row, too."""
        if not isinstance(self.layout, list):
            return False
        shape = array_shape(self.layout)
        if values.shape[values.ndim - len(shape) :] != shape:
            return False
        choices = self.layout[:1] == [CHOICES]
        return values.dtype.kind in "iu" if choices else len(shape) > 1 or values.ndim <= 1

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the spec that `to_dict` described; raise ValueError if these values describe none."""
        shape, dtype = tuple(values["shape"]), values["dtype"]
        if not shape or not all(type(n) is int and n > 0 for n in shape) or type(dtype) is not str:
            raise ValueError("the observation's shape is not a list of positive whole numbers")
        spec = cls(shape, dtype, values.get("layout"))
        if spec.layout is not None and sum(vector_sizes(spec.layout)) > spec.numbers:  # a mask of actions may follow
            raise ValueError("the observation's layout has more elements than its shape")
        if spec.images and (dtype != "uint8" or len(shape) > 1):
            raise ValueError("the observation holds images, and is not a row of bytes")
        return spec


@dataclass(frozen=True)
class ActionSpec:
    """Kind and range of one action. Make one with `continuous`, `discrete`, `multi_discrete` or `compound`.

    Inside Minerva an action is a vector: first all its numbers, in [-1, 1], then all its choices, counted from 0.
    `to_environment` converts it to the environment's units, `native` to the form that the environment's `step` takes.
    """

    kind: ActionKind
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    """Number of choices of each dimension of a discrete action."""
    starts: tuple[int, ...] = ()
    """The environment's number of the first choice, for each dimension of a discrete action."""
    dtype: str = "float32"
    """Type of the numbers that the environment's `step` takes."""
    parts: tuple["ActionSpec", ...] = ()
    """Specs of the entries of a dict or a tuple; the fields above are then those of all parts."""
    names: tuple[str, ...] = ()
    """Names of the entries of a dict."""
    masked: bool = False
    """Whether a mask of the possible choices, 1 or 0 for each, follows the numbers of an observation."""

    @classmethod
    def of(cls, action: "int | ActionSpec") -> "ActionSpec":
        """Return a spec unchanged, or the spec of a vector of `action` numbers in [-1, 1]."""
        return action if isinstance(action, ActionSpec) else ActionSpec.continuous([-1.0] * action, [1.0] * action)

    @classmethod
    def continuous(cls, low: Sequence[float] | Array, high: Sequence[float] | Array) -> Self:
        """Return the spec of a vector with a lower and an upper bound per dimension."""
        return cls("continuous", tuple(float(x) for x in low), tuple(float(x) for x in high))

    @classmethod
    def discrete(cls, choices: int, start: int = 0, dtype: str = "int64") -> Self:
        """Return the spec of one of `choices` choices, which the environment counts from `start`."""
        return cls("discrete", counts=(int(choices),), starts=(int(start),), dtype=dtype)

    @classmethod
    def multi_discrete(cls, counts: Sequence[int], starts: Sequence[int] = (), dtype: str = "int64") -> Self:
        """Return the spec of several choices at once, the n-th one of `counts[n]`, counted from `starts[n]` or 0."""
        given = starts if len(starts) else [0] * len(counts)
        return cls("multi_discrete", (), (), tuple(int(n) for n in counts), tuple(int(n) for n in given), dtype)

    @classmethod
    def compound(cls, parts: Sequence["ActionSpec"], names: Sequence[str] = ()) -> Self:
        """Return the spec of several actions at once: a tuple or, with a name for each, a dict."""
        fields = ("low", "high", "counts", "starts")
        joined: dict[str, Any] = {
            name: tuple(value for part in parts for value in getattr(part, name)) for name in fields
        }
        return cls("dict" if names else "tuple", **joined, parts=tuple(parts), names=tuple(names))

    @property
    def size(self) -> int:
        """Number of action dimensions."""
        return len(self.low) + len(self.counts)

    @property
    def mask_size(self) -> int:
        """Number of entries of the mask that follows an observation: one for each choice, or none."""
        return sum(self.counts) if self.masked else 0

    def fits(self, other: "ActionSpec") -> bool:
        """Return whether a policy with these actions can act in an environment with `other`: the bounds may differ."""
        mine, others = ((spec.kind, len(spec.low), spec.counts, spec.names, len(spec.parts)) for spec in (self, other))
        return mine == others and all(map(ActionSpec.fits, self.parts, other.parts))

    @functools.cached_property
    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds as float64 arrays.  [D], [D]"""
        return np.asarray(self.low, np.float64), np.asarray(self.high, np.float64)

    @property
    def range(self) -> tuple[Array, Array]:
        """The environment's smallest and largest number of each dimension.  [D], [D]"""
        starts = np.asarray(self.starts, np.float64)
        last = starts + np.asarray(self.counts, np.float64) - 1
        return np.append(self.bounds[0], starts), np.append(self.bounds[1], last)

    @functools.cached_property
    def _half_width(self) -> Array:
        # LaTeX: h_j = \frac{1}{2} (a_j^{high} - a_j^{low})
        return 0.5 * (self.bounds[1] - self.bounds[0])

    def random(self, obs: Array, draw: np.random.Generator) -> Array:
        """Draw a uniformly random action for each observation, by the mask that its numbers end with, if there is one.

        [rows, O] -> [rows, D]
        """
        numbers = draw.uniform(-1, 1, (len(obs), len(self.low)))
        if not self.masked:
            choices = draw.integers(np.asarray(self.counts, np.int64), size=(len(obs), len(self.counts)))
            return self._joined(numbers, choices)
        mask = obs[:, -self.mask_size :]
        each = np.split(np.where(mask > 0, draw.random(mask.shape), -1), np.cumsum(self.counts)[:-1], -1)
        return self._joined(numbers, np.stack([scores.argmax(-1) for scores in each], -1))

    def flat_mask(self, mask: Any) -> Array:
        """Return a mask, or a structure of masks like that of the actions, as one vector in the order of the choices.

        A batch has leading axes, in every entry of a structure. Raise ValueError for another structure.
        """
        try:
            if self.parts and isinstance(mask, (Mapping, tuple, list)):
                keys: Any = self.names or range(len(self.parts))
                with_choices = [(key, part) for key, part in zip(keys, self.parts, strict=True) if part.counts]
                return np.concatenate([part.flat_mask(mask[key]) for key, part in with_choices], -1)
            each = self.kind == "multi_discrete" and isinstance(mask, (tuple, list)) and np.ndim(mask[0])
            return np.concatenate(mask, -1) if each else np.asarray(mask)
        except (TypeError, KeyError, IndexError, ValueError):
            raise ValueError("its action_mask does not have the structure of the actions") from None

    def checked_mask(self, mask: Array, chosen: bool = True) -> Array:
        """Return masks as flags; raise ValueError unless they have a 0 or a 1 for each choice.  [..., C] -> [..., C]

        `chosen` says whether actions are chosen by them: then each needs a possible choice.
        """
        entries, choices = mask.shape[-1] if mask.ndim else 1, sum(self.counts)
        if entries != choices:
            raise ValueError(f"its action_mask has {entries} entries, and its actions have {choices} choices")
        if mask.dtype.kind not in "fiub" or not ((mask == 0) | (mask == 1)).all():
            raise ValueError("its action_mask holds something else than 0 and 1")
        flags: Array = mask != 0
        firsts = np.cumsum((0, *self.counts[:-1]))
        if chosen and not np.logical_or.reduceat(flags, firsts, -1).all():
            raise ValueError("its action_mask forbids every choice")
        return flags

    def to_environment(self, actions: Array) -> Array:
        """Return actions in the environment's units, continuous ones clipped to its bounds.  [..., D] -> [..., D]"""
        if not np.isfinite(actions).all():
            raise TrainingError(f"The policy gave an action that is not finite ({actions}): lower its learning rate.")
        numbers, choices = self._split(actions)
        low, high = self.bounds
        # LaTeX: a_j = a_j^{low} + (x_j + 1) h_j
        scaled = low + (numbers + 1.0) * self._half_width
        # clipped last, because rounding can carry even an action of ±1 past its bound; np.clip takes twice as long
        # LaTeX: \bar{a}_j = \min(\max(a_j, a_j^{low}), a_j^{high})
        within = np.minimum(np.maximum(scaled, low), high)
        return self._joined(within, choices.astype(np.int64) + np.asarray(self.starts)) if self.counts else within

    def native(self, actions: Array) -> Any:
        """Return actions in the environment's units as its `step` takes them: a number, a vector, a dict or a tuple.

        [..., D] -> [...] or [..., D], or of each entry
        """
        if self.parts:
            natives = [part.native(columns) for part, columns in zip(self.parts, self._columns(actions), strict=True)]
            return dict(zip(self.names, natives, strict=True)) if self.kind == "dict" else tuple(natives)
        if self.kind == "continuous":
            return self.to_float32(actions)
        choices = actions.astype(self.dtype)
        return choices[..., 0][()] if self.kind == "discrete" else choices  # [()] makes a number of an array of one

    def _split(self, actions: Array) -> tuple[Array, Array]:
        """Return the columns of the numbers, and those of the choices."""
        numbers = len(self.low)
        return (actions, actions[..., :0]) if not self.counts else (actions[..., :numbers], actions[..., numbers:])

    def _joined(self, numbers: Array, choices: Array) -> Array:
        """Return numbers and choices as one vector, of integers if there are choices alone."""
        if not self.counts:
            return numbers
        return np.concatenate((numbers, choices), -1) if self.low else choices

    def _columns(self, actions: Array) -> Iterator[Array]:
        """Yield the columns of each part, its numbers first."""
        numbers, choices = self._split(actions)
        for part in self.parts:
            mine, numbers = np.split(numbers, [len(part.low)], -1)
            chosen, choices = np.split(choices, [len(part.counts)], -1)
            yield np.concatenate((mine, chosen), -1)

    def to_float32(self, actions: Array) -> Array:
        """Return actions in the environment's units as float32, still within the bounds.  [..., D] -> [..., D]

        Where no float32 number lies between the bounds of a dimension, the actions stay float64.
        """
        low, high = (bound.astype(np.float32) for bound in self.bounds)
        low = np.where(low < self.bounds[0], np.nextafter(low, np.float32(np.inf)), low)
        high = np.where(high > self.bounds[1], np.nextafter(high, np.float32(-np.inf)), high)
        if not np.all(low <= high):
            return actions
        return np.minimum(np.maximum(actions.astype(np.float32), low), high)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a checkpoint; those of continuous actions are as in earlier versions."""
        values: dict[str, Any] = {
            "kind": self.kind,
            "low": list(self.low),
            "high": list(self.high),
            "counts": list(self.counts),
        }
        if self.kind == "continuous":
            return values
        values |= {"starts": list(self.starts), "dtype": self.dtype, "masked": self.masked}
        if not self.parts:
            return values
        return {**values, "names": list(self.names), "parts": [part.to_dict() for part in self.parts]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the spec that `to_dict` described; raise ValueError if these values describe none."""
        if values["kind"] in ("dict", "tuple"):
            spec = cls.compound([cls.from_dict(part) for part in values["parts"]], values["names"])
            if not spec.parts or spec.kind != values["kind"] or len(spec.names) != len(spec.parts) * bool(spec.names):
                raise ValueError("the action's entries and their names do not fit each other")
            if not all(type(name) is str for name in spec.names):
                raise ValueError("a name of an action's entry is not text")
            return dataclasses.replace(spec, masked=values["masked"] is True)
        low, high, counts = (tuple(values[name]) for name in ("low", "high", "counts"))
        if values["kind"] == "continuous":
            spec = cls("continuous", low, high, counts)
        else:
            spec = cls(values["kind"], low, high, counts, tuple(values["starts"]), values["dtype"])
            spec = dataclasses.replace(spec, masked=values["masked"] is True)
        spec._check()
        return spec

    def _check(self) -> None:
        """Raise ValueError if the kind and its range contradict each other."""
        numbers, choices = len(self.low), len(self.counts)
        sizes = {"continuous": numbers > 0, "discrete": choices == 1, "multi_discrete": choices > 0}
        if not sizes.get(self.kind) or (numbers and choices):
            raise ValueError("the action's kind or its dimensions are unknown")
        if not all(type(n) is int and n > 0 for n in self.counts):
            raise ValueError("an action's number of choices is not a positive whole number")
        if len(self.starts) != choices or not all(type(n) is int and abs(n) < 2**31 for n in self.starts):
            raise ValueError("the numbers of the first choices are not one whole number for each")
        if choices and self.dtype not in INTEGERS:
            raise ValueError(f"the choices' type is not one of {', '.join(INTEGERS)}")
        if not all(type(bound) in (int, float) for bound in self.low + self.high):
            raise ValueError("an action's bound is not a number")
        if numbers != len(self.high) or not (
            np.isfinite(self.bounds).all() and (self.bounds[0] < self.bounds[1]).all()
        ):
            raise ValueError("the action's bounds are not pairs of finite numbers, the lower one first")
