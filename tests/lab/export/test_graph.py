"""The exported graph: raw observations in, the environment's actions out, as the policy would act."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from minerva.data.normalizers import RunningNorm
from minerva.errors import ConfigError, TrainingError
from minerva.lab.export import graph
from minerva.lab.export.graph import Exported, PolicyGraph, compared_observations, exported, gymnasium_id
from minerva.policy import Policy
from minerva.spec import ActionSpec, ObservationSpec
from minerva.trainers.registry import agent_class, config_class

OBS, ACT = 5, 3
LOW, HIGH = [-2.0, -1.0, 0.0], [2.0, 1.0, 5.0]
LAYERS = {
    "ppo": {"policy_layer_sizes": (16, 8), "critic_layer_sizes": (8,)},
    "mpo": {"policy_layer_sizes": (16, 16), "critic_layer_sizes": (8,)},
    "vmpo": {"policy_layer_sizes": (16, 8), "value_layer_sizes": (8,), "normalize_observations": True},
}


def made(algo: str, **changed: Any) -> Policy:
    """A policy with random weights, and a normaliser that has seen something."""
    config = config_class(algo).from_dict({**LAYERS[algo], **changed})
    agent = agent_class(algo).from_config(OBS, ACT, config, seed=1)
    modules = [part for part in vars(agent).values() if isinstance(part, torch.nn.Module)]
    for module in modules:
        for part in module.modules():
            if isinstance(part, RunningNorm):
                part.mean.copy_(torch.linspace(-3, 40, OBS))
                part.var.copy_(torch.logspace(-3, 3, OBS))
        for parameter in module.parameters():
            parameter.data.mul_(1.3)
    about = {"algo": algo, "env": "Made-v0", "seed": 1, "step": 10, "return": -1.5}
    specs = {"observation": ObservationSpec.of(OBS).to_dict(), "action": ActionSpec.continuous(LOW, HIGH).to_dict()}
    return Policy(agent, {**about, **specs})


@pytest.fixture(scope="module", params=["ppo", "mpo", "vmpo"])
def pair(request: pytest.FixtureRequest) -> tuple[Policy, Exported]:
    policy = made(request.param)
    return policy, exported(policy)


def actions(content: bytes, observations: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"observations": observations})[0])


@pytest.mark.parametrize("rows", [1, 2, 257])
def test_a_batch_of_any_size_is_acted_on_as_by_the_policy(rows: int, pair: tuple[Policy, Exported]) -> None:
    policy, done = pair
    observations = np.random.default_rng(5).normal(20, 15, (rows, OBS)).astype(np.float32)
    acted = actions(done.content, observations)
    assert acted.dtype == np.float32
    np.testing.assert_allclose(acted, policy.act(observations), atol=1e-5)
    assert len(np.unique(acted, axis=0)) == rows  # it does depend on what is observed


def test_the_difference_found_is_rounding(pair: tuple[Policy, Exported]) -> None:
    assert 0 <= pair[1].difference < 1e-6


def test_no_action_leaves_the_bounds(pair: tuple[Policy, Exported]) -> None:
    wild = 1e6 * np.random.default_rng(0).normal(size=(200, OBS)).astype(np.float32)
    acted = actions(pair[1].content, wild)
    assert (acted >= np.float32(LOW)).all()
    assert (acted <= np.float32(HIGH)).all()


def test_a_policy_whose_mean_is_constant_gives_that_action_in_the_environments_units() -> None:
    policy = made("ppo")
    for parameter in policy.agent.network.actor_mean.parameters():
        parameter.data.zero_()
    policy.agent.network.actor_mean[-1].bias.data.copy_(torch.tensor([0.5, -7.0, 0.0]))
    acted = actions(exported(policy).content, np.ones((1, OBS), np.float32))
    np.testing.assert_allclose(acted, [[1.0, -1.0, 2.5]])  # three quarters of [-2, 2], clipped, the middle of [0, 5]


def test_the_graph_says_what_it_is(pair: tuple[Policy, Exported]) -> None:
    policy, done = pair
    session = onnxruntime.InferenceSession(done.content, providers=["CPUExecutionProvider"])
    told = session.get_modelmeta().custom_metadata_map
    assert told["algo"] == policy.about["algo"]
    assert (told["env"], told["step"], told["return"]) == ("Made-v0", "10", "-1.5")
    assert (told["obs_dim"], told["action_low"]) == ("5", "[-2.0, -1.0, 0.0]")
    assert [(one.name, one.shape) for one in session.get_inputs()] == [("observations", ["batch", OBS])]
    assert [one.name for one in session.get_outputs()] == ["actions"]
    onnx.checker.check_model(onnx.load_from_string(done.content), full_check=True)


def test_observations_that_are_compared_lie_where_the_normaliser_expects_them_and_beyond() -> None:
    policy = made("ppo")
    (observations,) = compared_observations(policy)
    assert observations.shape == (1000, OBS)
    normalizer = policy.agent.network.obs_normalizer
    scaled = (observations - normalizer.mean.numpy()) / np.sqrt(normalizer.var.numpy())
    each = [scaled[n::4].std() for n in range(4)]
    np.testing.assert_allclose(each, graph.OBSERVATION_STDS, rtol=0.1)


@pytest.mark.parametrize("broken", ["scale", "nan", "normaliser"])
def test_a_graph_that_acts_differently_is_refused(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = PolicyGraph.forward

    def forward(self: PolicyGraph, *observations: torch.Tensor) -> torch.Tensor:
        if broken == "normaliser":
            return right(self, observations[0] * 1.001)
        return right(self, *observations) * (float("nan") if broken == "nan" else 1.0001)

    monkeypatch.setattr(PolicyGraph, "forward", forward)
    with pytest.raises(TrainingError, match=r"acts differently from the policy.*1e-05 is allowed. Nothing was written"):
        exported(made("ppo"))


@pytest.mark.parametrize("missing", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_library_is_named_with_its_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, missing, None)
    with pytest.raises(ConfigError, match=rf"needs {missing}, .*pip install "):
        exported(made("ppo"))


def test_ids_are_gymnasiums() -> None:
    assert gymnasium_id("dm_control/ball_in_cup/catch") == "dm_control/ball_in_cup-catch-v0"
    assert gymnasium_id("my_package:Mine-v0") == "my_package:Mine-v0"
