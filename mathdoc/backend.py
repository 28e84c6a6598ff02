"""Values of any array library as NumPy arrays, and gradients where the library can give them.

Nothing is imported: a value that can detach itself from a graph is asked to, and its own library does the rest.
"""

import ast
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from mathdoc.named import Array


class NotAnArrayError(Exception):
    """A value that cannot be looked at: no array, or one inside a function transform."""


def to_array(value: Any) -> Array:
    """A float64 copy, made at once: what it was taken from may change."""
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        if np.iscomplexobj(value):
            raise NotAnArrayError("it has an imaginary part, which no formula here describes")
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise NotAnArrayError(f"{type(value).__name__} is no array of numbers: {error}") from error


def gradients(
    expression: ast.expr, leaves: Mapping[str, str], scope: dict[str, Any], local: dict[str, Any]
) -> tuple[Array, dict[str, Array]] | None:
    """How an expression changes with some of the expressions in it, `leaves` by a name for each.

    The expression is computed again, with each leaf replaced by a copy of its value that gradients stop at; those of
    its entries' sum, weighted at random, are returned with the weights. None where the library has no gradients.
    """
    library = sys.modules.get("torch")
    if library is None:
        return None
    rewritten = _Leaves({_dump(var): name for name, var in leaves.items()})
    body = ast.fix_missing_locations(ast.Expression(rewritten.visit(_copy(expression))))
    copies: dict[str, Any] = {}
    for name in rewritten.found:
        value = eval(compile(_parsed(leaves[name]), "<mathdoc>", "eval"), scope, local)
        if isinstance(value, library.Tensor) and value.is_floating_point():
            copies[name] = value.detach().clone().requires_grad_()
        else:
            copies[name] = value
    tensors = {name: value for name, value in copies.items() if isinstance(value, library.Tensor)}
    tensors = {name: value for name, value in tensors.items() if value.requires_grad}
    if not tensors:
        return None
    with library.enable_grad():
        result = eval(compile(body, "<mathdoc>", "eval"), {**scope, **local, **copies})  # one scope: comprehensions
        weights = library.rand(result.shape, generator=library.Generator().manual_seed(0), dtype=result.dtype)
        total = (result * weights).sum()
        wanted = list(tensors.values())
        slopes = (
            library.autograd.grad(total, wanted, allow_unused=True) if total.requires_grad else [None] * len(wanted)
        )
    zero = {name: np.zeros(tuple(value.shape)) for name, value in tensors.items()}
    found = {name: zero[name] if s is None else to_array(s) for name, s in zip(tensors, slopes, strict=True)}
    return to_array(weights), found


class _Leaves(ast.NodeTransformer):
    """Puts a name wherever one of the leaves' expressions stands."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names
        self.found: set[str] = set()

    def visit(self, node: ast.AST) -> Any:
        """The name, or the node with its parts visited."""
        name = self.names.get(ast.dump(node)) if isinstance(node, ast.expr) else None
        if name is None:
            return self.generic_visit(node)
        self.found.add(name)
        return ast.Name(name, ast.Load())


def _parsed(text: str) -> ast.Expression:
    return ast.parse(text, mode="eval")


def _dump(text: str) -> str:
    return ast.dump(_parsed(text).body)


def _copy(expression: ast.expr) -> ast.expr:
    return _parsed(ast.unparse(expression)).body
