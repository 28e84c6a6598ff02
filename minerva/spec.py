"""Specs of observations and actions, as plain values that a checkpoint can hold.

Agents, storage and exported policies are built from these two specs, without the environment.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np

from minerva.errors import TrainingError

Array = np.ndarray[Any, np.dtype[Any]]

LARGEST = float(np.finfo(np.float32).max)
"""The largest number that networks, rollouts and replays hold: they are float32."""

ActionKind = Literal["continuous", "discrete", "multi_discrete"]


@dataclass(frozen=True)
class ObservationSpec:
    """Shape and dtype of one observation."""

    shape: tuple[int, ...]
    dtype: str = "float32"

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
        return {"shape": list(self.shape), "dtype": self.dtype}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the spec that `to_dict` described; raise ValueError if these values describe none."""
        shape, dtype = tuple(values["shape"]), values["dtype"]
        if not shape or not all(type(n) is int and n > 0 for n in shape) or type(dtype) is not str:
            raise ValueError("the observation's shape is not a list of positive whole numbers")
        return cls(shape, dtype)


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
