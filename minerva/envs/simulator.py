"""Save and restore the state of a MuJoCo simulation as arrays, bit for bit.

MuJoCo's integration state is not enough: rewards read derived arrays that lag it by a step, and some tasks write into
the model. Exact are: the integration state, a forward call to rebuild contacts, then every array of mjData whose shape
never changes, and the fields of mjModel that differ from the model as it was made.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Numbers = dict[str, Any]

STRUCTS = ("opt", "stat")
"""Structs inside mjModel whose numbers change the physics."""

ASSETS = ("mesh_", "skin_", "tex_", "bvh_", "oct_")
"""Prefixes of the fields of mjModel that hold meshes and textures read from files: large and constant."""


ISLANDS = ("dof_island", "tree_island", "map_dof2idof", "map_idof2dof")
"""Arrays of mjData that refer to the contacts of the last step and are rebuilt in each step."""


class Simulation:
    """Saves and restores the state of one mjModel and its mjData.

    Construct it before the first reset: `made` keeps the model as it was made, to save differences from it.
    """

    def __init__(self, model: Any, data: Any) -> None:
        import mujoco

        self.mujoco = mujoco
        self.model, self.data = model, data
        self.made = {name: np.array(value) for name, value in _numbers(model)}
        self.digest = _digest(self.made)
        # for speed: arrays are views of the model's memory, so one lookup is enough
        self._views = {name: value for name, value in _numbers(model) if isinstance(value, np.ndarray)}
        self._bits = {name: value.tobytes() for name, value in self.made.items()}
        fresh = mujoco.MjData(model)  # no contacts yet: arrays whose length depends on them are empty
        self._fixed = [name for name, value in _arrays(fresh) if value.size and name not in ISLANDS]
        self._flags = [name for name in dir(fresh) if name.startswith("flg_")]
        self._kind = mujoco.mjtState.mjSTATE_INTEGRATION

    def take(self) -> Numbers:
        """Return everything that later steps depend on."""
        state = np.empty(self.mujoco.mj_stateSize(self.model, self._kind))
        self.mujoco.mj_getState(self.model, self.data, state, self._kind)
        return {
            "made": self.digest,
            "model": {name: np.array(now) for name, now in self._now() if _bits(now) != self._bits[name]},
            "integration": state,
            "data": {name: getattr(self.data, name).copy() for name in self._fixed},
            "flags": {name: getattr(self.data, name) for name in self._flags},
        }

    def restore(self, taken: Numbers) -> None:
        """Restore a state that `take` returned; raise ValueError if it is of another model."""
        if taken["made"] != self.digest:
            raise ValueError("the simulated model has changed")
        for name, now in list(self._now()):
            wanted = taken["model"].get(name, self.made[name])
            if _bits(now) != _bits(wanted):
                _write(self.model, name, wanted)
        self.mujoco.mj_resetData(self.model, self.data)
        self.mujoco.mj_setState(self.model, self.data, taken["integration"], self._kind)
        self.mujoco.mj_forward(self.model, self.data)
        for name in self._fixed:
            getattr(self.data, name)[...] = taken["data"][name]
        for name in self._flags:
            setattr(self.data, name, taken["flags"][name])

    def _now(self) -> Iterator[tuple[str, Any]]:
        """Yield the current numbers of the model by name."""
        for name in self.made:
            yield name, self._views[name] if name in self._views else _number(self.model, name)


def _arrays(struct: Any) -> Iterator[tuple[str, Array]]:
    """Yield the numeric arrays of a MuJoCo struct by name; 64-bit unsigned ones are addresses and left out."""
    for name in dir(struct):
        if not name.startswith("_"):
            value = getattr(struct, name)
            if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.dtype != np.uint64:
                yield name, value


def _numbers(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of a model, and the arrays and numbers of its structs under names such as `opt.timestep`."""
    yield from ((name, value) for name, value in _arrays(model) if not name.startswith(ASSETS))
    for part in STRUCTS:
        struct = getattr(model, part)
        for name in dir(struct):
            value = getattr(struct, name)
            if not name.startswith("_") and isinstance(value, (int, float, np.ndarray)):
                yield f"{part}.{name}", value


def _write(model: Any, name: str, value: Array) -> None:
    part, _, field = name.rpartition(".")
    owner = getattr(model, part) if part else model
    now = getattr(owner, field)
    if isinstance(now, np.ndarray):
        now[...] = value
    else:
        setattr(owner, field, value.item())


def _number(model: Any, name: str) -> Any:
    part, _, field = name.partition(".")
    return getattr(getattr(model, part), field)


def _bits(value: Any) -> bytes:
    """Return the bytes, for comparison: NaN equals itself, and -0.0 differs from 0.0."""
    return np.asarray(value).tobytes()


def _digest(numbers: dict[str, Array]) -> str:
    sha = hashlib.sha256()
    for name, value in numbers.items():
        sha.update(f"{name} {value.shape}".encode() + value.tobytes())
    return sha.hexdigest()
