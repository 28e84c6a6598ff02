"""Everything of PyTorch that Minerva uses without a promise that it stays, in one file.

`torch` is capped in pyproject.toml for the sake of these names. Raise the cap after `pytest tests/compute` has passed
with the new version, on a CPU and on a GPU. Each name was tried on torch 2.11 (Python 3.12, CUDA) and 2.13 (Python
3.11, CPU).

| name | used for | where it is missing |
|---|---|---|
| `torch._inductor.custom_graph_pass.CustomGraphPass` | rewriting graphs before code is made | eager, with a warning |
| `torch._functorch.compile_utils.fx_graph_cse` | computing common subexpressions once | eager, with a warning |
| `torch.compiler.keep_tensor_guards_unsafe` | checking only tensors before a compiled call | eager, with a warning |
| `torch._C._functorch.maybe_current_level` | noticing `vmap` and `grad` | `torch.func.grad` always: slower, as exact |
| `torch._foreach_copy_` | copying many tensors in one launch | one copy after another |
| `torch.Tensor._version` | noticing that weights were written | PyTorch acts, not NumPy |
| `torch.fx.experimental.proxy_tensor.make_fx` | tracing a function for NumPy | PyTorch acts, not NumPy |
| `torch.ops.aten._to_copy` | recognising a change of dtype in a trace | PyTorch acts, not NumPy |

Inductor is imported when something is compiled, not before: its import takes longer than that of torch itself.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule


class GraphPass(NamedTuple):
    """A function that rewrites a graph in place, as an option of `inductor_options`."""

    rewrite: Callable[[Graph], None]
    identity: str
    """Part of the key under which compiled code is cached: another text where the rewriting is another."""


def inductor_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return options for `torch.compile`: those given, with each `GraphPass` as Inductor takes it, and fewer guards.

    To look at every object that a function has touched takes as long as a step of PPO. Guards on tensors are enough for
    a function whose other inputs never change.
    """
    made = {name: _inductor_pass(value) if isinstance(value, GraphPass) else value for name, value in options.items()}
    return {**made, "guard_filter_fn": torch.compiler.keep_tensor_guards_unsafe}


def _inductor_pass(own: GraphPass) -> Any:
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class InductorPass(CustomGraphPass):
        def __call__(self, graph: Graph) -> None:
            own.rewrite(graph)

        def uuid(self) -> str:
            return own.identity

    return InductorPass()


def eliminate_common_subexpressions(graph: Graph) -> None:
    """Rewrite a graph so that it computes equal expressions once."""
    from torch._functorch.compile_utils import fx_graph_cse

    module = graph.owning_module
    if module is not None:
        module.graph = fx_graph_cse(graph)


def inside_function_transform() -> bool:
    """Return whether this code runs under `torch.func.vmap`, `grad` or another function transform."""
    level = getattr(torch._C._functorch, "maybe_current_level", None)
    return level is None or level() is not None


def copy_each(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors of one dtype and device into others, in one launch where they lie on the same GPU."""
    at_once = getattr(torch, "_foreach_copy_", None)
    if at_once is not None:
        at_once(targets, sources, non_blocking=True)
        return
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source, non_blocking=True)


def write_counts(tensors: Sequence[Tensor]) -> list[int]:
    """Return how often each tensor was written to. A view shares its base's count; compiled code does not count.

    Raises AttributeError where torch does not count.
    """
    return [tensor._version for tensor in tensors]


def traced(function: Callable[..., Any], *inputs: Tensor) -> GraphModule:
    """Return `function` as the operations that it does on tensors like `inputs`.

    Raises ImportError where torch cannot.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function)(*inputs)


TO_COPY: Any = getattr(torch.ops.aten, "_to_copy", None)
"""The operation that changes a dtype, in its overloads; None: it has another name."""
