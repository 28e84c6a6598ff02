"""What all agents share: numbers as tensors and back, compiling, and pieces put in the place of others."""

from operator import attrgetter
from typing import Any

import pytest
import torch
from trees import leaves

from minerva.compute import compiled as compiled_module
from minerva.errors import TrainingError
from minerva.loop.agent import Agent, as_tensors, metrics_to_host
from minerva.loop.stacking import Stack
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.config import PPOConfig
from minerva.trainers.registry import trainer_class
from minerva.trainers.sac.agent import SACAgent
from minerva.trainers.vmpo.agent import VMPOAgent


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_become_scalars_and_lists_become_vectors_of_one_dtype(dtype: torch.dtype) -> None:
    given: dict[str, Any] = {"gamma": 0.99, "period": 7, "bounds": [0.01, 0.02], "never": float("inf"), "one": [3.0]}
    found = as_tensors(given, torch.zeros(1, dtype=dtype))
    assert list(found) == list(given)
    assert {value.dtype for value in found.values()} == {dtype}
    assert {name: tuple(value.shape) for name, value in found.items()} == {
        "gamma": (),
        "period": (),
        "bounds": (2,),
        "never": (),
        "one": (1,),
    }
    for name, value in given.items():
        assert torch.equal(found[name], torch.tensor(value, dtype=dtype)), name


@pytest.mark.parametrize("algo", ["mpo", "ppo", "sac", "vmpo"])
def test_no_state_has_a_float64_scalar(algo: Any) -> None:
    """On a CPU torch.compile takes such a tensor for a number that may be read, and traces a whole update twice."""
    state = leaves(trainer_class(algo)("Pendulum-v1", 0, "cpu", policy_layer_sizes=(4,)).agent.state)
    assert state
    assert not [name for name, value in state.items() if value.ndim == 0 and value.dtype == torch.float64]


def test_tuples_are_lists_too_and_no_numbers_are_no_tensors() -> None:
    assert as_tensors({"bounds": (1.0, 2.0)}, torch.zeros(1))["bounds"].tolist() == [1, 2]
    assert as_tensors({}, torch.zeros(1)) == {}


def test_an_agents_metrics_come_back_as_one_dict_of_floats() -> None:
    metrics = {"loss": torch.tensor(0.1), "finite": torch.tensor(True), "skipped": torch.tensor(2**40)}
    (row,) = metrics_to_host(metrics)
    assert row == {"loss": torch.tensor(0.1).item(), "finite": 1.0, "skipped": float(2**40)}
    assert all(type(value) is float for value in row.values())


@pytest.mark.parametrize("agents", [1, 2, 5])
def test_a_stacks_metrics_come_back_as_a_dict_for_each_agent(agents: int) -> None:
    metrics = {"loss": torch.arange(agents) / 8, "count": 10 * torch.arange(agents)}
    assert metrics_to_host(metrics) == [{"loss": n / 8, "count": 10.0 * n} for n in range(agents)]


def test_metrics_of_one_name_are_not_taken_for_agents() -> None:
    assert metrics_to_host({"loss": torch.tensor(3.0)}) == [{"loss": 3.0}]
    assert metrics_to_host({"loss": torch.tensor([3.0, 4.0])}) == [{"loss": 3.0}, {"loss": 4.0}]


def test_metrics_are_fetched_without_their_graph() -> None:
    weight = torch.tensor(2.0, requires_grad=True)
    assert metrics_to_host({"loss": weight**2}) == [{"loss": 4.0}]


# --- pieces -----------------------------------------------------------------------------------------------------


def make_agent(**settings: Any) -> PPOAgent:
    sizes = {"num_envs": 1, "rollout_steps": 8, "minibatch_size": 3, "update_epochs": 2}
    return PPOAgent(3, 2, config=PPOConfig.from_dict({**sizes, **settings}))


