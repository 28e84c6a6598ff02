"""`torch.compile` around a pure function, falling back to eager execution where it does not work."""

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
from torch.fx import Graph, Node

from minerva.compute.modes import CompileMode, MatmulPrecision
from minerva.compute.torch_private import GraphPass, eliminate_common_subexpressions, inductor_options
from minerva.errors import TrainingError

logger = logging.getLogger("minerva")
aten = torch.ops.aten

MIN_CALLS_TO_COMPILE = 10_000
"""Fewest calls that repay compiling, which takes about 15 s once and saves 2 ms or more per call."""


def rewrite_for_cpu(graph: Graph) -> None:
    """Rewrite addmm and tanh into faster forms for a CPU (a seventh of MPO's update), and expm1 into an exact one.

    addmm copies its bias into every row before it multiplies; added afterwards, the bias fuses with what follows.
    Vectorised expm1 is three times as fast as vectorised tanh, because Inductor computes it as exp(x) - 1: accurate to
    6e-8, which is enough for a layer but not for a KL of 1e-8. So an expm1 of a formula becomes an exact product.
    """
    for node in list(graph.nodes):
        rewrite = REWRITES.get(node.target)
        if rewrite is not None and not node.kwargs:
            with graph.inserting_before(node):
                node.replace_all_uses_with(rewrite(functools.partial(_call, node), *node.args))
            graph.erase_node(node)


def _call(like: Node, operation: Callable[..., Any], *inputs: Any) -> Node:
    """Return a new call of `operation`, with the metadata (shape, dtype) of the node `like`."""
    node = like.graph.call_function(operation, inputs)
    node.meta.update(like.meta)
    return node


def _bias_last(call: Callable[..., Node], bias: Node, left: Node, right: Node) -> Node:
    """Return left @ right + bias, the bias added last."""
    return call(aten.add.Tensor, call(aten.mm.default, left, right), bias)


def _tanh_by_expm1(call: Callable[..., Node], x: Node) -> Node:
    """Return tanh x = -sign(x) p / (p + 2) with p = exp(-2 |x|) - 1, which does not overflow."""
    power = call(aten.expm1.default, call(aten.mul.Tensor, call(aten.abs.default, x), -2.0))
    ratio = call(aten.div.Tensor, power, call(aten.add.Tensor, power, 2.0))
    return call(aten.mul.Tensor, call(aten.neg.default, call(aten.sign.default, x)), ratio)


def _expm1_by_sinh(call: Callable[..., Node], x: Node) -> Node:
    """Return exp(x) - 1 = 2 exp(x / 2) sinh(x / 2), which keeps its digits near zero; below -60 it is -1."""
    half = call(aten.mul.Tensor, call(aten.clamp_min.default, x, -60.0), 0.5)
    product = call(aten.mul.Tensor, call(aten.exp.default, half), call(aten.sinh.default, half))
    return call(aten.mul.Tensor, product, 2.0)


REWRITES: dict[Any, Callable[..., Node]] = {
    aten.addmm.default: _bias_last,
    aten.tanh.default: _tanh_by_expm1,
    aten.expm1.default: _expm1_by_sinh,
}


# pure functions recompute each other's intermediate results: a fifth of MPO's update
COMMON_SUBEXPRESSIONS = GraphPass(eliminate_common_subexpressions, "minerva: each subexpression once")
FOR_CPU = GraphPass(rewrite_for_cpu, "minerva: bias after the product, tanh by expm1, expm1 by sinh")


def options_for(device: torch.device, many: bool = False, distributed: bool = False) -> dict[str, Any]:
    """Return torch.compile options for one agent or `many`; `distributed`: the function calls collectives."""
    if device.type == "cpu":
        # without cpp_wrapper a step of PPO spends a sixth of its time in the Python that calls its kernels; the wrapper
        # does not support collectives
        return {"cpp_wrapper": not distributed, "post_grad_custom_post_pass": FOR_CPU}
    # one agent's kernels are so small that combining unrelated ones saves a tenth; with eight agents it costs time
    return {"combo_kernels": not many}


def compiled(
    function: Callable[..., Any],
    mode: CompileMode,
    calls: int,
    options: dict[str, Any] | None = None,
    distributed: bool = False,
) -> Callable[..., Any]:
    """Return `function` compiled if `mode` is "auto" and `calls` of it repay compiling, else `function` itself.

    `options` are passed to torch.compile. A `distributed` function communicates with other ranks: if it cannot be
    compiled, that is an error, because a rank that ran eagerly would wait for collectives the others do not call.
    """
    if mode == "off" or calls < MIN_CALLS_TO_COMPILE:
        return function
    return _Compiled(function, options or {}, distributed)


@contextmanager
def matmul_precision(precision: MatmulPrecision) -> Iterator[None]:
    """Set torch's float32 matmul precision on the GPU inside the block, and restore it afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use `count` CPU threads inside the block, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, without the backend name that torch.compile prepends."""
    lines = [line for line in str(error).strip().splitlines() if line and not line.startswith("backend=")]
    if lines and "No working C++ compiler" in lines[0]:
        return "there is no C++ compiler: on Debian, apt-get install g++"
    return next(iter(lines), type(error).__name__)


def _with_unique_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function in a new code object: torch.compile caches by code object, which functions may share."""

    def call(*inputs: Any) -> Any:
        return function(*inputs)

    return FunctionType(call.__code__.replace(), call.__globals__, closure=call.__closure__)


class _Compiled:
    """A compiled function that warns and falls back to the plain function if the compiled one fails."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], distributed: bool) -> None:
        self.plain, self.distributed = function, distributed
        self.options = {"post_grad_custom_pre_pass": COMMON_SUBEXPRESSIONS, **options}
        self.call: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        try:
            if self.call is None:
                # raises on an unsupported Python, or where this torch lacks what the options use
                options = inductor_options(self.options)
                self.call = torch.compile(_with_unique_code(self.plain), fullgraph=True, dynamic=False, options=options)
            return self.call(*inputs)
        except Exception as error:  # no compiler, an unsupported operation, a full cache disk: eager still works
            if self.call is self.plain:
                raise
            reason = first_line(error)
            if self.distributed:
                raise TrainingError(
                    f"An update failed on one of several ranks ({reason}). If it cannot be compiled there, train with "
                    "--compile off."
                ) from error
            logger.warning(
                "torch.compile is not usable here (%s); continuing eagerly: slower, and with different last digits",
                reason,
            )
            self.call = self.plain
            return self.plain(*inputs)
