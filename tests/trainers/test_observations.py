"""Observations of every form: what a camera, numbers and choices become, and all algorithms on all paths with them."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from needs import all_but_first_slow
from seeing import LENGTH, Seeing, Steering, Watching

from minerva.api import train, train_seeds
from minerva.compute.tree import leaves
from minerva.envs.engines.registry import EngineName, make_engine
from minerva.errors import CheckpointError, ConfigError
from minerva.lab.export.graph import exported
from minerva.loop.stacking import Stack
from minerva.networks.images import ImageEncoder, image_encoder
from minerva.networks.observations import ObservationEncoder
from minerva.policy import load_policy
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.folder import find_checkpoint
from minerva.spec import ObservationSpec
from minerva.trainers.registry import trainer_class

ROLLOUT = {"num_envs": 4, "rollout_steps": 8}
REPLAY = {"num_envs": 4, "replay_size": 80, "batch_size": 8, "update_after": 16, "updates_per_step": 0.25}
LAYERS = {"policy_layer_sizes": (8,), "critic_layer_sizes": (8,)}
SMALL: dict[str, dict[str, Any]] = {
    "ppo": {**ROLLOUT, **LAYERS, "minibatch_size": 32, "update_epochs": 2},
    "vmpo": {**ROLLOUT, "policy_layer_sizes": (8,), "value_layer_sizes": (8,), "minibatch_size": 32, "m_steps": 2},
    "mpo": {**REPLAY, **LAYERS, "action_samples": 4},
    "sac": {**REPLAY, **LAYERS, "normalize_observations": True, "n_step": 2},
}
CASES = [("ppo", Seeing), ("vmpo", Seeing), ("mpo", Seeing), ("mpo", Steering), ("sac", Steering)]
QUIET = {"eval_every": 10**6, "eval_episodes": 2, "quiet": True, "compile": "off"}


def learned(run: Path) -> list[torch.Tensor]:
    """The weights of a run's last checkpoint."""
    return leaves(load_checkpoint(find_checkpoint(run, "last")).state["trainer"]["agent"])


# --- rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["gymnasium", "processes"])
def test_a_row_holds_the_bytes_of_images_and_the_numbers_as_gymnasium_flattens_them(engine: EngineName) -> None:
    envs, direct = make_engine(Seeing, 2, engine), Seeing()
    envs.reset([0, 1])
    shown, _ = direct.reset(seed=1)
    assert envs.obs.dtype == torch.uint8
    assert envs.observation.size == 6 * 4 * 3 + 4 * (2 + 2 + 3), "a byte for each of an image, four for a number"
    rest = spaces.Dict({name: space for name, space in Seeing.observation_space.items() if name != "camera"})
    for _ in range(3):
        seen = ObservationEncoder(envs.observation).split(envs.obs)
        np.testing.assert_array_equal(seen.images[0][1], shown["camera"])
        np.testing.assert_array_equal(seen.numbers[1], gym.spaces.flatten(rest, {**shown}))
        envs.step(torch.zeros(2, 1, dtype=torch.int64))
        shown, *_ = direct.step(0)
    envs.close()


def test_a_spec_survives_a_checkpoint_and_tells_images_of_equal_size_apart() -> None:
    spec = make_engine(Seeing, 1).observation
    again = ObservationSpec.from_dict(spec.to_dict())
    assert again == spec
    tall, wide = (ObservationSpec.of_layout(["image", 255, *shape]) for shape in ((6, 4, 3), (4, 6, 3)))
    assert (tall.size, tall.dtype) == (wide.size, wide.dtype)
    assert tall != wide
    for layout in (["image", 255, 6], ["image", 255, 6, 4, -3], ["choices", [], [0], [2, 3]], ["film", 2], [2.5], "x"):
        with pytest.raises(ValueError, match="layout"):
            ObservationSpec.from_dict({"shape": [72], "dtype": "uint8", "layout": layout})


# --- encoders ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("double_precision")  # fifteen convolutions round differently on other processors
@pytest.mark.parametrize(("name", "side"), [("nature", 84), ("impala", 84), ("small", 10), ("auto", 36), ("auto", 9)])
def test_an_image_is_divided_by_its_largest_value_and_seen_alike_with_channels_first_or_last(
    name: Any, side: int
) -> None:
    torch.manual_seed(0)
    last = image_encoder(name, 255, (side, side, 4))
    first = image_encoder(name, 255, (4, side, side))
    first.load_state_dict(last.state_dict())
    pixels = torch.randint(256, (2, 3, side, side, 4), dtype=torch.uint8)
    features = last(pixels)
    assert features.shape == (2, 3, last.size)
    torch.testing.assert_close(first(pixels.movedim(-1, -3)), features)
    inputs = pixels[0].double().div(255).permute(0, 3, 1, 2)
    torch.testing.assert_close(features[0], torch.relu(last.linear(last.convolutions(inputs).flatten(1))))