def test_lifted_pieces_are_called_by_the_update_and_leave_the_agent_as_it_is() -> None:
    agent, called = make_agent(), list[str]()

    def lift(name: str, piece: Any) -> Any:
        return lambda *inputs: called.append(name) or piece(*inputs)

    lifted = agent.lifted(lift)
    assert type(lifted) is PPOAgent
    assert lifted.state is agent.state
    source = torch.Generator().manual_seed(0)
    rollout = {name: torch.randn(8, 1, 3, generator=source) for name in ("obs", "next_obs")}
    rollout |= {"actions_raw": torch.randn(8, 1, 2, generator=source), "rewards": torch.randn(8, 1, generator=source)}
    rollout |= {"terminated": torch.zeros(8, 1), "ended": torch.zeros(8, 1)}
    orders, hyper = agent.draw_update(rollout), agent.hyper()
    with torch.no_grad():
        expected, _ = agent.updated(agent.state, rollout, orders, hyper)
        assert called == []
        found, _ = lifted.updated(agent.state, rollout, orders, hyper)
    step = "improved.minibatch_step"
    before = ["scaled", "evaluated", "paced", "improved.standardized"]
    assert called == [*before, *[step] * agent.calls(step), "finish_update"]
    assert torch.equal(found["parameters"], expected["parameters"])


@pytest.mark.parametrize(
    ("mode", "updates", "wanted"), [("auto", 10**9, True), ("auto", 1, False), ("off", 10**9, False)]
)
def test_what_is_worth_compiling_is_compiled(mode: Any, updates: int, wanted: bool) -> None:
    agent = make_agent()
    functions = Stack([agent], mode, updates)._functions
    pieces = {
        name: isinstance(attrgetter(name)(functions), compiled_module._Compiled) for name in agent.VMAPPED_METHODS
    }
    assert pieces == {name: wanted and name in agent.COMPILED_METHODS for name in agent.VMAPPED_METHODS}


# --- an update by hand ------------------------------------------------------------------------------------------------


def rows(*shape: int) -> dict[str, torch.Tensor]:
    """What every agent learns from, under PPO's names."""
    source = torch.Generator().manual_seed(3)
    vectors = {name: torch.randn(*shape, 3, generator=source) for name in ("obs", "next_obs")}
    numbers = {name: torch.zeros(*shape) for name in ("terminated", "ended")}
    actions = torch.rand(*shape, 2, generator=source) - 0.5
    return {**vectors, **numbers, "actions_raw": actions, "rewards": torch.randn(*shape, generator=source)}


def _equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def ppo_update(bad: float) -> tuple[Agent, Any]:
    agent, rollout = PPOAgent(3, 2, minibatch_size=8), rows(8, 2)
    rollout["rewards"][3, 1] = bad
    return agent, lambda: agent.update(rollout)


def ppo_normalizer_update(bad: float) -> tuple[Agent, Any]:
    agent, rollout = PPOAgent(3, 2, minibatch_size=8), rows(8, 2)
    rollout["obs"][3, 1, 0] = bad
    return agent, lambda: agent.update(rollout)


def vmpo_update(bad: float) -> tuple[Agent, Any]:
    agent, taken = VMPOAgent(3, 2), rows(16)
    returns = taken["rewards"].clone()
    returns[5] = bad
    old = {"old_means": torch.zeros(16, 2), "old_log_stds": torch.zeros(16, 2)}
    batch = {"obs": taken["obs"], "actions": taken["actions_raw"], "advantages": taken["rewards"], "returns": returns}
    return agent, lambda: agent.update({**batch, **old})


def sac_update(bad: float) -> tuple[Agent, Any]:
    agent, taken = SACAgent(3, 2), rows(16)
    taken["rewards"][5] = bad
    batch = {name: taken[name] for name in ("obs", "next_obs", "rewards")}
    return agent, lambda: agent.update({**batch, "actions": taken["actions_raw"], "dones": taken["terminated"]})


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("make", [ppo_update, ppo_normalizer_update, vmpo_update, sac_update])
def test_an_update_that_is_not_finite_is_undone_and_reported(make: Any, bad: float) -> None:
    agent, update = make(bad)
    before = leaves(agent.state)
    with pytest.raises(TrainingError, match="not finite, and is undone: give finite data"):
        update()
    assert _equal(leaves(agent.state), before)
    agent, update = make(0.0)
    update()
    assert not _equal(leaves(agent.state), before)
