"""Save and restore the whole state of an environment as plain data, so that a resumed run equals an uninterrupted one.

An environment is traversed from its outermost wrapper inwards, attribute by attribute. Numbers, text, arrays, random
generators and containers of them are encoded; Python objects are traversed in turn; MuJoCo's objects are encoded by
`simulator`. Anything else, such as a handle of a C library, may hold hidden state: then the environment has no
snapshot, and the reason names the attribute. Restoring writes into an environment made in the same way, and never
puts a callable into it.
"""

import enum
import json
import logging
import math
import types
from collections import OrderedDict, deque
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from minerva.envs.simulator import Simulation

Array = np.ndarray[Any, np.dtype[Any]]

PLAIN = (bool, int, float, str)
CONSTANT = (type, types.ModuleType, types.BuiltinFunctionType, EnvSpec, enum.Enum, np.dtype, logging.Logger)
"""Types whose values never change while an environment is stepped."""
RENDERERS = ("MujocoRenderer",)
"""Names of classes that render a simulation and do not influence it."""
SEQUENCES = {kind.__name__: kind for kind in (list, tuple, set, frozenset, deque)}
MAPPINGS = {kind.__name__: kind for kind in (dict, OrderedDict)}
CHECKERS = ("PassiveEnvChecker",)
"""Names of wrappers that change nothing: only the wrapped environment is encoded."""
POINTER = 8
"""Size in bytes of a pointer."""
MISSING = object()


class NoSnapshotError(Exception):
    """Raised if an environment's state cannot be saved, or a snapshot does not fit it; the message says why."""


class Snapshot(NamedTuple):
    """An environment's state: values as JSON text, and the bytes of all arrays, which the values refer to."""

    values: str
    data: Array


class Snapshots:
    """Takes and restores snapshots of one environment. Construct it before the first reset, when models are as made."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.env = env
        self._simulations: dict[int, Simulation] = {}
        self.unavailable_reason = ""
        try:
            _Encoder(self._simulations, first=True).encode(env, "env")
        except NoSnapshotError as reason:
            self.unavailable_reason = str(reason)

    def take(self) -> Snapshot:
        """Return a snapshot of the current state; raise NoSnapshotError if the environment has none."""
        if self.unavailable_reason:
            raise NoSnapshotError(self.unavailable_reason)
        encoder = _Encoder(self._simulations)
        values = encoder.encode(self.env, "env")
        return Snapshot(json.dumps(values), np.frombuffer(b"".join(encoder.chunks), np.uint8))

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot of an environment made in the same way; raise NoSnapshotError if it does not fit."""
        try:
            _Decoder(self._simulations, snapshot.data).decode(json.loads(snapshot.values), self.env)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise NoSnapshotError(f"the snapshot is of another environment ({error})") from error


class _Encoder:
    """One traversal that encodes everything. An object that occurs again is referred to by its number."""

    def __init__(self, simulations: dict[int, Simulation], first: bool = False) -> None:
        self.simulations, self.first = simulations, first
        self.chunks: list[bytes] = []
        self._length = 0
        self._numbers: dict[int, int] = {}
        self._owners: set[int] = set()
        self._alive: list[Any] = []  # ids are unique only while their objects live

    def encode(self, value: Any, path: str) -> Any:
        """Return `value` as plain data: itself, or {kind: content}."""
        if value is None or type(value) in PLAIN:
            return value
        if id(value) in self._numbers:
            return {"same": self._numbers[id(value)]}
        self._numbers[id(value)] = len(self._numbers)
        self._alive.append(value)
        name = type(value).__name__
        if isinstance(value, np.ndarray):
            return {"array": self._array(value, path)}
        if isinstance(value, np.generic):
            return {"scalar": self._array(np.asarray(value), path)}
        if isinstance(value, np.random.Generator):
            return {"generator": self.encode(value.bit_generator.state, path)}
        if isinstance(value, np.random.RandomState):
            return {"random state": self.encode(value.get_state(legacy=False), path)}
        if type(value) in SEQUENCES.values():
            parts = [self.encode(part, f"{path}[{i}]") for i, part in enumerate(value)]
            return {name: [parts, value.maxlen] if isinstance(value, deque) else parts}
        if type(value) in MAPPINGS.values():
            return {
                name: [[self.encode(key, path), self.encode(part, f"{path}[{key!r}]")] for key, part in value.items()]
            }
        if isinstance(value, CONSTANT) or name in RENDERERS or _is(value, "mujoco", "MjModel"):
            return {"keep": None}
        return self._object(value, path)

    def _object(self, value: Any, path: str) -> Any:
        if _is(value, "mujoco", "MjData"):
            return {"simulation": self.encode(self._simulation(value, path).take(), path)}
        if _is(value, "dm_control", "Physics"):
            return {"physics": self.encode(value.data.ptr, f"{path}.data")}
        if isinstance(value, types.MethodType):
            return {"method": self.encode(value.__self__, f"{path}.__self__")}
        if isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            return {"function": [self.encode(cell, f"{path}.<closure>") for cell in cells]}
        if _hides_state(type(value)) or not hasattr(value, "__dict__"):
            raise NoSnapshotError(f"{path} is a {_kind(value)}, which cannot be read")
        attributes = {"env": value.env} if type(value).__name__ in CHECKERS else vars(value)
        return {
            "object": [_kind(value), {name: self.encode(part, f"{path}.{name}") for name, part in attributes.items()}]
        }

    def _simulation(self, data: Any, path: str) -> Simulation:
        if id(data) not in self.simulations:
            if not self.first:
                raise NoSnapshotError(f"{path} is a simulation made after the environment was")
            self.simulations[id(data)] = Simulation(data.model, data)
        return self.simulations[id(data)]

    def _array(self, array: Array, path: str) -> list[Any]:
        """Append the array's bytes and return [dtype, shape, offset]."""
        owner: Any = array
        while isinstance(owner, np.ndarray) and owner.base is not None:
            owner = owner.base
        if array.dtype.kind not in "biufcSU" or not isinstance(owner, (np.ndarray, bytes)):
            raise NoSnapshotError(f"{path} is an array of {array.dtype} over memory of a {type(owner).__name__}")
        if id(owner) in self._owners:
            raise NoSnapshotError(f"{path} shares its memory with another array")
        self._owners.add(id(owner))
        self._alive.append(owner)
        chunk = array.tobytes()
        self.chunks.append(chunk)
        self._length += len(chunk)
        return [array.dtype.str, list(array.shape), self._length - len(chunk)]


