"""The pace of PPO and V-MPO: rollouts whose advantages are far smaller than usual move the policy less."""

from typing import Any

import pytest
import torch
from torch import Tensor

from minerva import PPOAgent, VMPOAgent
from minerva.trainers.vmpo.config import VMPOConfig

AGENTS: dict[str, Any] = {"ppo": PPOAgent, "vmpo": VMPOAgent}
SMALL = {"minibatch_size": 32, "policy_layer_sizes": (8,), "max_grad_norm": 1e9}
ONE_STEP: dict[str, dict[str, Any]] = {
    "ppo": {**SMALL, "update_epochs": 1},
    "vmpo": {**SMALL, "m_steps": 1, "topk_fraction": 1.0, "m_step_loss": "control_variate"},
}


def paces(algo: str, memory: float, sizes: list[float]) -> list[float]:
    """The pace of rollouts with advantages of these sizes, one after the other."""
    agent = AGENTS[algo](3, 1, advantage_memory=memory, policy_lr=0.5)
    state, found = agent.state, []
    for size in sizes:
        state, numbers = agent.paced(state, {"advantages": torch.tensor([size, -size, size])}, agent.hyper())
        assert numbers["policy_lr"] == 0.5 * numbers["pace"]
        found.append(numbers["pace"].item())
    return found


@pytest.mark.parametrize("algo", AGENTS)
def test_a_rollout_is_worth_what_its_advantages_are_beside_the_usual_ones(algo: str) -> None:
    found = paces(algo, 0.9, [*[2.0] * 400, 0.2, 2.0, 1.1])
    usual = 0.9 * 2.0**2 + 0.1 * 0.2**2
    assert found == pytest.approx([*[1.0] * 400, 4 * 0.2**2 / usual, 1.0, 1.0])


@pytest.mark.parametrize("algo", AGENTS)
@pytest.mark.parametrize("sizes", [[3.0, 1e-3, 1e-12], [0.0, 0.0], [1e-18, 1.0, 0.0]])
def test_without_a_memory_every_rollout_is_worth_a_whole_step(algo: str, sizes: list[float]) -> None:
    assert paces(algo, 0.0, sizes) == [1.0] * len(sizes)


@pytest.mark.parametrize("algo", AGENTS)
def test_the_policy_moves_by_its_share_and_the_values_by_a_whole_step(algo: str) -> None:
    """Adam's first step has the learning rate's size in every parameter, however small the gradient."""
    source = torch.Generator().manual_seed(0)
    rows = {name: torch.randn(16, 2, 3, generator=source) for name in ("obs", "next_obs")}
    rows |= {"actions_raw": torch.randn(16, 2, 1, generator=source), "rewards": torch.randn(16, 2, generator=source)}
    rows |= {"terminated": torch.zeros(16, 2), "ended": torch.zeros(16, 2)}

    def moved(memory: float, usual: float) -> tuple[Tensor, Tensor, Any]:
        agent = AGENTS[algo](3, 1, seed=0, advantage_memory=memory, **ONE_STEP[algo])
        agent.state["advantages"].fill_(usual)
        before = agent.flat.vector.clone()
        metrics = agent.learn(rows)
        by, of_value = agent.flat.vector - before, agent.improved.of_value
        return by[~of_value], by[of_value], metrics.get("charts/pace")

    policy, value, whole = moved(0.0, 100.0)
    slowed, value_too, share = moved(1.0, 100.0)
    assert whole is None
    assert 0 < share < 0.5
    assert torch.equal(value, value_too)
    torch.testing.assert_close(slowed, share * policy, rtol=1e-4, atol=2**-23)  # rounding of parameters up to 1


def test_v_mpo_remembers_advantages_where_nothing_but_its_weights_ends_a_step() -> None:
    memories = {loss: VMPOConfig().memory_of_advantages(loss) for loss in ("control_variate", "centered", "likelihood")}
    assert memories == {"control_variate": 0.99, "centered": 0.0, "likelihood": 0.0}
    assert VMPOConfig(advantage_memory=0.5).memory_of_advantages("centered") == 0.5
