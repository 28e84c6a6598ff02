"""Agents stacked under vmap, and the compiled M-step, learn what each agent learns alone and eagerly."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from trees import leaves, stacked

from minerva.compute.tree import Tree
from minerva.trainers.vmpo.agent import VMPOAgent

MakeAgent = Callable[..., VMPOAgent]
MakeRollout = Callable[..., dict[str, Tensor]]

pytestmark = pytest.mark.usefixtures("double_precision")


def assert_close(ours: Tree, theirs: Tree) -> None:
    mine, others = leaves(ours), leaves(theirs)
    assert mine.keys() == others.keys()
    for name, value in mine.items():
        torch.testing.assert_close(value, others[name], rtol=1e-9, atol=1e-9, msg=lambda m, name=name: f"{name}: {m}")


SETTINGS: list[dict[str, Any]] = [
    {"m_steps": 2, "alpha_lr": 0.1},
    {"temperature": "solved", "old_policy": "kl", "updates_per_rollout": 3, "epsilon_mu": 1e-6},
    {"shared_encoder": True, "ppo_like_backbone": True, "squash": False, "topk_fraction": 1.0},
    {"minibatch_size": 20, "m_steps": 2, "updates_per_rollout": 2, "alpha_update": "multiplicative"},
    {"m_step_loss": "centered", "topk_fraction": 1.0, "minibatch_size": 20, "m_steps": 2},
    {"m_step_loss": "control_variate", "topk_fraction": 1.0, "minibatch_size": 20, "m_steps": 2},
]


def learners(make_agent: MakeAgent, make_rollout: MakeRollout, settings: dict[str, Any]) -> list[VMPOAgent]:
    """Two agents of different seeds that have learned before, so that no moment and no statistic is zero."""
    made = [make_agent(seed=seed, normalize_observations=True, **settings) for seed in range(2)]
    for agent in made:
        agent.learn(make_rollout(agent, seed=100))
    return made


@pytest.mark.parametrize(
    "settings",
    SETTINGS,
    ids=["gradient", "solved and replaced", "shared", "minibatches", "centered", "control variate"],
)
def test_stacked_agents_learn_what_each_learns_alone(
    make_agent: MakeAgent, make_rollout: MakeRollout, settings: dict[str, Any]
) -> None:
    agents = learners(make_agent, make_rollout, settings)
    rollouts = [make_rollout(agent, seed=n) for n, agent in enumerate(agents)]
    hypers = [agent.hyper(1.0 - 0.5 * n) for n, agent in enumerate(agents)]
    hypers[1]["gamma"] -= 0.1
    with torch.no_grad():
        noises = [agent.draw_update(rollout) for agent, rollout in zip(agents, rollouts, strict=True)]
        parts = stacked([agent.state for agent in agents]), stacked(rollouts), stacked(noises), stacked(hypers)
        together = torch.func.vmap(agents[0].updated)(*parts)
        alone = [agent.updated(agent.state, rollouts[n], noises[n], hypers[n]) for n, agent in enumerate(agents)]
    for part in (0, 1):
        assert_close(together[part], stacked([single[part] for single in alone]))


def compiled_equals_eager(agent: VMPOAgent, rollout: dict[str, Tensor], backend: str) -> None:
    with torch.no_grad():
        noise = agent.draw_update(rollout)
        eager = agent.updated(agent.state, rollout, noise, agent.hyper(1.0))
        agent.improved.m_step = torch.compile(agent.improved.m_step, fullgraph=True, dynamic=False, backend=backend)
        compiled = agent.updated(agent.state, rollout, noise, agent.hyper(1.0))
    for part in (0, 1):
        assert_close(compiled[part], eager[part])


@pytest.mark.parametrize("minibatch_size", [0, 20])
def test_the_m_step_is_one_graph(make_agent: MakeAgent, make_rollout: MakeRollout, minibatch_size: int) -> None:
    agent = learners(make_agent, make_rollout, {"m_steps": 2, "minibatch_size": minibatch_size})[0]
    compiled_equals_eager(agent, make_rollout(agent), backend="eager")


@pytest.mark.slow
@pytest.mark.compiles
def test_the_compiled_m_step_equals_the_eager_one(make_agent: MakeAgent, make_rollout: MakeRollout) -> None:
    agent = learners(make_agent, make_rollout, {"m_steps": 2})[0]
    compiled_equals_eager(agent, make_rollout(agent), backend="inductor")
