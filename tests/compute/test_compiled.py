"""Compiling: only where it pays, and never at the price of a run."""

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from minerva.compute.compiled import MIN_CALLS_TO_COMPILE, compiled, matmul_precision, options_for, rewrite_for_cpu
from minerva.compute.modes import MatmulPrecision
from minerva.errors import TrainingError
from minerva.formulas.gaussian import gaussian_kl_std
from minerva.formulas.lagrange import inverse_positive, positive
from minerva.loop.stacking import Stack
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.config import PPOConfig
from minerva.trainers.ppo.trainer import PPOTrainer


def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@pytest.mark.parametrize(
    ("mode", "calls"), [("off", MIN_CALLS_TO_COMPILE), ("off", 10**9), ("auto", MIN_CALLS_TO_COMPILE - 1)]
)
def test_where_compiling_is_unwanted_or_does_not_pay_the_function_stays_as_it_is(mode: Any, calls: int) -> None:
    assert compiled(double, mode, calls) is double


def refuse(*arguments: Any, **options: Any) -> Any:
    raise RuntimeError("no compiler found\nand many more lines")


def refuse_when_called(*arguments: Any, **options: Any) -> Any:
    return refuse


@pytest.mark.parametrize("broken", [refuse, refuse_when_called], ids=["when compiling", "when called"])
def test_a_broken_compiler_costs_one_warning(
    broken: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch, "compile", broken)
    function = compiled(double, "auto", MIN_CALLS_TO_COMPILE)
    with caplog.at_level(logging.WARNING, "minerva"):
        results = [function(torch.tensor(float(n))).item() for n in range(3)]
    assert results == [0, 2, 4]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no compiler found" in caplog.text
    assert "many more lines" not in caplog.text


def test_where_there_is_no_cxx_compiler_the_line_that_installs_one_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By what torch.compile raises then, without its own list of names."""

    from torch._inductor.exc import InvalidCxxCompiler  # takes a second and a half, which no other test file waits for

    def refuse_as_inductor_does(*arguments: Any, **options: Any) -> Any:
        raise InvalidCxxCompiler

    monkeypatch.setattr(torch, "compile", refuse_as_inductor_does)
    assert compiled(double, "auto", MIN_CALLS_TO_COMPILE)(torch.tensor(1.0)) == 2
    assert "(there is no C++ compiler: on Debian, apt-get install g++); continuing eagerly" in caplog.text


def test_what_meets_other_processes_does_not_go_on_eagerly_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", refuse)
    function = compiled(double, "auto", MIN_CALLS_TO_COMPILE, distributed=True)
    for _ in range(2):
        with pytest.raises(TrainingError, match=r"several ranks \(no compiler found\).*--compile off"):
            function(torch.tensor(1.0))


def test_the_functions_own_error_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError

    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    function = compiled(fails, "auto", MIN_CALLS_TO_COMPILE)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            function(torch.tensor(1.0))


def test_the_compiled_function_is_what_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def record(function: Any, **options: Any) -> Any:
        asked.append(options)
        return lambda x: function(x) + 100

    monkeypatch.setattr(torch, "compile", record)
    function = compiled(double, "auto", MIN_CALLS_TO_COMPILE)
    assert [function(torch.tensor(1.0)).item() for _ in range(3)] == [102, 102, 102]
    assert len(asked) == 1, "compiled once, not at every call"


@pytest.mark.compiles
def test_functions_of_one_code_are_compiled_each_for_itself() -> None:
    def times(factor: int) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: factor * x

    made = [compiled(times(factor), "auto", MIN_CALLS_TO_COMPILE) for factor in (2, 3)]
    x = torch.arange(5.0)
    for factor, function in zip((2, 3, 2, 3), made * 2, strict=True):
        assert torch.equal(function(x), factor * x)
    assert all(function.call is not function.plain for function in made)  # type: ignore[attr-defined]


def test_on_a_cpu_tanh_and_products_with_a_bias_are_written_anew() -> None:
    """By formulas that are as exact where expm1 is, at zero, far out and beyond all bounds."""

    def layer(bias: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.addmm(bias, x, weight))

    draw = functools.partial(torch.randn, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sizes = torch.logspace(-12, 3, 7, dtype=torch.float64)
    inputs = (torch.zeros(5, dtype=torch.float64), sizes[:, None] * draw(7, 6), draw(6, 5))
    traced = make_fx(layer)(*inputs)
    rewrite_for_cpu(traced.graph)
    targets = {node.target for node in traced.graph.nodes}
    assert targets.isdisjoint({torch.ops.aten.addmm.default, torch.ops.aten.tanh.default})
    assert torch.ops.aten.expm1.default in targets
    traced.recompile()
    torch.testing.assert_close(traced(*inputs), layer(*inputs), rtol=1e-14, atol=0)
    edges = torch.tensor([[0.0, -torch.inf, torch.inf, torch.nan, 800.0]], dtype=torch.float64)
    hyperbolic = make_fx(torch.tanh)(edges)
    rewrite_for_cpu(hyperbolic.graph)
    hyperbolic.recompile()
    torch.testing.assert_close(hyperbolic(edges), torch.tanh(edges), rtol=0, atol=0, equal_nan=True)


def on_a_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled as an agent's updates are."""
    return compiled(function, "auto", MIN_CALLS_TO_COMPILE, options_for(torch.device("cpu")))


