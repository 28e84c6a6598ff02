"""Atari and MinAtar by id: what is observed, when a step and an episode end, and what is said where a package is."""

import re
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch

from minerva.envs.engines.registry import make_engine
from minerva.envs.ids import Task, factory, full_id
from minerva.envs.spaces import prepared
from minerva.errors import EnvError, pip_install


@pytest.mark.filterwarnings("error:.*can be passed a `seed`:DeprecationWarning")
def test_a_step_of_atari_is_four_frames_of_the_raw_game_and_the_larger_of_the_last_two_is_seen() -> None:
    import cv2

    game = Task("Atari/Breakout-v5", {"sticky": 0.0})
    env = factory(game)()
    raw = gym.make("ALE/Breakout-v5", frameskip=1, repeat_action_probability=0.0, obs_type="grayscale")
    (shown, info), _ = env.reset(seed=3), raw.reset(seed=3)
    idle = info["episode_frame_number"]
    assert shown.shape == (4, 84, 84)
    assert shown.dtype == np.uint8
    for _ in range(idle):
        raw.step(0)
    for action in (1, 2, 2, 3, 3):
        shown, reward, *_, info = env.step(action)
        steps = [raw.step(action) for _ in range(4)]
        screen = cv2.resize(np.maximum(steps[2][0], steps[3][0]), (84, 84), interpolation=cv2.INTER_AREA)
        np.testing.assert_array_equal(shown[3], screen)
        assert reward == sum(step[1] for step in steps)
    assert info["episode_frame_number"] == idle + 20
    assert 0 < idle <= 30
    assert env.spec is not None
    assert env.spec.max_episode_steps == 27_000


def test_with_life_loss_an_episode_ends_at_the_first() -> None:
    lives = {}
    for life_loss in (False, True):
        env = factory(Task("Atari/Breakout-v5", {"life_loss": life_loss}))()
        env.reset(seed=0)
        env.action_space.seed(0)
        over = False
        while not over:
            *_, over, _, info = env.step(env.action_space.sample())
        lives[life_loss] = info["lives"]
    assert lives == {False: 0, True: 4}


def test_an_atari_engine_steps_images_and_says_that_the_emulator_is_not_saved() -> None:
    envs = make_engine(full_id("Atari/Pong"), 1, "gymnasium")
    envs.reset([0])
    assert envs.observation.images == ((255, 4, 84, 84),)
    assert envs.step(torch.zeros(1, 1, dtype=torch.int64)).next_obs.shape == (1, 4 * 84 * 84)
    assert envs.time_limited
    assert "ALEInterface" in envs.state_dict()["unavailable_reason"]
    envs.close()


def test_minatar_is_observed_as_flags_and_restored_in_mid_episode() -> None:
    envs = make_engine("MinAtar/SpaceInvaders-v1", 2)
    envs.reset([4, 5])
    assert envs.observation.images == ((1, 10, 10, 6),)
    direct = prepared(factory("MinAtar/SpaceInvaders-v1")(), "").unwrapped
    shown, _ = direct.reset(seed=5)
    np.testing.assert_array_equal(envs.obs[1].view(10, 10, 6), shown)
    actions = torch.ones(2, 1, dtype=torch.int64)
    envs.step(actions)
    saved = envs.state_dict()
    assert saved["unavailable_reason"] == ""
    first = [envs.step(actions).next_obs.clone() for _ in range(20)]
    assert envs.load_state_dict(saved) == ""
    for before in first:
        assert torch.equal(envs.step(actions).next_obs, before)


@pytest.mark.parametrize(
    ("env", "package", "extra"),
    [
        ("Atari/Pong-v5", "ale_py", "atari"),
        ("ALE/Pong-v5", "cv2", "atari"),
        ("MinAtar/Breakout-v1", "minatar.gym", "minatar"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    env: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(gym.envs.registration, "registry", {})
    monkeypatch.setattr(gym, "registry", {})
    with pytest.raises(EnvError, match=rf"{env} needs \w+, which is not installed: {re.escape(pip_install(extra))}"):
        factory(env)


def test_lunar_lander_falls_alike_with_choices_and_with_forces_while_no_engine_is_on() -> None:
    chosen, forced = (make_engine(env, 2, "gymnasium") for env in ("LunarLander-v3", "LunarLanderContinuous-v3"))
    assert torch.equal(chosen.reset([3, 4]), forced.reset([3, 4]))
    for _ in range(40):
        one, other = chosen.step(torch.zeros(2, 1)), forced.step(torch.zeros(2, 2))
        assert torch.equal(one.next_obs, other.next_obs)
        assert torch.equal(one.rewards, other.rewards)


@pytest.mark.parametrize("package", ["Box2D", "pygame"])
def test_a_missing_box2d_is_named_with_its_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    says = f"LunarLander-v3 needs Box2D, which is not installed: {pip_install('box2d')}"
    with pytest.raises(EnvError, match=re.escape(says)):
        factory("LunarLander-v3")()
