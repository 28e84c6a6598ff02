"""Agents stacked under vmap, and the compiled update, learn what each agent learns alone."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from trees import leaves, stacked

from minerva.config import LOOP
from minerva.loop.stacking import Stack
from minerva.trainers.mpo.agent import MPOAgent
from minerva.trainers.mpo.config import MPOConfig

MakeAgent = Callable[..., MPOAgent]
MakeBatch = Callable[..., dict[str, Tensor]]

SET_HERE = {"target_networks_update_period", *MPOConfig.fields_with(LOOP)}

VARIANTS: list[dict[str, Any]] = [
    {"m_steps": 2},
    {"n_step": 3, "temperature": "solved"},
    {"use_retrace": True, "retrace_steps": 3, "critic": "categorical", "critic_range": 5.0},
    {"n_step": 3, "critic": "hl_gauss", "critic_range": 5.0, "optimizer_type": "sgd"},
    {
        **{name: value for name, value in MPOConfig().to_dict().items() if name not in SET_HERE},
        "policy_layer_sizes": (12, 12),
        "critic_layer_sizes": (10, 10),
        "critic_steps": 3,
    },
]


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_two_agents_together_are_each_alone(
    make_agent: MakeAgent, make_batch: MakeBatch, settings: dict[str, Any]
) -> None:
    """Different parameters, batches and rates, one of them about to copy its targets, one with a batch to skip."""
    agents = [make_agent(seed=seed, target_networks_update_period=3, **settings) for seed in range(3)]
    for updates, agent in enumerate(agents):
        for seed in range(updates + 2):
            agent.update(make_batch(9, 3, seed=seed))
    batches = [agent.prepared(make_batch(9, 3, seed=10 + n)) for n, agent in enumerate(agents)]
    batches[2]["rewards"][0, 0] = torch.nan
    noises = [agent.draw_update(batch) for agent, batch in zip(agents, batches, strict=True)]
    hypers = [
        hyper | {"gamma": hyper["gamma"] - 0.1 * n, "q_lr": hyper["q_lr"] * (n + 1)}
        for n, hyper in enumerate(agent.hyper() for agent in agents)
    ]
    inputs = [[agent.state for agent in agents], batches, noises, hypers]
    with torch.no_grad():
        alone = [agent.updated(*(values[n] for values in inputs)) for n, agent in enumerate(agents)]
        together = torch.func.vmap(agents[0].updated)(*(stacked(values) for values in inputs))
    for part in (0, 1):
        found = leaves(together[part])
        for n, single in enumerate(alone):
            for name, value in leaves(single[part]).items():
                torch.testing.assert_close(
                    found[name][n],
                    value,
                    rtol=1e-9,
                    atol=1e-9,
                    equal_nan=True,
                    msg=lambda text, name=name: f"{name}: {text}",
                )
    assert [int(single[1]["finite"]) for single in alone] == [1, 1, 0]


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(
    "settings", [VARIANTS[2] | {"temperature": "solved"}, VARIANTS[4] | {"critic_steps": 1}], ids=str
)
def test_the_compiled_update_is_the_eager_one(
    make_agent: MakeAgent,
    make_batch: MakeBatch,
    settings: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    eager, fast = make_agent(**settings), make_agent(**settings)
    stack = Stack([fast], "auto", 10**9)
    with caplog.at_level(logging.WARNING):
        for seed in range(4):
            batch = make_batch(9, 3, seed=seed)
            if seed == 2:
                batch["rewards"][0, 0] = torch.nan
            stack.learn(fast.prepared(batch), stack.hyper())
            expected, found = eager.update(batch), stack.metrics()[0]
            assert (not found) == (expected is None) == (seed == 2)
            if expected and found:
                assert found == {name: pytest.approx(value, rel=1e-7, abs=1e-9) for name, value in expected.items()}
    for name, value in leaves(eager.state).items():
        torch.testing.assert_close(leaves(fast.state)[name], value, rtol=1e-9, atol=1e-9)
    assert "torch.compile" not in caplog.text  # it did not fall back to eager
    assert stack._update.function.call not in (None, stack._update.function.plain)  # and it was compiled
