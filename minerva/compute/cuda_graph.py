"""Run an update as one call: compiled where that pays off, on CUDA one graph instead of hundreds of kernel launches."""

import logging
from collections.abc import Callable
from typing import Any

import torch

from minerva.compute.compiled import compiled, first_line
from minerva.compute.modes import CompileMode
from minerva.compute.torch_private import copy_each
from minerva.compute.tree import Tree, copy_, leaves, mapped

logger = logging.getLogger("minerva")

WARM_UP = 3
"""Calls before capturing, in which kernels are compiled and libraries allocate their workspaces."""

Pure = Callable[..., tuple[Tree, Any]]
"""(state, *inputs) -> (state, outputs)"""


class InPlace:
    """A pure function `(state, *inputs) -> (state, outputs)` whose calls write the new state over the old one.

    `calls` is the number of calls expected: above 0, the whole function is compiled if they repay it. On CUDA with
    `mode` "auto" the first call captures a graph; if that fails, it warns once and runs uncaptured. A `distributed`
    function, which communicates with other ranks, is compiled but not captured.
    """

    def __init__(
        self,
        function: Pure,
        state: Tree,
        mode: CompileMode,
        calls: int = 0,
        options: dict[str, Any] | None = None,
        distributed: bool = False,
    ) -> None:
        def write_in_place(state: Tree, *inputs: Any) -> Any:
            new_state, outputs = function(state, *inputs)
            copy_(state, new_state)
            return outputs

        self.state = state
        self.function = compiled(write_in_place, mode, calls, options, distributed)
        self.graph: Graph | None = None
        self._device = leaves(state)[0].device
        self._capture = mode == "auto" and not distributed and self._device.type == "cuda"

    @torch.no_grad()
    def __call__(self, *inputs: Any) -> Any:
        """Write the new state and return the outputs."""
        if self._capture:
            self._capture = False
            try:
                self.graph = Graph(self.function, self.state, inputs)
            except Exception as error:  # an operation that cannot be captured, too little memory: eager still works
                logger.warning("no CUDA graph could be captured (%s); continuing without one", first_line(error))
        if self.graph:
            return self.graph(*inputs)
        return self.function(self.state, *mapped(lambda tensor: tensor.to(self._device, non_blocking=True), inputs))


class Graph:
    """A captured CUDA graph of `function(state, *inputs) -> outputs`, which writes the state in place.

    Inputs are copied into the graph's input buffers; outputs are its output buffers, valid until the next call. The
    function must not draw random numbers: a replay would repeat them.
    """

    def __init__(self, function: Callable[..., Any], state: Tree, inputs: tuple[Any, ...]) -> None:
        device = leaves(state)[0].device
        self.inputs = mapped(lambda tensor: tensor.to(device, copy=True), inputs)
        self._buffers = leaves(self.inputs)
        _warm_up(function, state, self.inputs)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.outputs = function(state, *self.inputs)

    def __call__(self, *inputs: Any) -> Any:
        """Replay the graph on these inputs and return its outputs."""
        values = leaves(inputs)
        for dtype, device in {(value.dtype, value.device) for value in values}:
            alike = [i for i, value in enumerate(values) if value.dtype == dtype and value.device == device]
            buffers, sources = [self._buffers[i] for i in alike], [values[i] for i in alike]
            copy_each(buffers, sources)
        self.graph.replay()
        return self.outputs


def _warm_up(function: Callable[..., Any], state: Tree, inputs: tuple[Any, ...]) -> None:
    """Call the function on a side stream, as capturing requires, and restore the state afterwards."""
    before = mapped(torch.clone, state)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            function(state, *inputs)
    torch.cuda.current_stream().wait_stream(side)
    copy_(state, before)
