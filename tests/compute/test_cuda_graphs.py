"""On a GPU: an update as one graph learns what the eager one learns, and no graph repeats its noise."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from minerva.compute.cuda_graph import InPlace
from minerva.compute.tree import leaves
from minerva.loop.agent import Agent
from minerva.loop.stacking import Stack
from minerva.trainers.mpo.agent import MPOAgent
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.config import PPOConfig
from minerva.trainers.vmpo.agent import VMPOAgent

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

OBS, ACT, STEPS, ENVS = 5, 2, 16, 4
WORTH_COMPILING = 10**9

PPO = {"rollout_steps": STEPS, "num_envs": ENVS, "minibatch_size": 16, "update_epochs": 3, "target_kl": 0.02}
VMPO = {"temperature": "solved", "m_steps": 4, "policy_layer_sizes": (32, 32), "value_layer_sizes": (32, 32)}
MPO = {
    "policy_layer_sizes": (32, 32),
    "critic_layer_sizes": (32, 32),
    "target_networks_update_period": 10,
    # from the default of 1000 an update is stiff: it makes a rounding error 3,000 times as large within 50 updates
    "init_log_alpha_stddev": 10.0,
}
AGENTS: dict[str, Callable[[int], Agent]] = {
    "ppo": lambda seed: PPOAgent(OBS, ACT, config=PPOConfig.from_dict(PPO), seed=seed, device="cuda"),
    "vmpo": lambda seed: VMPOAgent(OBS, ACT, device="cuda", seed=seed, normalize_observations=True, **VMPO),
    "vmpo minibatches": lambda seed: VMPOAgent(OBS, ACT, device="cuda", seed=seed, minibatch_size=24, **VMPO),
    "mpo": lambda seed: MPOAgent(OBS, ACT, device="cuda", seed=seed, **MPO),
}


def data(name: str, seed: int) -> dict[str, Tensor]:
    """A rollout, or a batch with time first."""
    source = torch.Generator("cuda").manual_seed(seed)
    shape = (1, 64) if name == "mpo" else (STEPS, ENVS)
    obs = torch.randn(*shape, OBS, generator=source, device="cuda")
    ends = (torch.rand(shape, generator=source, device="cuda") < 0.1).float()
    actions = torch.randn(*shape, ACT, generator=source, device="cuda")
    rewards = torch.randn(shape, generator=source, device="cuda")
    return {
        "obs": obs,
        "actions_executed" if name == "mpo" else "actions_raw": actions,
        "next_obs": obs + 0.1,
        "rewards": rewards,
        "terminated": ends,
        "ended": ends,
    }


def learned(name: str, mode: Any, agents: int, updates: int = 100) -> tuple[list[Tensor], list[dict[str, float]]]:
    stack = Stack([AGENTS[name](seed) for seed in range(agents)], mode, WORTH_COMPILING)
    for n in range(updates):
        parts = [data(name, 1000 * n + seed) for seed in range(agents)]
        stack.learn(stack.stacked(parts), stack.hyper(1 - n / updates))
    assert (stack._update.graph is not None) == (mode == "auto"), "no graph was made"
    return leaves(stack.state), stack.metrics()


# in float32 Adam makes a whole step of the last digit of a small gradient; in float64 100 updates stay equal
@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("name", AGENTS)
def test_a_graph_learns_what_the_eager_update_does(name: str, agents: int) -> None:
    eager, eager_metrics = learned(name, "off", agents)
    graph, graph_metrics = learned(name, "auto", agents)
    for expected, found in zip(eager, graph, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)
    for expected_row, found_row in zip(eager_metrics, graph_metrics, strict=True):
        assert found_row == pytest.approx(expected_row, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("name", AGENTS)
def test_acting_draws_new_noise_at_every_call(name: str, agents: int) -> None:
    stack = Stack([AGENTS[name](seed) for seed in range(agents)], "auto", WORTH_COMPILING)
    obs = torch.zeros(agents * ENVS, OBS).pin_memory()
    drawn = torch.stack([stack.act(obs, stack.draw_actions((ENVS,)))["actions_raw"].clone() for _ in range(400)])
    assert stack._act.graph is not None
    assert len(torch.unique(drawn[:, 0, 0])) == 400
    mean = drawn.mean((0, 1))
    alone = stack.agents[0].policy_action(torch.zeros(1, OBS)).cpu() if agents == 1 else None
    spread = drawn.std((0, 1))
    assert (spread > 0.1).all()
    if alone is not None:
        assert ((mean - alone[0]).abs() < 5 * spread / (400 * ENVS) ** 0.5 + 1e-3).all()


@pytest.mark.parametrize("name", AGENTS)
def test_updates_draw_new_noise_at_every_call(name: str) -> None:
    stack = Stack([AGENTS[name](0)], "auto", WORTH_COMPILING)
    rows = data(name, 0)
    inputs = []
    for _ in range(5):
        stack.learn(rows, stack.hyper())
        inputs.append([leaf.clone() for leaf in leaves(stack._update.graph.inputs[1])])
    for before, after in itertools.pairwise(inputs):
        assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_graph_takes_what_another_graph_has_written() -> None:
    """Its output lies in the same place at every call, and has new numbers in it."""
    state = {"total": torch.zeros((), device="cuda")}
    double = InPlace(lambda state, x: (state, 2 * x), {"unused": torch.zeros((), device="cuda")}, "auto")
    add = InPlace(lambda state, x: ({"total": state["total"] + x}, state["total"] + x), state, "auto")
    sums = [add(double(torch.tensor(float(n), device="cuda"))).item() for n in range(1, 6)]
    assert sums == [2, 6, 12, 20, 30]
    assert double.graph is not None
    assert add.graph is not None
