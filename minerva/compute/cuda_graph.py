"""An update as one call: compiled where it pays, and on CUDA one graph instead of hundreds of launches."""

import logging
from collections.abc import Callable
from typing import Any

import torch

from minerva.compute.compiled import CompileMode, Options, compiled, first_line
from minerva.compute.tree import Tree, copy_, leaves, mapped

logger = logging.getLogger("minerva")

WARM_UP = 3
"""Calls before capturing, in which kernels are compiled and libraries take their workspace."""

Pure = Callable[..., tuple[Tree, Any]]
"""(state, *inputs) -> (state, outputs)"""


class InPlace:
    """A pure function `(state, *inputs) -> (state, outputs)`, called so that the new state replaces the old one.

    `calls` above 0 compiles it whole if that many calls are worth it. On CUDA with `mode` "auto" it is captured at its
    first call. Where that fails it says so once and goes on as it is. What meets other processes on its way is not
    `alone`: it is compiled, but not captured.
    """

    def __init__(
        self,
        function: Pure,
        state: Tree,
        mode: CompileMode,
        calls: int = 0,
        options: Options = dict,
        alone: bool = True,
    ) -> None:
        def written(state: Tree, *inputs: Any) -> Any:
            after, outputs = function(state, *inputs)
            copy_(state, after)
            return outputs

        self.state = state
        self.function = compiled(written, mode, calls, options, alone)
        self.graph: Graph | None = None
        self._device = leaves(state)[0].device
        self._capture = mode == "auto" and alone and self._device.type == "cuda"

    @torch.no_grad()
    def __call__(self, *inputs: Any) -> Any:
        """The outputs; `state` is written."""
        if self._capture:
            self._capture = False
            try:
                self.graph = Graph(self.function, self.state, inputs)
            except Exception as error:  # an operation that cannot be captured, memory: eagerly it still works
                logger.warning("no CUDA graph could be made (%s); going on without", first_line(error))
        if self.graph:
            return self.graph(*inputs)
        return self.function(self.state, *mapped(lambda tensor: tensor.to(self._device, non_blocking=True), inputs))


class Graph:
    """Replays `function(state, *inputs) -> outputs`, which writes the state in place.

    Inputs are copied to where the graph reads them; outputs lie where it writes them, until the next call. No random
    number may be drawn inside: a graph would repeat it.
    """

    def __init__(self, function: Callable[..., Any], state: Tree, inputs: tuple[Any, ...]) -> None:
        device = leaves(state)[0].device
        self.inputs = mapped(lambda tensor: tensor.to(device, copy=True), inputs)
        self._places = leaves(self.inputs)
        _warm_up(function, state, self.inputs)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.outputs = function(state, *self.inputs)

    def __call__(self, *inputs: Any) -> Any:
        """Outputs for these inputs."""
        values = leaves(inputs)
        for dtype, device in {(value.dtype, value.device) for value in values}:
            alike = [i for i, value in enumerate(values) if value.dtype == dtype and value.device == device]
            places, sources = [self._places[i] for i in alike], [values[i] for i in alike]
            torch._foreach_copy_(places, sources, non_blocking=True)  # one launch for all that lie on the device
        self.graph.replay()
        return self.outputs


def _warm_up(function: Callable[..., Any], state: Tree, inputs: tuple[Any, ...]) -> None:
    """Call the function on a stream of its own, as capturing wants it, and leave the state as it was."""
    before = mapped(torch.clone, state)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            function(state, *inputs)
    torch.cuda.current_stream().wait_stream(side)
    copy_(state, before)
