"""What PyTorch does not promise: that it is there, that it does what it is used for, and what happens without it."""

import builtins
import logging
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from minerva.compute import numpy_function, torch_private
from minerva.compute.compiled import MIN_CALLS_TO_COMPILE, compiled
from minerva.compute.gradient import gradient
from minerva.compute.numpy_function import HostFunction, NotOnHostError
from minerva.compute.torch_private import copy_each, eliminate_common_subexpressions, traced, write_counts

MISSING_MODULES = [
    "torch._inductor.custom_graph_pass",
    "torch._functorch.compile_utils",
]


def hide_module(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the import of a module fail as in a torch that does not have it."""
    import_module = builtins.__import__

    def without(wanted: str, *arguments: Any, **options: Any) -> Any:
        if wanted == name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return import_module(wanted, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)


def assert_eager_with_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    function = compiled(lambda x: (x + 1) * (x + 1), "auto", MIN_CALLS_TO_COMPILE)
    with caplog.at_level(logging.WARNING, "minerva"):
        assert [function(torch.tensor(float(n))).item() for n in range(3)] == [1, 4, 9]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert name in caplog.text


@pytest.mark.parametrize("name", MISSING_MODULES)
def test_without_a_module_of_the_compiler_training_goes_on_eagerly(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hide_module(name, monkeypatch)
    assert_eager_with_a_warning(name, caplog)


def test_without_the_filter_of_guards_training_goes_on_eagerly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(torch.compiler, "keep_tensor_guards_unsafe")
    assert_eager_with_a_warning("keep_tensor_guards_unsafe", caplog)


def test_common_subexpressions_are_computed_once() -> None:
    module = traced(lambda x: (torch.exp(x) + 1) * (torch.exp(x) + 1), torch.zeros(3))
    before = len(module.graph.nodes)
    eliminate_common_subexpressions(module.graph)
    module.recompile()
    assert len(module.graph.nodes) == before - 2
    x = torch.linspace(-1, 1, 3)
    assert torch.equal(module(x), (torch.exp(x) + 1) ** 2)


def test_without_the_level_of_transforms_gradients_are_those_of_torch_func(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        return (x**3).sum(), {}

    x = torch.linspace(-1, 1, 5, dtype=torch.float64)
    plain, _ = gradient(loss, x)
    monkeypatch.delattr(torch._C._functorch, "maybe_current_level")
    assert torch_private.inside_function_transform()
    found, _ = gradient(loss, x)
    torch.testing.assert_close(found, 3 * x**2, rtol=1e-14, atol=0)
    torch.testing.assert_close(found, plain, rtol=1e-14, atol=0)


@pytest.mark.parametrize("at_once", [True, False])
def test_many_tensors_are_copied(at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not at_once:
        monkeypatch.delattr(torch, "_foreach_copy_")
    sources = [torch.full((n,), float(n)) for n in range(1, 4)]
    targets = [torch.zeros(n) for n in range(1, 4)]
    copy_each(targets, sources)
    assert all(torch.equal(target, source) for target, source in zip(targets, sources, strict=True))


def test_a_write_to_a_view_is_counted_at_its_base() -> None:
    base = torch.zeros(4)
    view = base[1:]
    before = write_counts([base, view])
    view.add_(1)
    assert write_counts([base, view]) == [count + 1 for count in before]
    base + 1
    assert write_counts([base, view]) == [count + 1 for count in before]


def test_without_tracing_or_counts_numpy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    state, x = {"weight": torch.ones(2)}, torch.ones(2)

    def scaled(state: dict[str, torch.Tensor], x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"scaled": state["weight"] * x}

    assert HostFunction(scaled, state, x)(x.numpy())["scaled"].tolist() == [1, 1]

    def uncounted(tensors: Any) -> list[int]:
        return [SimpleNamespace()._version for _ in tensors]

    with monkeypatch.context() as patch:
        patch.setattr(numpy_function, "write_counts", uncounted)
        with pytest.raises(NotOnHostError, match="_version"):
            HostFunction(scaled, state, x)
    hide_module("torch.fx.experimental.proxy_tensor", monkeypatch)
    with pytest.raises(NotOnHostError, match="proxy_tensor"):
        HostFunction(scaled, state, x)


def test_torch_is_capped_at_a_minor_version_and_this_one_is_within() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (wanted,) = [each for each in project["dependencies"] if each.startswith("torch")]
    low, high = (tuple(map(int, bound.strip("torch<>=").split("."))) for bound in wanted.split(","))
    assert low <= tuple(map(int, torch.__version__.split(".")[:2])) < high
    assert len(high) == 2