@pytest.mark.compiles
def test_compiled_small_differences_keep_their_digits_and_tanh_is_right_to_a_layer_s_precision() -> None:
    """Inductor writes a vectorised expm1 as exp(x) - 1, which is wrong by 400 % at a KL of 6e-9.

    All in one graph, for every graph takes the compiler as long as the next.
    """
    size = torch.logspace(-7, 1.5, 60)
    x = torch.cat([-size, size, torch.tensor([0.0, -60.5, -1000.0, 80.0])])
    change, multiplier = torch.logspace(-4, 0, 32), torch.logspace(-6, 6, 32)
    y = torch.cat([torch.linspace(-20, 20, 1001), torch.logspace(-8, 0, 64)])

    @on_a_cpu
    def together(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, change, multiplier, y = inputs
        return torch.expm1(x), gaussian_kl_std(change, torch.zeros(32)), inverse_positive(multiplier), torch.tanh(y)

    expm1, kl, inverse, tanh = together(x, change, multiplier, y)
    assert together.call is not together.plain  # type: ignore[attr-defined]
    torch.testing.assert_close(expm1, torch.expm1(x), rtol=1e-6, atol=0)
    expected = gaussian_kl_std(change.double(), torch.zeros(32).double()).float()
    torch.testing.assert_close(kl, expected, rtol=1e-3, atol=0)
    torch.testing.assert_close(positive(inverse), multiplier, rtol=1e-5, atol=0)
    torch.testing.assert_close(tanh, torch.tanh(y), rtol=0, atol=1.5e-7)


def fail_with_precision(expected: str) -> None:
    assert torch.get_float32_matmul_precision() == expected
    raise ZeroDivisionError


@pytest.mark.parametrize("before", ["highest", "high"])
def test_the_precision_of_products_is_restored_when_the_block_raises(before: str) -> None:
    own = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(before)
    try:
        for precision in get_args(MatmulPrecision):
            with pytest.raises(ZeroDivisionError), matmul_precision(precision):
                fail_with_precision(precision)
            assert torch.get_float32_matmul_precision() == before
    finally:
        torch.set_float32_matmul_precision(own)


def test_a_run_that_cannot_open_leaves_the_precision_of_products_as_it_was(tmp_path: Path) -> None:
    before = torch.get_float32_matmul_precision()
    occupied = tmp_path / "run"
    occupied.write_text("a file, not a folder")
    trainer = PPOTrainer("Pendulum-v1", seed=0, num_envs=1, rollout_steps=32, minibatch_size=16)
    with pytest.raises(Exception, match="run"):
        trainer.train(64, occupied, quiet=True, matmul="high")
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.compiles
def test_another_shape_is_compiled_anew() -> None:
    function = compiled(double, "auto", MIN_CALLS_TO_COMPILE)
    for size in (3, 5, 3):
        x = torch.arange(float(size))
        assert torch.equal(function(x), 2 * x)


def compare_compiled_with_eager(updates: int) -> None:
    """Two PPO agents of one seed, one of them compiled, learn from the same rollouts: 50 minibatches an update."""
    steps = 160
    config = PPOConfig(rollout_steps=steps, minibatch_size=32, target_kl=None, critic_layer_sizes=(16,))
    plain, fast = (PPOAgent(4, 2, config=config) for _ in range(2))
    stack = Stack([fast], "auto", MIN_CALLS_TO_COMPILE)
    source = torch.Generator().manual_seed(0)
    for _ in range(updates):
        obs = torch.randn(steps + 1, 1, 4, generator=source)
        rollout = {
            "obs": obs[:-1],
            "actions_raw": torch.randn(steps, 1, 2, generator=source),
            "next_obs": obs[1:],
            "rewards": torch.randn(steps, 1, generator=source),
            "terminated": torch.zeros(steps, 1),
            "ended": (torch.rand(steps, 1, generator=source) < 0.1).float(),
        }
        stack.learn(rollout, stack.hyper())
        expected, found = plain.update(rollout), stack.metrics()[0]
        torch.testing.assert_close(fast.flat.vector, plain.flat.vector, rtol=1e-5, atol=1e-5)
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert plain.state["moments"]["step"].item() == fast.state["moments"]["step"].item() == 50 * updates


def test_a_captured_update_learns_what_the_eager_one_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The step as torch.compile captures it, run without the code generator, which takes half a minute."""
    capture = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **options: capture(function, **options, backend="aot_eager"))
    compare_compiled_with_eager(updates=2)
    assert "not usable" not in caplog.text


@pytest.mark.slow
@pytest.mark.compiles
def test_a_compiled_update_learns_what_the_eager_one_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    compare_compiled_with_eager(updates=4)
    assert any(tmp_path.rglob("*.cpp")), "code was generated"
    assert "not usable" not in caplog.text
