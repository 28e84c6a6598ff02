"""The guide's loop of twenty lines trains every agent, and all agents say the same where something is missing."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import minerva
from minerva.errors import ConfigError
from minerva.trainers.registry import ALGORITHMS, agent_class

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "own-loop.md"
AGENTS = [agent_class(name) for name in ALGORITHMS]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.__name__)
def test_the_loop_of_the_guide_trains_each_agent(agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (script,) = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.M | re.S)
    assert len([line for line in script.splitlines() if line.strip()]) <= 20
    short = {"SACAgent(": f"{agent.__name__}(", "2048": "272", "size=64": "size=8"}
    for written, run in short.items():
        assert script.count(written) == 1
        script = script.replace(written, run)
    found: dict[str, Any] = {}
    exec(script, found)
    trained, fresh = found["agent"], agent(3, 1, -2.0, 2.0, seed=0)
    assert not torch.equal(trained.flat.vector, fresh.flat.vector)
    assert found["metrics"]
    assert all(np.isfinite(value) for value in found["metrics"].values())
    assert trained.policy_action(found["obs"]).abs().max() <= 2.0


def rows(agent: Any, steps: int = 16) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    obs = draw.normal(size=(steps, 2, 3))
    explored = {name: values.numpy() for name, values in agent.explore(obs).items()}
    flags = {name: np.zeros((steps, 2), np.bool_) for name in ("terminated", "truncated")}
    return {**explored, "rewards": draw.normal(size=(steps, 2)), "next_obs": draw.normal(size=(steps, 2, 3)), **flags}


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.__name__)
def test_arrays_and_tensors_are_the_same_and_what_is_missing_is_named(agent: Any) -> None:
    one, other = agent(3, 1, seed=0), agent(3, 1, seed=0)
    batch, same = rows(one), rows(other)
    metrics = one.update(batch)
    assert metrics == other.update({name: torch.as_tensor(values) for name, values in same.items()})
    assert torch.equal(one.flat.vector, other.flat.vector)
    for name in ("rewards", "next_obs", "terminated"):
        lacking = {key: values for key, values in batch.items() if key != name}
        with pytest.raises(ConfigError, match=rf"The batch lacks .*{name}"):
            one.update(lacking)


def test_an_episode_that_was_cut_is_told_from_one_that_ended() -> None:
    agent = minerva.PPOAgent(3, 1)
    lacking = {name: values for name, values in rows(agent).items() if name != "truncated"}
    with pytest.raises(ConfigError, match="lacks truncated"):
        agent.update(lacking)
    with pytest.raises(
        ConfigError, match=r"rewards has shape \(32,\), and obs \(16, 2, 3\): give a rollout of \[steps"
    ):
        agent.update({**rows(agent), "rewards": np.zeros(32)})
