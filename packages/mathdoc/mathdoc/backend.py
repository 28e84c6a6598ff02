"""Values of any array library as NumPy arrays, and gradients where the library can give them.

Nothing is imported: a value that can detach itself from a graph is asked to, and its own library does the rest. JAX,
whose compiled functions hide their values, is told to run them line by line.
"""

import ast
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mathdoc.named import Array, wide

PUT = "__mathdoc_put__"
"""A function that exchanges one entry of an array."""


class NotAnArrayError(Exception):
    """A value that cannot be looked at: no array, or one inside a function transform."""


def to_array(value: Any) -> Array:
    """A copy in float64, or complex, made at once: what it was taken from may change."""
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        return wide(_without_gradient(value)).copy()
    except (TypeError, ValueError, RuntimeError) as error:
        raise NotAnArrayError(f"{type(value).__name__} is no array of numbers: {error}") from error


def _without_gradient(value: Any) -> Any:
    """What `jax.grad` follows, as the plain array that it is."""
    library = sys.modules.get("jax")
    return library.lax.stop_gradient(value) if library and isinstance(value, library.Array) else value


def on_arrays(function: Any, beside: Sequence[Any]) -> Callable[..., Array]:
    """A function of the code as one of float64 arrays; `beside` are values of the library that it is made for."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    made: Callable[[Array], Any] = np.float64
    if torch is not None and any(isinstance(value, torch.Tensor) for value in beside):
        made = torch.tensor
    elif jax is not None and any(isinstance(value, jax.Array) for value in beside):
        made = jax.numpy.asarray

    def computed(*arguments: Array) -> Array:
        with computing("float64"):
            return to_array(function(*(made(np.array(argument)) for argument in arguments)))

    return computed


def gradients(
    expression: ast.expr, leaves: Mapping[str, str], scope: dict[str, Any], local: dict[str, Any]
) -> tuple[Array, dict[str, Array]] | None:
    """How an expression changes with some of the expressions in it, `leaves` by a name for each.

    The expression is computed again, with each leaf replaced by a copy of its value that gradients stop at; those of
    its entries' sum, weighted at random, are returned with the weights. None where the library has no gradients.
    """
    rewritten = _Leaves({_dump(var): name for name, var in leaves.items()})
    body = ast.fix_missing_locations(ast.Expression(rewritten.visit(_copy(expression))))
    values: dict[str, Any] = {}
    for name in rewritten.found:
        values[name] = eval(compile(_parsed(leaves[name]), "<mathdoc>", "eval"), scope, local)

    def computed(copies: dict[str, Any]) -> Any:
        names = {**scope, **local, **values, **copies}  # one scope: comprehensions
        return eval(compile(body, "<mathdoc>", "eval"), names)

    return _by_torch(values, computed) or _by_jax(values, computed)


def with_entries(call: ast.expr, leaves: Sequence[str]) -> ast.expr:
    """A call in which the entries among the leaves, such as `values[0]` or `batch["x"]`, stand beside their arrays."""
    entries: dict[str, list[ast.Subscript]] = {}
    for leaf in (_parsed(text).body for text in leaves):
        if (
            isinstance(leaf, ast.Subscript)
            and isinstance(leaf.value, ast.Name)
            and isinstance(leaf.slice, ast.Constant)
        ):
            entries.setdefault(leaf.value.id, []).append(leaf)

    class Beside(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            found = entries.get(node.id, [])
            whole: ast.expr = node
            for entry in found:
                key = entry.slice.value  # type: ignore[attr-defined]
                if isinstance(key, str):
                    whole = ast.Dict([None, ast.Constant(key)], [whole, entry])
                else:
                    whole = ast.Call(ast.Name(PUT, ast.Load()), [whole, entry.slice, entry], [])
            return whole

    expanded: ast.expr = ast.fix_missing_locations(Beside().visit(_copy(call)))
    return expanded


def put(array: Any, place: int, entry: Any) -> Any:
    """An array with another entry, through which gradients flow."""
    if hasattr(array, "at"):
        return array.at[place].set(entry)
    changed = array.clone()
    changed[place] = entry
    return changed


def has_gradient(value: Any) -> bool:
    """Whether a value is an array of floats that gradients can flow through."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(value, torch.Tensor):
        return bool(value.is_floating_point())
    return jax is not None and isinstance(value, jax.Array) and bool(np.issubdtype(value.dtype, np.floating))


Computed = Callable[[dict[str, Any]], Any]
"""The expression with some of its leaves exchanged."""


def _by_torch(values: dict[str, Any], computed: Computed) -> tuple[Array, dict[str, Array]] | None:
    library = sys.modules.get("torch")
    if library is None:
        return None
    tensors = {
        name: value.detach().clone().requires_grad_()
        for name, value in values.items()
        if isinstance(value, library.Tensor) and value.is_floating_point()
    }
    if not tensors:
        return None
    with library.enable_grad():
        result = computed(tensors)
        if result.is_complex():
            return None
        smooth = result if result.is_floating_point() else result.to(library.float64)
        weights = library.rand(smooth.shape, generator=library.Generator().manual_seed(0), dtype=smooth.dtype)
        total = (smooth * weights).sum()
        wanted = list(tensors.values())
        slopes = (
            library.autograd.grad(total, wanted, allow_unused=True) if total.requires_grad else [None] * len(wanted)
        )
    zero = {name: np.zeros(tuple(value.shape)) for name, value in tensors.items()}
    found = {name: zero[name] if s is None else to_array(s) for name, s in zip(tensors, slopes, strict=True)}
    return to_array(weights), found


def _by_jax(values: dict[str, Any], computed: Computed) -> tuple[Array, dict[str, Array]] | None:
    library = sys.modules.get("jax")
    if library is None:
        return None
    arrays = {
        name: library.lax.stop_gradient(value)
        for name, value in values.items()
        if isinstance(value, library.Array) and np.issubdtype(value.dtype, np.floating)
    }
    if not arrays:
        return None
    weights = np.random.default_rng(0).random(np.shape(computed(arrays)))
    slopes = library.grad(lambda copies: (computed(copies) * weights).sum())(arrays)
    return weights, {name: to_array(slope) for name, slope in slopes.items()}


@contextmanager
def computing(precision: str) -> Iterator[None]:
    """While it lasts, JAX computes in this precision, and what it would compile it runs line by line.

    Where nothing has imported JAX yet, it will find this in its environment.
    """
    wanted = {"jax_disable_jit": True, "jax_enable_x64": precision == "float64"}
    before = {name: os.environ.get(name.upper()) for name in wanted}
    library = sys.modules.get("jax")
    settings = {name: getattr(library.config, name) if library else False for name in wanted}
    os.environ.update({name.upper(): str(int(value)) for name, value in wanted.items()})
    _configure_jax(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name.upper()]
            else:
                os.environ[name.upper()] = value
        _configure_jax(settings)


def _configure_jax(settings: Mapping[str, bool]) -> None:
    library = sys.modules.get("jax")
    for name, value in settings.items() if library else ():
        library.config.update(name, value)  # type: ignore[union-attr]


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
