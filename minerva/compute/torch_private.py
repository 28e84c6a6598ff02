"""Every private or unstable name of PyTorch that Minerva uses.

`torch` is capped in pyproject.toml because of these names. Raise the cap after `pytest tests/compute` has passed
with the new version, on a CPU and on a GPU. Each name was tested on torch 2.11 (Python 3.12, CUDA) and 2.13 (Python
3.11, CPU).

| name | used for | if it is missing |
|---|---|---|
| `torch._inductor.custom_graph_pass.CustomGraphPass` | rewriting graphs before codegen | eager, with a warning |
| `torch._functorch.compile_utils.fx_graph_cse` | computing common subexpressions once | eager, with a warning |
| `torch.compiler.keep_tensor_guards_unsafe` | checking only tensors before a compiled call | eager, with a warning |
| `torch._C._functorch.maybe_current_level` | detecting `vmap` and `grad` | `torch.func.grad` always: slower, as exact |
| `torch._foreach_copy_` | copying many tensors in one launch | one copy at a time |
| `torch.Tensor._version` | detecting writes to the weights | acting runs in PyTorch, not NumPy |
| `torch.fx.experimental.proxy_tensor.make_fx` | tracing a function for NumPy | acting runs in PyTorch, not NumPy |
| `torch.ops.aten._to_copy` | recognising a change of dtype in a trace | acting runs in PyTorch, not NumPy |
| `torch.cpu._is_amx_tile_supported` | choosing bfloat16 on a CPU that multiplies it fast | float32 on every CPU |

Inductor is imported only when something is compiled: importing it takes longer than importing torch itself.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule


class GraphPass(NamedTuple):
    """A function that rewrites a graph in place, for use as a value of `inductor_options`."""

    rewrite: Callable[[Graph], None]
    identity: str
    """Part of the cache key of compiled code: change it whenever the rewriting changes."""


def inductor_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the given options for `torch.compile`, each `GraphPass` as an Inductor pass, with guards on tensors alone.

    Checking guards on every object that a function touches takes as long as a step of PPO. Guards on tensors suffice
    for a function whose other inputs never change.
    """
    given = {name: _inductor_pass(value) if isinstance(value, GraphPass) else value for name, value in options.items()}
    return {**given, "guard_filter_fn": torch.compiler.keep_tensor_guards_unsafe}


def _inductor_pass(graph_pass: GraphPass) -> Any:
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class InductorPass(CustomGraphPass):
        def __call__(self, graph: Graph) -> None:
            graph_pass.rewrite(graph)

        def uuid(self) -> str:
            return graph_pass.identity

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
    """Copy `sources`, of one dtype and device, into `targets`: in one launch if all are on one GPU."""
    foreach_copy_ = getattr(torch, "_foreach_copy_", None)
    if foreach_copy_ is not None:
        foreach_copy_(targets, sources, non_blocking=True)
        return
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source, non_blocking=True)


def write_counts(tensors: Sequence[Tensor]) -> list[int]:
    """Return each tensor's version counter. A view shares its base's counter; writes of compiled code are not counted.

    Raise AttributeError if this torch has no version counter.
    """
    return [tensor._version for tensor in tensors]


def traced(function: Callable[..., Any], *inputs: Tensor) -> GraphModule:
    """Return the graph of operations that `function` executes on tensors like `inputs`.

    Raise ImportError if this torch cannot trace.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function)(*inputs)


TO_COPY: Any = getattr(torch.ops.aten, "_to_copy", None)
"""The operation that changes a dtype (an overload packet); None if this torch has no operation of that name."""


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether a device has units that multiply matrices of bfloat16, several times as fast as of float32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    supported = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return supported is not None and bool(supported())