def test_an_encoder_that_an_image_is_too_small_for_is_named() -> None:
    with pytest.raises(ConfigError, match="image_encoder is nature, and an image is 20 x 30: use small or impala"):
        image_encoder("nature", 255, (20, 30, 3))


# --- training, on all paths -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("algo", "env"), all_but_first_slow(CASES))
def test_a_run_is_resumed_exactly_loaded_and_exported(algo: str, env: Any, tmp_path: Path) -> None:
    how: dict[str, Any] = {**SMALL[algo], "total_steps": 128}
    quiet = {**QUIET, "eval_every": 64}
    train(algo, env, run_dir=tmp_path / "whole", settings=quiet, **how)
    stop = {**quiet, "callbacks": [lambda step, metrics, trainer: step >= 64]}
    assert not train(algo, env, run_dir=tmp_path / "parts", settings=stop, **how).finished
    train(algo, env, run_dir=tmp_path / "parts", settings=quiet, **how)
    for whole, parts in zip(learned(tmp_path / "whole"), learned(tmp_path / "parts"), strict=True):
        assert torch.equal(whole, parts)
    policy = load_policy(tmp_path / "parts", "last")
    observations = [env().reset(seed=seed)[0] for seed in range(5)]
    batch = {
        "camera": np.stack([obs["camera"] for obs in observations]),
        "gear": np.stack([obs["gear"] for obs in observations]),
        "state": tuple(np.stack([obs["state"][n] for obs in observations]) for n in range(2)),
    }
    np.testing.assert_allclose(policy.act(batch), [policy.act(obs) for obs in observations], atol=1e-6)
    with pytest.raises(CheckpointError, match="its gear is 9, and not among the choices"):
        policy.act({**observations[0], "gear": np.int64(9)})
    with pytest.raises(CheckpointError, match=r"its camera are float64.*an image has whole numbers from 0 to 255"):
        policy.act({**observations[0], "camera": observations[0]["camera"] / 255})
    with pytest.raises(CheckpointError, match=r"its camera has the shape \(5, 6, 4, 3\), and its gear \(4,\)"):
        policy.act({**batch, "gear": batch["gear"][:4]})
    assert exported(policy).difference < 1e-5


@pytest.mark.parametrize(("algo", "env"), all_but_first_slow(reversed(CASES)))
def test_seeds_that_are_trained_together_learn_as_alone(algo: str, env: Any, tmp_path: Path) -> None:
    how: dict[str, Any] = {**SMALL[algo], "total_steps": 32, "settings": QUIET}
    train_seeds(algo, env, [0, 1], run_dir=tmp_path / "both", **how)
    train(algo, env, seed=1, run_dir=tmp_path / "alone", **how)
    for both, alone in zip(learned(tmp_path / "both" / "seed1"), learned(tmp_path / "alone"), strict=True):
        torch.testing.assert_close(both, alone, rtol=1e-3, atol=1e-4)


def collected(env: Any, steps: int) -> dict[str, torch.Tensor]:
    """Transitions of random actions, [steps, environments, ...]."""
    envs, draw, rows = make_engine(env, 4, "gymnasium"), np.random.default_rng(0), list[dict[str, torch.Tensor]]()
    envs.reset([0, 1, 2, 3])
    for _ in range(steps):
        obs, actions = envs.obs, torch.from_numpy(envs.action.random(envs.obs.numpy(), draw))
        step = envs.step(actions)
        ends = {"terminated": step.terminated.float(), "truncated": step.truncated.float()}
        acted = {"obs": obs, "actions_raw": actions, "actions": actions}
        rows.append({**acted, "next_obs": step.next_obs, "rewards": step.rewards.float(), **ends})
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def compare_captured_with_eager(algo: str, env: Any) -> None:
    """Two agents of one seed, one of them captured, learn the same from images, numbers and choices."""
    plain, fast = (trainer_class(algo)(env, 0, **SMALL[algo]).agent for _ in range(2))
    stack, batch = Stack([fast], "auto", 10**9), collected(env, 8)
    for _ in range(2):
        stack.learn(fast.rollout(batch), stack.hyper())
        assert stack.metrics()[0] == pytest.approx(plain.update(batch), rel=1e-3, abs=1e-5)
    for found, expected in zip(leaves(fast.state), leaves(plain.state), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "env"), [("ppo", Seeing), ("vmpo", Seeing)])
