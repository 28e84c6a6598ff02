"""bfloat16 in the target critic's hidden layers: close to full precision, and nowhere else."""

import pytest
import torch
from torch import Tensor

from minerva.compute.torch_private import multiplies_bfloat16
from minerva.compute.tree import leaves
from minerva.trainers.mpo import evaluate
from minerva.trainers.mpo.agent import MPOAgent

EPS = 2**-8
"""Half the distance of neighbouring bfloat16 numbers, relative to them."""


def make(low: bool, **settings: object) -> MPOAgent:
    return MPOAgent(5, 2, policy_layer_sizes=(32, 32), critic_layer_sizes=(64, 64), bfloat16_targets=low, **settings)


def batch(steps: int) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(0)
    shape = (64, steps) if steps > 1 else (64,)
    numbers = {name: torch.randn(*shape, 5, generator=source) for name in ("obs", "next_obs")}
    numbers |= {name: torch.rand(*shape, 2, generator=source) for name in ("actions_exec", "actions_raw")}
    flags = torch.zeros(*shape, 1)
    rewards = torch.randn(*shape, 1, generator=source)
    return {**numbers, "rewards": rewards, "behaviour_logp": flags - 1, "dones": flags, "truncated": flags}


@pytest.mark.parametrize(("settings", "steps"), [({}, 1), ({"use_retrace": True, "retrace_steps": 3}, 3)])
def test_targets_differ_by_what_bfloat16_costs_and_no_more(settings: dict[str, object], steps: int) -> None:
    plain, low = make(False, **settings), make(True, **settings)
    rows = plain.prepared(batch(steps))
    noise = plain.draw_update(rows)
    (full, _), (rough, _) = (agent.evaluated.targets(agent.state, rows, noise, agent.hyper()) for agent in (plain, low))
    assert rough.dtype == torch.float32
    assert not torch.equal(rough, full)
    spread = (full - rows["rewards"][0]).abs().max().item()  # what the critic adds to the reward
    assert (rough - full).abs().max().item() < 20 * EPS * spread


def test_values_are_not_rounded_to_bfloat16() -> None:
    agent = make(True)
    source = torch.Generator().manual_seed(1)
    obs, actions = torch.randn(64, 5, generator=source), torch.rand(20, 64, 2, generator=source)
    values = agent.evaluated.target_values(agent.state, obs, actions)
    assert values.dtype == torch.float32
    assert len(values.unique()) > 1_000
    assert not torch.equal(values, values.to(torch.bfloat16).float())


def test_the_online_critic_and_all_that_is_kept_stay_in_full_precision() -> None:
    plain, low = make(False), make(True)
    rows = plain.prepared(batch(1))
    target = torch.randn(64, generator=torch.Generator().manual_seed(2))
    losses = [
        agent.evaluated.loss(agent.state["q"], rows["obs"][0], rows["actions_executed"][0], target)[0]
        for agent in (plain, low)
    ]
    assert torch.equal(*losses)
    low.update(batch(1))
    assert {value.dtype for value in leaves(low.state)} == {torch.float32, torch.int64}


@pytest.mark.parametrize(("given", "units", "taken"), [(None, True, True), (None, False, False), (False, True, False)])
def test_bfloat16_is_taken_on_processors_with_units_for_it_unless_said_otherwise(
    given: bool | None, units: bool, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "multiplies_bfloat16", lambda device: units)
    sizes = {"policy_layer_sizes": (32, 32), "critic_layer_sizes": (64, 64)}
    agent = MPOAgent(5, 2, **sizes, bfloat16_targets=given)  # type: ignore[arg-type]
    rows = agent.prepared(batch(1))
    arguments = (agent.state, rows, agent.draw_update(rows), agent.hyper())
    found, expected = (each.evaluated.targets(*arguments)[0] for each in (agent, make(taken)))
    assert torch.equal(found, expected)


def test_float64_keeps_its_digits(double_precision: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "multiplies_bfloat16", lambda device: True)
    sizes = {"policy_layer_sizes": (32, 32), "critic_layer_sizes": (64, 64)}
    agent = MPOAgent(5, 2, **sizes, bfloat16_targets=None)  # type: ignore[arg-type]
    assert not agent.evaluated.bfloat16


def test_a_processor_without_units_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    for units in (True, False):
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda units=units: units)
        assert multiplies_bfloat16(cpu) is units
    monkeypatch.delattr(torch.cpu, "_is_amx_tile_supported")
    assert not multiplies_bfloat16(cpu)
    for version, units in (((7, 5), False), ((8, 0), True), ((9, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, version=version: version)
        assert multiplies_bfloat16(cuda) is units
