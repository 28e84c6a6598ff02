"""Whole updates recorded from another program: same parameters and batches in, same parameters and metrics out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from minerva.trainers.vmpo.agent import VMPOAgent

VECTORS = Path(__file__).parents[2] / "vectors"
FILES = ("vmpo_default", "vmpo_restarts", "vmpo_shared_ppo_like")
AFTER_NORMALISING = ("adv/raw_mean", "adv/raw_std")
"""The recording program takes these two from the advantages it has already normalised."""


def parameters(agent: VMPOAgent, module: str) -> list[torch.nn.Parameter]:
    if module == "policy_logstd":
        return agent.policy.policy_logstd_parameters()
    return list(getattr(agent.policy, module).parameters())


def recorded(name: str) -> tuple[VMPOAgent, dict[str, Any], Any]:
    """An agent in the recording's initial state, its description, and its arrays."""
    arrays = np.load(VECTORS / f"{name}.npz")
    meta = json.loads(str(arrays["meta"]))
    bounds = meta["action_low"], meta["action_high"]
    agent = VMPOAgent(meta["obs_dim"], meta["act_dim"], *bounds, "cpu", **meta["kwargs"])
    for key in arrays.files:
        if key.startswith("before/") and key.count("/") == 2:
            _, module, index = key.split("/")
            parameters(agent, module)[int(index)].data.copy_(torch.from_numpy(arrays[key]))
    return agent, meta, arrays


def learned(name: str) -> tuple[VMPOAgent, list[dict[str, float]], dict[str, Any], Any]:
    agent, meta, arrays = recorded(name)
    metrics = []
    for update in range(meta["updates"]):
        prefix = f"batch{update}/"
        batch = {key.removeprefix(prefix): arrays[key] for key in arrays.files if key.startswith(prefix)}
        metrics.append(agent.update(batch))
    return agent, metrics, meta, arrays


@pytest.mark.parametrize("name", FILES)
def test_parameters_and_multipliers_after_the_updates_are_the_recorded_ones(name: str) -> None:
    agent, _, _, arrays = learned(name)
    compared = [key for key in arrays.files if key.startswith("after/")]
    assert len(compared) >= 12
    for key in compared:
        _, module, *index = key.split("/")
        ours = parameters(agent, module)[int(index[0])].detach().numpy() if index else getattr(agent, module)
        np.testing.assert_allclose(ours, arrays[key], rtol=0, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", FILES)
def test_metrics_of_every_update_are_the_recorded_ones(name: str) -> None:
    _, metrics, meta, _ = learned(name)
    for ours, theirs in zip(metrics, meta["metrics"], strict=True):
        assert ours.keys() == theirs.keys()
        for key in theirs.keys() - set(AFTER_NORMALISING):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-4, abs=1e-6), key
