"""`torch.compile` around a pure function, falling back to eager execution where it does not work."""

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Literal

import torch
from torch.fx import Graph, Node

from minerva.compute.torch_private import GraphPass, eliminate_common_subexpressions, inductor_options
from minerva.errors import TrainingError

logger = logging.getLogger("minerva")
aten = torch.ops.aten

CompileMode = Literal["auto", "off"]
MatmulPrecision = Literal["highest", "high"]

PAYS_FROM = 10_000
"""Calls from which compiling pays: it takes about 15 s once and saves 2 ms or more a call."""


def rewrite_for_cpu(graph: Graph) -> None:
    """Write two operations in the way that is fastest on a CPU, a seventh of MPO's update, and one in an exact way.

    A product that adds its bias first copies that bias into every row; added afterwards it is a part of what follows.
    Vectorised expm1 is three times as fast as vectorised tanh, for Inductor makes it exp(x) - 1: right to 6e-8, which
    will do for a layer, but not for a KL of 1e-8. So the expm1 of a formula is written as a product that is exact.
    """
    for node in list(graph.nodes):
        rewritten = REWRITTEN.get(node.target)
        if rewritten is not None and not node.kwargs:
            with graph.inserting_before(node):
                node.replace_all_uses_with(rewritten(functools.partial(_call, node), *node.args))
            graph.erase_node(node)


def _call(like: Node, operation: Callable[..., Any], *inputs: Any) -> Node:
    """Return a new operation whose result has another's shape and dtype."""
    node = like.graph.call_function(operation, inputs)
    node.meta.update(like.meta)
    return node


def _bias_last(call: Callable[..., Node], bias: Node, left: Node, right: Node) -> Node:
    return call(aten.add.Tensor, call(aten.mm.default, left, right), bias)


def _tanh_by_expm1(call: Callable[..., Node], x: Node) -> Node:
    """tanh x = -sign(x) p / (p + 2) with p = exp(-2 |x|) - 1, which does not overflow."""
    power = call(aten.expm1.default, call(aten.mul.Tensor, call(aten.abs.default, x), -2.0))
    ratio = call(aten.div.Tensor, power, call(aten.add.Tensor, power, 2.0))
    return call(aten.mul.Tensor, call(aten.neg.default, call(aten.sign.default, x)), ratio)


def _expm1_by_sinh(call: Callable[..., Node], x: Node) -> Node:
    """exp(x) - 1 = 2 exp(x / 2) sinh(x / 2), which keeps its digits near zero; below -60 it is -1."""
    half = call(aten.mul.Tensor, call(aten.clamp_min.default, x, -60.0), 0.5)
    product = call(aten.mul.Tensor, call(aten.exp.default, half), call(aten.sinh.default, half))
    return call(aten.mul.Tensor, product, 2.0)


REWRITTEN: dict[Any, Callable[..., Node]] = {
    aten.addmm.default: _bias_last,
    aten.tanh.default: _tanh_by_expm1,
    aten.expm1.default: _expm1_by_sinh,
}


# pure functions compute, each for itself, what another has computed: a fifth of MPO's update
COMMON_SUBEXPRESSIONS = GraphPass(eliminate_common_subexpressions, "minerva: each subexpression once")
FOR_CPU = GraphPass(rewrite_for_cpu, "minerva: bias after the product, tanh by expm1, expm1 by sinh")


def options_for(device: torch.device, many: bool = False, distributed: bool = False) -> dict[str, Any]:
    """Return the options of `compiled` for one agent or `many`; `distributed`: the function communicates with ranks."""
    if device.type == "cpu":
        # without the wrapper a step of PPO spends a sixth of its time in the Python that calls its kernels; it has
        # no collectives
        return {"cpp_wrapper": not distributed, "post_grad_custom_post_pass": FOR_CPU}
    # one agent's kernels are so small that joining unrelated ones gains a tenth; with eight agents it loses
    return {"combo_kernels": not many}


def compiled(
    function: Callable[..., Any],
    mode: CompileMode,
    calls: int,
    options: dict[str, Any] | None = None,
    distributed: bool = False,
) -> Callable[..., Any]:
    """Return `function` compiled if `mode` is "auto" and `calls` of it are worth the wait, else as it is.

    `options` are further ones of torch.compile. A `distributed` function communicates with other ranks: where it cannot
    be compiled that is an error, for one rank that went on eagerly would wait for collectives the others do not call.
    """
    if mode == "off" or calls < PAYS_FROM:
        return function
    return _Compiled(function, options or {}, distributed)


@contextmanager
def matmul_precision(precision: MatmulPrecision) -> Iterator[None]:
    """Set how exactly a GPU multiplies float32 matrices inside the block; restored however the block ends."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def first_line(error: Exception) -> str:
    """Return an error's message in one line, without the name of the backend that torch.compile puts before it."""
    lines = [line for line in str(error).strip().splitlines() if line and not line.startswith("backend=")]
    if lines and "No working C++ compiler" in lines[0]:
        return "there is no C++ compiler: on Debian, apt-get install g++"
    return next(iter(lines), type(error).__name__)


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function under code of its own: torch.compile caches by code object, which others may share."""

    def call(*inputs: Any) -> Any:
        return function(*inputs)

    return FunctionType(call.__code__.replace(), call.__globals__, closure=call.__closure__)


class _Compiled:
    """Calls the compiled function; if that fails at its first call, warns and is the plain function from then on."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], distributed: bool) -> None:
        self.plain, self.distributed = function, distributed
        self.options = {"post_grad_custom_pre_pass": COMMON_SUBEXPRESSIONS, **options}
        self.call: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        try:
            if self.call is None:
                # raises on a Python it does not know, or where this torch lacks what the options use
                options = inductor_options(self.options)
                self.call = torch.compile(_own(self.plain), fullgraph=True, dynamic=False, options=options)
            return self.call(*inputs)
        except Exception as error:  # no compiler, an unsupported operation, a full cache disk: eager still works
            if self.call is self.plain:
                raise
            reason = first_line(error)
            if self.distributed:
                raise TrainingError(
                    f"An update failed in one of several processes ({reason}). If they cannot compile it, train with "
                    "--compile off."
                ) from error
            logger.warning(
                "torch.compile is not usable here (%s); going on eagerly: slower, and other last digits", reason
            )
            self.call = self.plain
            return self.plain(*inputs)