class _Decoder:
    """The traversal of `_Encoder` in reverse: `decode` returns the value that replaces `old`."""

    def __init__(self, simulations: dict[int, Simulation], data: Array) -> None:
        self.simulations, self.data = simulations, data
        self._values: list[Any] = []

    def decode(self, code: Any, old: Any) -> Any:
        """Return the value that `code` encodes; `old` is the current value in its place."""
        if not isinstance(code, dict):
            return code
        ((kind, content),) = code.items()
        if kind == "same":
            return self._values[content]
        number = len(self._values)
        self._values.append(old)  # an object may refer to itself
        self._values[number] = value = self._decoded(kind, content, old)
        return value

    def _decoded(self, kind: str, content: Any, old: Any) -> Any:
        if kind in ("array", "scalar"):
            array = self._array(*content)
            return array if kind == "array" else array[()]
        if kind == "generator":
            state = self.decode(content, MISSING)
            bits = {"PCG64": np.random.PCG64, "MT19937": np.random.MT19937, "Philox": np.random.Philox}
            bits |= {"PCG64DXSM": np.random.PCG64DXSM, "SFC64": np.random.SFC64}
            generator = np.random.Generator(bits[state["bit_generator"]]())
            generator.bit_generator.state = state
            return generator
        if kind == "random state":
            random = np.random.RandomState()
            random.set_state(self.decode(content, MISSING))
            return random
        if kind in SEQUENCES:
            parts, size = content if kind == "deque" else (content, None)
            olds = list(old) if type(old) is SEQUENCES[kind] else []
            olds += [MISSING] * (len(parts) - len(olds))
            decoded = [self.decode(part, olds[i]) for i, part in enumerate(parts)]
            return deque(decoded, size) if kind == "deque" else SEQUENCES[kind](decoded)
        if kind in MAPPINGS:
            known = old if isinstance(old, dict) else {}
            pairs = [(self.decode(key, MISSING), part) for key, part in content]
            return MAPPINGS[kind]((key, self.decode(part, known.get(key, MISSING))) for key, part in pairs)
        return self._restored(kind, content, old)

    def _restored(self, kind: str, content: Any, old: Any) -> Any:
        """Return `old`, an object that cannot be made from data, with its contents restored."""
        if old is MISSING:
            raise ValueError(f"there is no {kind} to restore into")
        if kind == "simulation":
            self.simulations[id(old)].restore(self.decode(content, MISSING))
        elif kind == "physics":
            self.decode(content, old.data.ptr)
        elif kind == "method":
            self.decode(content, old.__self__)
        elif kind == "function":
            for cell, part in zip(old.__closure__ or (), content, strict=True):
                cell.cell_contents = _allowed(self.decode(part, cell.cell_contents), cell.cell_contents)
        elif kind == "object":
            self._restore_object(content, old)
        elif kind != "keep":
            raise ValueError(f"{kind} is unknown")
        return old

    def _restore_object(self, content: Any, old: Any) -> None:
        kind, attributes = content
        if kind != _kind(old):
            raise ValueError(f"a {kind} is a {_kind(old)} here")
        before = vars(old)
        after = {name: self.decode(part, before.get(name, MISSING)) for name, part in attributes.items()}
        for name, value in after.items():
            _allowed(value, before.get(name, getattr(type(old), name, None)))
        if type(old).__name__ not in CHECKERS:
            before.clear()
        before.update(after)

    def _array(self, dtype: str, shape: list[int], offset: int) -> Array:
        if np.dtype(dtype).kind not in "biufcSU":
            raise ValueError(f"an array of {dtype} is not plain data")
        count = math.prod(shape)
        return np.frombuffer(self.data, dtype, count, offset).reshape(shape).copy() if count else np.empty(shape, dtype)


def _allowed(new: Any, old: Any) -> Any:
    """Return `new`; raise ValueError if it would add or replace a callable."""
    if (callable(new) or callable(old)) and new is not old:
        raise ValueError("a snapshot does not change what an environment calls")
    return new


def _hides_state(kind: type) -> bool:
    """Return whether instances are larger than their pointers to attributes and weak references: by slots, or in C."""
    pointers = (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    return kind.__basicsize__ > object.__basicsize__ + POINTER * pointers


def _kind(value: Any) -> str:
    module = getattr(type(value), "__module__", "")  # a type that SWIG made, such as Box2D's, has none
    return f"{module}.{type(value).__qualname__}".lstrip(".")


def _is(value: Any, package: str, name: str) -> bool:
    """Return whether `value` is an instance of a package's class, without importing the package."""
    return any(kind.__name__ == name and kind.__module__.partition(".")[0] == package for kind in type(value).__mro__)
