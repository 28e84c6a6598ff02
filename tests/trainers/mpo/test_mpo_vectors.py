"""Whole updates, recorded from another implementation: same parameters, batches and noise, same result."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from minerva.trainers.mpo.agent import MPOAgent

VECTORS = Path(__file__).parents[2] / "vectors"
MODULES = {
    "policy_encoder": lambda agent: agent.policy.encoder,
    "policy_mean": lambda agent: agent.policy.policy_mean,
    "policy_logstd": lambda agent: agent.policy.policy_logstd,
    "critic_encoder": lambda agent: agent.q.encoder,
    "critic_head": lambda agent: agent.q.head,
}
DUALS = ("raw_temperature", "raw_alpha_mean", "raw_alpha_stddev")


def recorded(name):
    arrays = np.load(VECTORS / f"{name}.npz")
    return json.loads(str(arrays["meta"])), arrays


def parameters(agent):
    """Each parameter under the name it has in the recordings."""
    for module, of in MODULES.items():
        for k, parameter in enumerate(of(agent).parameters()):
            yield f"{module}/{k:02d}", parameter
    for name in DUALS:
        yield name, getattr(agent.duals, name)


def make_agent(meta, arrays):
    agent = MPOAgent(
        meta["obs_dim"],
        meta["act_dim"],
        np.array(meta["action_low"], np.float32),
        np.array(meta["action_high"], np.float32),
        "cpu",
        policy_layer_sizes=meta["policy_layer_sizes"],
        critic_layer_sizes=meta["critic_layer_sizes"],
        action_samples=meta["action_samples"],
        epsilon_penalty=0.0,
        **meta["kwargs"],
    )
    with torch.no_grad():
        for name, parameter in parameters(agent):
            parameter.copy_(torch.from_numpy(arrays[f"before/{name}"]))
    return agent


def of_update(arrays, kind, update):
    prefix = f"{kind}{update}/"
    return {key.removeprefix(prefix): arrays[key] for key in arrays.files if key.startswith(prefix)}


@pytest.mark.parametrize("name", ["mpo_td", "mpo_msteps", "mpo_retrace"])
def test_updates_arrive_where_the_recording_did(name):
    meta, arrays = recorded(name)
    agent = make_agent(meta, arrays)
    for update, expected in enumerate(meta["metrics"]):
        draws = of_update(arrays, "noise", update)
        noise = {"critic": torch.from_numpy(draws["0"]), "actions": torch.from_numpy(draws["1"])}
        metrics = agent.update(of_update(arrays, "batch", update), noise)
        for key, value in expected.items():
            assert metrics[key] == pytest.approx(value, rel=1e-4, abs=1e-6), (update, key)
    for key, parameter in parameters(agent):
        np.testing.assert_allclose(parameter.detach(), arrays[f"after/{key}"], rtol=0, atol=1e-5, err_msg=key)


def test_the_recorded_noise_has_the_shapes_that_an_agent_draws():
    for name in ("mpo_td", "mpo_retrace"):
        meta, arrays = recorded(name)
        agent = make_agent(meta, arrays)
        drawn = agent.draw_update(agent.prepared(of_update(arrays, "batch", 0)))
        assert [tuple(noise.shape) for noise in drawn.values()] == [arrays[f"noise0/{i}"].shape for i in (0, 1)]
