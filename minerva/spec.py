"""Specs of observations and actions, as plain values that a checkpoint can hold.

Agents, storage and exported policies are built from these two specs, without the environment.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

import numpy as np

from minerva.errors import TrainingError

Array = np.ndarray[Any, np.dtype[Any]]

LARGEST = float(np.finfo(np.float32).max)
"""The largest number that networks, rollouts and replays hold: they are float32."""

Layout = list[int] | dict[str, Any] | None
"""Shape of an array, or the layouts of a mapping's entries by name, in the order in which they are concatenated."""

ActionKind = Literal["continuous", "discrete", "multi_discrete"]


@dataclass(frozen=True)
class ObservationSpec:
    """Shape and dtype of one observation."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    layout: Layout = field(default=None, compare=False, hash=False)
    """How the environment gives it, if that is no vector: `flatten` turns the one into the other."""

    @classmethod
    def of(cls, obs: "int | ObservationSpec") -> "ObservationSpec":
        """Return a spec unchanged, or the spec of a vector of `obs` numbers."""
        return obs if isinstance(obs, ObservationSpec) else ObservationSpec((int(obs),))

    @property
    def size(self) -> int:
        """Number of elements of an observation."""
        return math.prod(self.shape)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        layout = {} if self.layout is None else {"layout": self.layout}
        return {"shape": list(self.shape), "dtype": self.dtype, **layout}

    def flatten(self, observation: Any) -> Array:
        """Return what the environment gives, single or batched, flattened as in training; vectors stay as they are.

        Raise ValueError if it has another form.
        """
        if isinstance(observation, (Mapping, tuple)) or _ends_with(self.layout, np.shape(observation)):
            return np.concatenate(_vectors(self.layout, observation), -1)
        return np.asarray(observation)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the spec that `to_dict` described; raise ValueError if these values describe none."""
        shape, dtype = tuple(values["shape"]), values["dtype"]
        if not shape or not all(type(n) is int and n > 0 for n in shape) or type(dtype) is not str:
            raise ValueError("the observation's shape is not a list of positive whole numbers")
        layout = values.get("layout")
        if layout is not None and _layout_size(layout) != math.prod(shape):
            raise ValueError("the observation's layout has another number of elements than its shape")
        return cls(shape, dtype, layout)


def _layout_size(layout: Any) -> int:
    """Return the number of elements of a layout; raise ValueError if it is none."""
    if isinstance(layout, dict):
        return sum(map(_layout_size, layout.values()))
    if not isinstance(layout, list) or not all(type(n) is int and n > 0 for n in layout):
        raise ValueError("the observation's layout holds something else than shapes")
    return math.prod(layout)


def _ends_with(layout: Layout, shape: tuple[int, ...]) -> bool:
    return isinstance(layout, list) and len(layout) > 1 and shape[-len(layout) :] == tuple(layout)


def _vectors(layout: Layout, observation: Any, name: str = "") -> list[Array]:
    """Return the parts of an observation as vectors, in the order of the layout.  [..., n] each"""
    if isinstance(layout, dict):
        if not isinstance(observation, Mapping) or not layout.keys() <= observation.keys():
            held = ", ".join(map(str, observation)) if isinstance(observation, Mapping) else type(observation).__name__
            raise ValueError(f"it holds {held}, not the entries {', '.join(layout)}")
        return [vector for key, part in layout.items() for vector in _vectors(part, observation[key], key)]
    values = np.asarray(observation)
    size = len(layout or ())
    if layout is None or values.shape[values.ndim - size :] != tuple(layout):
        wanted = "not with names" if layout is None else f"in the shape {tuple(layout)}"
        raise ValueError(
            f"its {name or 'values'} have the shape {values.shape}, and the environment gives them {wanted}"
        )
    return [values.reshape(*values.shape[: values.ndim - size], -1)]


@dataclass(frozen=True)
class ActionSpec:
    """Kind and bounds of one action. Make one with `continuous`, `discrete` or `multi_discrete`.

    Inside Minerva continuous actions are in [-1, 1]; `to_environment` converts them to the environment's units.
    """

    kind: ActionKind
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    """Number of choices of each dimension of a discrete action."""

    @classmethod
    def continuous(cls, low: Sequence[float] | Array, high: Sequence[float] | Array) -> Self:
        """Return the spec of a vector with a lower and an upper bound per dimension."""
        return cls("continuous", tuple(float(x) for x in low), tuple(float(x) for x in high))

    @classmethod
    def discrete(cls, choices: int) -> Self:
        """Return the spec of one of `choices` choices."""
        return cls("discrete", counts=(int(choices),))

    @classmethod
    def multi_discrete(cls, counts: Sequence[int]) -> Self:
        """Return the spec of several discrete choices at once, the n-th one of `counts[n]`."""
        return cls("multi_discrete", counts=tuple(int(n) for n in counts))

    @property
    def size(self) -> int:
        """Number of action dimensions."""
        return len(self.low) if self.kind == "continuous" else len(self.counts)

    @functools.cached_property
    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds as float64 arrays.  [D], [D]"""
        return np.asarray(self.low, np.float64), np.asarray(self.high, np.float64)

    @functools.cached_property
    def _half_width(self) -> Array:
        return 0.5 * (self.bounds[1] - self.bounds[0])

    def to_environment(self, actions: Array) -> Array:
        """Return continuous actions in the environment's units, clipped to its bounds.  [..., D] -> [..., D]"""
        if not np.isfinite(actions).all():
            raise TrainingError(f"The policy gave an action that is not finite ({actions}): lower its learning rate.")
        low, high = self.bounds
        scaled = low + (actions + 1.0) * self._half_width
        # clipped last, because rounding can carry even an action of ±1 past its bound; np.clip takes twice as long
        return np.minimum(np.maximum(scaled, low), high)

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
        """Return plain values for a checkpoint."""
        return {"kind": self.kind, "low": list(self.low), "high": list(self.high), "counts": list(self.counts)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the spec that `to_dict` described; raise ValueError if these values describe none."""
        low, high, counts = (tuple(values[name]) for name in ("low", "high", "counts"))
        spec = cls(values["kind"], low, high, counts)
        if spec.kind not in get_args(ActionKind) or not spec.size or not all(type(n) is int and n > 0 for n in counts):
            raise ValueError("the action's kind or its dimensions are unknown")
        if not all(type(bound) in (int, float) for bound in low + high):
            raise ValueError("an action's bound is not a number")
        if len(low) != len(high) or not (np.isfinite(spec.bounds).all() and (spec.bounds[0] < spec.bounds[1]).all()):
            raise ValueError("the action's bounds are not pairs of finite numbers, the lower one first")
        return spec
