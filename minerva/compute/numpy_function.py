"""Execute small functions of tensors in NumPy.

Acting with a 64x64 network takes a dozen operations of a microsecond each. PyTorch takes several microseconds to
dispatch each of them, and a compiled function takes as long to check its guards. The function is the one that is
compiled and stacked elsewhere: it is traced here, and the operations that depend on its inputs run in NumPy.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.fx import Node

from minerva.compute.torch_private import TO_COPY, traced, write_counts
from minerva.compute.tree import Tree, leaves, mapped

Array = np.ndarray[Any, np.dtype[Any]]

MULTIPLICATIONS, OF_A_VECTOR = 262_144, 9_216
"""Multiplications of the largest matrix and matrix-vector products that OpenBLAS computes in the caller's thread."""


class NotOnHostError(Exception):
    """Raised for a function that PyTorch should execute instead; the message says why."""


class Call(NamedTuple):
    """One NumPy operation: the slots of its arguments, and the slot of its result."""

    function: Callable[..., Array]
    arguments: tuple[int, ...]
    result: int


def _clamp(values: Array, low: Any = None, high: Any = None) -> Array:
    values = values if low is None else np.maximum(values, low)
    return values if high is None else np.minimum(values, high)


def _addmm(bias: Array, rows: Array, weights: Array) -> Array:
    product: Array = rows @ weights
    product += bias
    return product


aten = torch.ops.aten
OPERATIONS: dict[Any, Callable[..., Array]] = {
    aten.add.Tensor: np.add,
    aten.sub.Tensor: np.subtract,
    aten.mul.Tensor: np.multiply,
    aten.div.Tensor: np.divide,
    aten.exp.default: np.exp,
    aten.tanh.default: np.tanh,
    aten.clamp.default: _clamp,
    aten.clamp.Tensor: _clamp,
    aten.addmm.default: _addmm,
    aten.argmax.default: np.argmax,
    aten.unsqueeze.default: np.expand_dims,
}


class HostFunction:
    """`function(state, *inputs) -> outputs by name`, executed in NumPy for arrays of the shapes of `inputs`.

    Values that depend on the state alone are cached: PyTorch recomputes them whenever a tensor of the state was written
    to. A module's parameter that is a view of the state has a separate version counter: after writing to one, call
    `invalidate_cached_weights`.
    """

    def __init__(self, function: Callable[..., dict[str, torch.Tensor]], state: Tree, *inputs: torch.Tensor) -> None:
        self._state = leaves(state)
        count = len(self._state)

        def flat(*tensors: torch.Tensor) -> list[torch.Tensor]:
            state_tensors = iter(tensors[:count])
            return list(function(mapped(lambda _: next(state_tensors), state), *tensors[count:]).values())

        try:
            self._module = traced(flat, *self._state, *inputs)
            write_counts(self._state)
        except (ImportError, AttributeError) as error:
            raise NotOnHostError(f"this torch lacks what tracing needs ({error})") from error
        self._nodes = list(self._module.graph.nodes)
        self._slots = {node: slot for slot, node in enumerate(self._nodes)}
        placeholders = [node for node in self._nodes if node.op == "placeholder"]
        self._state_nodes, self._inputs = placeholders[:count], [self._slots[node] for node in placeholders[count:]]
        dynamic = set(placeholders[count:])  # nodes that depend on the inputs
        for node in self._nodes:
            if dynamic.intersection(node.all_input_nodes):
                dynamic.add(node)
        self._cached = [
            node for node in self._nodes if node not in dynamic and node.op in ("call_function", "get_attr")
        ]
        self._values: list[Any] = [None] * len(self._nodes)
        self._calls = [self._call(node) for node in self._nodes if node in dynamic and node.op == "call_function"]
        names = function(state, *inputs)
        self._outputs = dict(zip(names, (self._slots[node] for node in self._nodes[-1].args[0]), strict=True))
        self._versions: list[int] = []

    def __call__(self, *inputs: Array) -> dict[str, Array]:
        """Return the outputs by name, in newly allocated arrays."""
        versions = write_counts(self._state)
        if versions != self._versions:
            self._refresh()
            self._versions = versions
        values = self._values
        for slot, value in zip(self._inputs, inputs, strict=True):
            values[slot] = value
        for function, arguments, result in self._calls:
            values[result] = function(*[values[slot] for slot in arguments])
        return {name: values[slot] for name, slot in self._outputs.items()}

    def invalidate_cached_weights(self) -> None:
        """Recompute the cached values at the next call."""
        self._versions = []

    @torch.no_grad()
    def _refresh(self) -> None:
        """Recompute the values that depend on the state alone."""
        known: dict[Node, Any] = dict(zip(self._state_nodes, self._state, strict=True))
        for node in self._cached:
            if node.op == "get_attr":
                known[node] = getattr(self._module, str(node.target))
            else:
                arguments, options = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
                known[node] = node.target(*arguments, **options)  # type: ignore[operator]
        for node, value in known.items():
            self._values[self._slots[node]] = value.detach().numpy() if isinstance(value, torch.Tensor) else value

    def _call(self, node: Node) -> Call:
        """Return the NumPy call that computes a node."""
        if TO_COPY is not None and node.target == TO_COPY.default and list(node.kwargs) == ["dtype"]:
            dtype = torch.zeros(0, dtype=node.kwargs["dtype"]).numpy().dtype  # type: ignore[arg-type]
            return Call(lambda values: values.astype(dtype), (self._slots[node.args[0]],), self._slots[node])  # type: ignore[index]
        if node.target not in OPERATIONS or node.kwargs:
            raise NotOnHostError(f"{node.target} is not among the operations that have a NumPy equivalent here")
        if node.target == aten.addmm.default:
            rows, inner = node.args[1].meta["val"].shape  # type: ignore[union-attr]
            multiplications = rows * inner * node.meta["val"].shape[-1]
            if multiplications > (MULTIPLICATIONS if rows > 1 else OF_A_VECTOR):
                raise NotOnHostError(f"a product of {multiplications} multiplications is large enough for PyTorch")
        return Call(OPERATIONS[node.target], tuple(self._slot(value) for value in node.args), self._slots[node])

    def _slot(self, value: Any) -> int:
        """Return the slot of an argument; a constant gets a new one."""
        if isinstance(value, Node):
            return self._slots[value]
        self._values.append(value)
        return len(self._values) - 1
