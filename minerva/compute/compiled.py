"""`torch.compile` around a pure function, falling back to eager execution where it cannot be had."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Literal

import torch

from minerva.errors import TrainingError

logger = logging.getLogger("minerva")

CompileMode = Literal["auto", "off"]
MatmulPrecision = Literal["highest", "high"]

PAYS_FROM = 10_000
"""Calls from which compiling pays: it takes about 15 s once and saves 2 ms or more a call."""


Options = Callable[[], dict[str, Any]]
"""Further options of torch.compile, made when something is compiled: their passes import the whole compiler."""


def usual_options() -> dict[str, Any]:
    """Return what torch.compile does beside its usual work wherever it compiles."""
    from minerva.compute.graph_passes import EliminateCommonSubexpressions

    return {
        "post_grad_custom_pre_pass": EliminateCommonSubexpressions(),
        # to look at every object a function has touched takes as long as a step of PPO; its tensors' shapes are
        # enough, because what else it depends on never changes and each function has its own place in the cache
        # (see `_own`)
        "guard_filter_fn": torch.compiler.keep_tensor_guards_unsafe,
    }


def options_for(device: torch.device, many: bool = False, alone: bool = True) -> dict[str, Any]:
    """Return what torch.compile does on a device, for one agent or for many, in one process or in several."""
    if device.type == "cpu":
        from minerva.compute.graph_passes import ForCPU

        # without the wrapper a step of PPO spends a sixth of its time in the Python that calls its kernels; it knows
        # no gathering from other processes
        return {"cpp_wrapper": alone, "post_grad_custom_post_pass": ForCPU()}
    # one agent's kernels are so small that joining unrelated ones gains a tenth; with eight agents it loses
    return {"combo_kernels": not many}


def compiled(
    function: Callable[..., Any], mode: CompileMode, calls: int, options: Options = dict, alone: bool = True
) -> Callable[..., Any]:
    """`function` compiled if `mode` is "auto" and `calls` of it are worth the wait, else as it is.

    `options` makes further ones of torch.compile. A function that meets other processes is not `alone`: where it
    cannot be compiled that is an error, for one that went on eagerly would not meet those that have compiled it.
    """
    if mode == "off" or calls < PAYS_FROM:
        return function
    return _Compiled(function, options, alone)


@contextmanager
def matmul_precision(precision: MatmulPrecision) -> Iterator[None]:
    """How exactly a GPU multiplies float32 matrices inside the block."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    yield
    torch.set_float32_matmul_precision(before)


def first_line(error: Exception) -> str:
    """What an error says, in one line; torch.compile puts the name of its backend before it."""
    lines = [line for line in str(error).strip().splitlines() if line and not line.startswith("backend=")]
    return next(iter(lines), type(error).__name__)


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under code of its own: torch.compile keeps what it made with the code, which others may share."""

    def call(*inputs: Any) -> Any:
        return function(*inputs)

    return FunctionType(call.__code__.replace(), call.__globals__, closure=call.__closure__)


class _Compiled:
    """Calls the compiled function; at its first failure says so and is the plain function from then on."""

    def __init__(self, function: Callable[..., Any], options: Options, alone: bool) -> None:
        self.plain, self.options, self.alone = function, options, alone
        self.call: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        try:
            if self.call is None:
                # raises on a Python it does not know
                options = {**usual_options(), **self.options()}
                self.call = torch.compile(_own(self.plain), fullgraph=True, dynamic=False, options=options)
            return self.call(*inputs)
        except Exception as error:  # no compiler, an unsupported operation, a full cache disk: all the same here
            if self.call is self.plain:
                raise
            reason = first_line(error)
            if not self.alone:
                raise TrainingError(
                    f"An update failed in one of several processes ({reason}). If they cannot compile it, train with "
                    "--compile off."
                ) from error
            logger.warning(
                "torch.compile is not usable here (%s); going on eagerly: slower, and other last digits", reason
            )
            self.call = self.plain
            return self.plain(*inputs)
