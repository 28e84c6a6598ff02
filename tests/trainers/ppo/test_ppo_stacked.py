"""Agents stacked under vmap learn what each of them learns alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from trees import leaves, stacked

from minerva.trainers.ppo.agent import PPOAgent

MakeAgent = Callable[..., PPOAgent]
MakeRollout = Callable[..., dict[str, Tensor]]

pytestmark = pytest.mark.usefixtures("double_precision")


def assert_close(together: dict[str, Tensor], alone: list[dict[str, Tensor]]) -> None:
    for n, single in enumerate(alone):
        for name, value in single.items():
            torch.testing.assert_close(
                together[name][n], value, rtol=1e-10, atol=1e-10, msg=lambda m, name=name: f"{name}: {m}"
            )


@pytest.fixture
def agents(make_agent: MakeAgent, make_rollout: MakeRollout) -> list[PPOAgent]:
    """Three agents of different seeds that have learned for a while, so that no moment and no statistic is zero."""
    made = [make_agent(seed=seed, target_kl=0.02, update_epochs=6) for seed in range(3)]
    for agent in made:
        agent.update(make_rollout(agent, seed=100))
    return made


def hypers(agents: list[PPOAgent]) -> list[dict[str, Tensor]]:
    """Different rates, discounts and clip ranges for each."""
    made = []
    for n, agent in enumerate(agents):
        hyper = agent.hyper(1.0 - 0.2 * n)
        made.append(hyper | {"gamma": hyper["gamma"] - 0.05 * n, "clip_ratio": hyper["clip_ratio"] + 0.05 * n})
    return made


def test_one_minibatch_step(agents: list[PPOAgent], make_rollout: MakeRollout) -> None:
    hyper = hypers(agents)
    rows = [agent.evaluated(agent.state, make_rollout(agent, seed=n), hyper[n]) for n, agent in enumerate(agents)]
    rows = [{name: value.detach() for name, value in batch.items()} for batch in rows]
    index = [torch.arange(16 * n, 16 * n + 16) for n in range(3)]
    with torch.no_grad():
        alone = [
            agent.improved.minibatch_step(agent.state, rows[n], index[n], hyper[n]) for n, agent in enumerate(agents)
        ]
        together = torch.func.vmap(agents[0].improved.minibatch_step)(
            stacked([agent.state for agent in agents]), stacked(rows), torch.stack(index), stacked(hyper)
        )
    for part in (0, 1):
        assert_close(leaves(together[part]), [leaves(single[part]) for single in alone])


@pytest.mark.parametrize("targets", [(1e6, 1e6, 1e6), (1e-12, 1e6, 1e-12)], ids=["none stops", "two stop early"])
def test_the_whole_update(agents: list[PPOAgent], make_rollout: MakeRollout, targets: tuple[float, ...]) -> None:
    hyper: list[dict[str, Any]] = [
        h | {"target_kl": torch.tensor(t)} for h, t in zip(hypers(agents), targets, strict=True)
    ]
    rollouts = [make_rollout(agent, seed=n) for n, agent in enumerate(agents)]
    orders = [agent.draw_update(rollout) for agent, rollout in zip(agents, rollouts, strict=True)]
    with torch.no_grad():
        alone = [agent.updated(agent.state, rollouts[n], orders[n], hyper[n]) for n, agent in enumerate(agents)]
        together = torch.func.vmap(agents[0].updated)(
            stacked([agent.state for agent in agents]), stacked(rollouts), torch.stack(orders), stacked(hyper)
        )
    for part in (0, 1):
        assert_close(leaves(together[part]), [leaves(single[part]) for single in alone])
    steps = [
        single[0]["moments"]["step"] - agent.state["moments"]["step"]
        for single, agent in zip(alone, agents, strict=True)
    ]
    assert [step.item() for step in steps] == [4 if target < 1 else 24 for target in targets]