def test_the_captured_update_is_the_eager_one(
    algo: str, env: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As torch.compile captures it, run without the code generator."""
    capture = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **options: capture(function, **options, backend="aot_eager"))
    compare_captured_with_eager(algo, env)
    assert "not usable" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "vmpo"])
def test_what_pays_is_learned_from_camera_numbers_and_choices_together(algo: str, tmp_path: Path) -> None:
    how: dict[str, Any] = {**SMALL[algo], "num_envs": 8, "rollout_steps": 32, "policy_lr": 3e-3}
    sizes = {name: (32,) for name in SMALL[algo] if name.endswith("sizes")}
    result = train(algo, Seeing, run_dir=tmp_path, total_steps=256 * 80, settings=QUIET, **{**how, **sizes})
    least = {"ppo": 0.95, "vmpo": 0.7}  # who misses one of the three is right half the time
    assert result.after > least[algo] * LENGTH


def test_an_agent_takes_images_in_an_own_loop_and_stores_them_as_bytes() -> None:
    trainer = trainer_class("ppo")(Watching, 0, **SMALL["ppo"])
    assert trainer.rollout.state["next_obs"].dtype == torch.uint8
    agent, env = trainer.agent, Watching()
    frames = np.stack([env.reset(seed=seed)[0] for seed in range(4)])
    acted = agent.explore(frames)
    batch = {name: values[None].repeat(8, *[1] * values.ndim) for name, values in acted.items()}
    zeros = torch.zeros(8, 4)
    rows = {**batch, "next_obs": frames[None].repeat(8, 0), "rewards": zeros, "terminated": zeros, "truncated": zeros}
    assert np.isfinite(list(agent.update(rows).values())).all()
    with pytest.raises(ConfigError, match=r"shape \(8, 4, 5\), and the environment gives it in the shape \(6, 4, 3\)"):
        agent.update({**rows, "next_obs": np.zeros((8, 4, 5), np.uint8)})


def test_a_state_is_encoded_once_however_many_actions_are_weighed_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_class("mpo")(Steering, 0, **SMALL["mpo"])
    seen: list[int] = []
    forward = ImageEncoder.forward
    monkeypatch.setattr(ImageEncoder, "forward", lambda self, rows: (seen.append(len(rows)), forward(self, rows))[1])
    agent, batch = trainer.agent, 8
    obs = torch.randint(256, (batch, trainer.envs.observation.size), dtype=torch.uint8)
    obs[:, : 4 * 7] = torch.zeros(batch, 7).view(torch.uint8)
    agent.update(
        {
            "obs": obs,
            "next_obs": obs,
            "actions": torch.zeros(batch, 3),
            **dict.fromkeys(("rewards", "dones"), torch.zeros(batch)),
        }
    )
    assert max(seen) == batch // 2 + batch, "the improved states and all next ones, not a copy for each of four actions"


@pytest.mark.parametrize("algo", ["mpo", "sac"])
def test_a_batch_of_another_form_is_refused_with_both_shapes(algo: str) -> None:
    agent = trainer_class(algo)(Steering, 0, **SMALL[algo]).agent
    shown = [Steering().reset(seed=seed)[0] for seed in range(8)]
    seen = {"camera": np.stack([obs["camera"] for obs in shown]), "gear": np.stack([obs["gear"] for obs in shown])}
    obs = {**seen, "state": tuple(np.stack([obs["state"][n] for obs in shown]) for n in range(2))}
    zeros = np.zeros(8, np.float32)
    batch = {"obs": obs, "next_obs": obs, "actions": np.zeros((8, 3)), "rewards": zeros, "dones": zeros}
    assert np.isfinite(list(agent.update(batch).values())).all()
    with pytest.raises(ConfigError, match=r"actions_executed has shape \(8, 2\), and obs \(8, 100\): give transitions"):
        agent.update({**batch, "actions": np.zeros((8, 2))})
    with pytest.raises(ConfigError, match=r"rewards has shape \(7,\)"):
        agent.update({**batch, "rewards": zeros[:7]})
    with pytest.raises(ConfigError, match=r"camera are float64.*whole numbers from 0 to 255"):
        agent.update({**batch, "next_obs": {**obs, "camera": seen["camera"] / 255}})
    with pytest.raises(ConfigError, match=r"it is a row of float32.*has bytes, 100 of them"):
        agent.update({**batch, "next_obs": np.zeros((8, 100), np.float32)})
