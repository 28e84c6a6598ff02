"""Functions of tensors run by NumPy: the same numbers, whatever happens to the state, or a refusal."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from minerva.compute.numpy_function import HostFunction, NotOnHostError
from minerva.loop import stacking as stack_module
from minerva.loop.stacking import Stack
from minerva.trainers.mpo.agent import MPOAgent
from minerva.trainers.mpo.config import MPOConfig
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.config import PPOConfig
from minerva.trainers.ppo.trainer import PPOTrainer
from minerva.trainers.vmpo.agent import VMPOAgent
from minerva.trainers.vmpo.config import VMPOConfig

ENOUGH = 10**6
NETWORK: dict[str, Any] = {"policy_layer_sizes": (16,), "critic_layer_sizes": (16,)}


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def clipped_vmpo() -> VMPOAgent:
    config = VMPOConfig(squash=False, ppo_like_backbone=True, policy_layer_sizes=(32,), value_layer_sizes=(32,))
    return VMPOAgent.from_config(5, 2, config)


WRITES: dict[str, Any] = {
    "the agent's state": lambda agent, other: agent.load_state_dict(other.state_dict()),
    "its networks": lambda agent, other: agent.network.load_state_dict(other.network.state_dict()),
    "parameters behind autograd's back": lambda agent, other: [
        mine.data.copy_(theirs.data)
        for mine, theirs in zip(agent.network.parameters(), other.network.parameters(), strict=True)
    ],
}


@pytest.mark.parametrize("written", WRITES)
def test_what_a_callback_writes_is_acted_on(written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_module, "MIN_CALLS_TO_COMPILE", 1)
    other = PPOAgent(3, 1, config=PPOConfig(**NETWORK), seed=1)
    with torch.no_grad():
        for parameter in other.network.parameters():
            parameter.zero_()
        other.network.actor_logstd.fill_(-20.0)  # nearly no noise: its actions are 0
    acted: list[float] = []
    trainer = PPOTrainer("Pendulum-v1", engine="gymnasium", num_envs=2, rollout_steps=16, minibatch_size=32, **NETWORK)
    step = trainer.envs.step
    monkeypatch.setattr(trainer.envs, "step", lambda actions: acted.append(actions.abs().max().item()) or step(actions))

    def written_after_the_second(step: int, *_: Any) -> None:
        if step == 64:
            WRITES[written](trainer.agent, other)

    settings: dict[str, Any] = {"quiet": True, "eval_episodes": 1, "callbacks": [written_after_the_second]}
    trainer.train(96, tmp_path, **settings)
    assert len(acted) == 48
    assert max(acted[:32]) > 0.1
    assert max(acted[32:]) < 1e-6


@pytest.mark.parametrize("written", WRITES)
def test_what_is_written_between_two_actions_is_seen_once_it_is_looked_for(written: str) -> None:
    agent, other = (
        PPOAgent(5, 2, config=PPOConfig(**NETWORK)),
        PPOAgent(5, 2, config=PPOConfig(**NETWORK, initial_log_std=-1.0)),
    )
    quick, plain = Stack([agent], "auto", ENOUGH), Stack([agent], "off", ENOUGH)
    obs, drawn = noise(1, 5), noise(1, 2)
    before = quick.act(obs, drawn)["actions_raw"]
    WRITES[written](agent, other)
    quick.invalidate_cached_weights()
    found = quick.act(obs, drawn)["actions_raw"]
    np.testing.assert_allclose(found, plain.act(obs, drawn)["actions_raw"], rtol=1e-5)
    assert not np.allclose(found, before)


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("agent", [PPOAgent(5, 2, config=PPOConfig()), clipped_vmpo()], ids=["ppo", "vmpo"])
def test_acting_is_that_of_torch_before_and_after_learning(agent: Any, rows: int) -> None:
    quick, plain = Stack([agent], "auto", ENOUGH), Stack([agent], "off", ENOUGH)
    obs, drawn = 3 * noise(rows, 5), 2 * noise(rows, 2)  # some actions have to be clipped
    for _ in range(3):
        found, expected = quick.act(obs, drawn), plain.act(obs, drawn)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert found[name].dtype == value.dtype
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)
        assert found["actions_executed"].abs().max() == 1.0
        with torch.no_grad():
            agent.state["parameters"].mul_(1.1)
            agent.state["normalizer"]["mean"].add_(0.3)
            agent.state["normalizer"]["var"].mul_(0.5)
    assert quick._numpy_functions, "the comparison has to be with NumPy"


def test_agents_of_a_stack_act_as_each_would_alone() -> None:
    alone = [PPOAgent(5, 2, config=PPOConfig(), seed=seed) for seed in range(3)]
    stack = Stack([PPOAgent(5, 2, config=PPOConfig(), seed=seed) for seed in range(3)], "auto", ENOUGH)
    obs, drawn = 3 * noise(12, 5), 2 * noise(12, 2)
    for _ in range(2):
        found = stack.act(obs, drawn.unflatten(0, (3, 4)))
        for n, agent in enumerate(alone):
            own = slice(4 * n, 4 * n + 4)
            expected = Stack([agent], "auto", ENOUGH).act(obs[own], drawn[own])
            for name, value in expected.items():
                np.testing.assert_array_equal(found[name][own], value)
            with torch.no_grad():
                agent.state["parameters"].mul_(1.1)
        with torch.no_grad():
            stack.state["parameters"].mul_(1.1)
    assert len(stack._numpy_functions) == 3


def test_outputs_that_were_handed_out_do_not_change_later() -> None:
    stack = Stack([PPOAgent(5, 2, config=PPOConfig())], "auto", ENOUGH)
    first = stack.act(noise(1, 5), noise(1, 2))
    kept = {name: value.clone() for name, value in first.items()}
    stack.act(noise(1, 5) + 1, noise(1, 2) + 1)
    for name, value in kept.items():
        np.testing.assert_array_equal(first[name], value)


def test_few_actions_are_not_worth_tracing() -> None:
    stack = Stack([PPOAgent(5, 2, config=PPOConfig(rollout_steps=16, minibatch_size=16))], "auto", 3)
    stack.act(noise(1, 5), noise(1, 2))
    assert not stack._numpy_functions


@pytest.mark.parametrize(("width", "rows", "here"), [(64, 1, True), (128, 1, False), (64, 64, True), (64, 65, False)])
def test_what_openblas_would_share_among_threads_is_left_to_torch(width: int, rows: int, here: bool) -> None:
    sizes = (width, width)
    stack = Stack([PPOAgent(5, 2, config=PPOConfig(policy_layer_sizes=sizes))], "auto", ENOUGH)
    stack._act = lambda *_: torch.zeros(rows, 4)  # type: ignore[assignment]  # compiling takes a while
    stack._widths = {"actions_raw": 2, "actions_executed": 2}
    stack.act(noise(rows, 5), noise(rows, 2))
    assert bool(stack._numpy_functions) == here


def test_an_unknown_operation_is_refused() -> None:
    agent = MPOAgent.from_config(5, 2, MPOConfig(policy_layer_sizes=(8,), critic_layer_sizes=(8,)))
    with pytest.raises(NotOnHostError, match=r"aten\.native_layer_norm"):
        HostFunction(agent.acted, agent.state, noise(1, 5), noise(1, 2))


@pytest.mark.parametrize(
    "function",
    [
        lambda state, x: {"y": torch.clamp(torch.exp(x) / state["a"], max=0.2), "z": torch.clamp(x, 0.0)},
        lambda state, x: {"y": (x.double() * state["a"] + torch.sqrt(state["a"] + 1.0)).float(), "x": x - 1},
        lambda state, x: {"y": torch.clamp(x, -state["a"].abs(), state["a"].abs())},
    ],
)
def test_operations_are_those_of_torch(function: Any) -> None:
    state, x = {"a": noise(3) + 4}, noise(2, 3)
    found = HostFunction(function, state, x)(x.numpy())
    for name, value in function(state, x).items():
        np.testing.assert_allclose(found[name], value.numpy(), rtol=1e-6)
