"""`torch.compile` around a pure function, falling back to eager execution where it cannot be had."""

import logging
from collections.abc import Callable
from typing import Any, Literal

import torch

logger = logging.getLogger("minerva")

CompileMode = Literal["auto", "off"]

PAYS_FROM = 10_000
"""Calls from which compiling pays: it takes about 15 s once and saves 2 ms or more a call."""


def compiled(function: Callable[..., Any], mode: CompileMode, calls: int) -> Callable[..., Any]:
    """`function` compiled if `mode` is "auto" and `calls` of it are worth the wait, else as it is."""
    if mode == "off" or calls < PAYS_FROM:
        return function
    return _Compiled(function)


class _Compiled:
    """Calls the compiled function; at its first failure says so and is the plain function from then on."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.plain = function
        self.call: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        try:
            if self.call is None:
                self.call = torch.compile(
                    self.plain, fullgraph=True, dynamic=False
                )  # raises on a Python it does not know
            return self.call(*inputs)
        except Exception as error:  # no compiler, an unsupported operation, a full cache disk: all the same here
            if self.call is self.plain:
                raise
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            logger.warning("torch.compile is not usable here (%s); going on eagerly with the same results", reason)
            self.call = self.plain
            return self.plain(*inputs)
