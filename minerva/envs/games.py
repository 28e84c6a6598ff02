"""Atari and MinAtar by id, registered with gymnasium when one of their ids is asked for.

`Atari/Pong-v5` is the game in the form that is usually learned from; `ALE/Pong-v5`, of ale-py, is the raw game. One
step of `Atari/` is `frame_skip` frames of the game, of which the last two are merged by the larger pixel. The
observation is the newest four of these screens, in grey and 84 x 84, as bytes [4, 84, 84]. With probability `sticky` a
frame repeats the action of the one before (Machado et al. 2018); without, an episode begins with up to 30 idle frames,
as the games are deterministic. An episode ends with the game, with `life_loss` at the first life that is lost, and
after 27,000 steps, 108,000 frames. Rewards are the game's score, or with `clip_rewards` its sign.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, TransformReward

from minerva.envs.frames import StackedFrames
from minerva.errors import EnvError, pip_install

ATARI, RAW_ATARI, MINATAR = "Atari/", "ALE/", "MinAtar/"
STACKED = 4
"""Screens in an observation."""
IDLE_FRAMES = 30
"""Most idle frames at the start of an episode without sticky actions."""
LONGEST = 108_000
"""Frames after which an episode is cut: half an hour of the game."""
TRAINING_ONLY = ("life_loss", "clip_rewards")
"""Arguments that help training and say nothing about a policy: evaluations play whole games for their score."""


def register_games(env_id: str) -> None:
    """Register the games that the id may be one of; raise EnvError if their package is missing."""
    if env_id.startswith((ATARI, RAW_ATARI)):
        _register_atari(env_id)
    elif env_id.startswith(MINATAR) and not any(name.startswith(MINATAR) for name in gym.registry):
        try:
            from minatar.gym import register_envs
        except ImportError:
            raise EnvError(f"{env_id} needs minatar, which is not installed: {pip_install('minatar')}.") from None
        register_envs()


def _register_atari(env_id: str) -> None:
    try:
        import ale_py
        import cv2  # noqa: F401  AtariPreprocessing scales screens with it
    except ImportError as error:
        raise EnvError(f"{env_id} needs {error.name}, which is not installed: {pip_install('atari')}.") from None
    gym.register_envs(ale_py)
    for name in [name for name in gym.registry if name.startswith(RAW_ATARI)]:
        game = name.removeprefix(RAW_ATARI)
        if f"{ATARI}{game}" not in gym.registry:
            make, limit = "minerva.envs.games:make_atari", LONGEST // 4
            rom = {"game": gym.registry[name].kwargs["game"]}
            gym.register(f"{ATARI}{game}", make, max_episode_steps=limit, kwargs=rom)


def make_atari(
    game: str,
    sticky: float = 0.25,
    frame_skip: int = 4,
    life_loss: bool = False,
    clip_rewards: bool = False,
    **options: Any,
) -> gym.Env[Any, Any]:
    """Return a game of Atari as this file's docstring says; `options` are those of ale-py."""
    from ale_py.env import AtariEnv

    raw = AtariEnv(game, frameskip=1, repeat_action_probability=sticky, max_num_frames_per_episode=LONGEST, **options)
    idle = 0 if sticky else IDLE_FRAMES
    screens = AtariPreprocessing(raw, noop_max=idle, frame_skip=frame_skip, terminal_on_life_loss=life_loss)
    stacked = StackedFrames(screens, STACKED)
    return TransformReward(stacked, lambda reward: float(np.sign(float(reward)))) if clip_rewards else stacked
