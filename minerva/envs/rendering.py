"""One environment that is drawn: stepped as in an evaluation, with a picture of every state."""

import contextlib
import os
from typing import Any

import gymnasium as gym
import numpy as np

from minerva.envs.engines.gymnasium import GymnasiumEngine
from minerva.envs.headless import select_gl_backend
from minerva.envs.ids import EnvLike, env_name, factory, is_dm_control
from minerva.errors import EnvError
from minerva.spec import Array

DRAWN_BY_MUJOCO = "gymnasium.envs.mujoco"
DRAWN_OTHERWISE = ("gymnasium.envs.classic_control", "gymnasium.envs.box2d")

COARSE_SHADOWS = 1024
"""Pixels of the map that shadows are read from."""

QUIET_PYGAME = {"PYGAME_HIDE_SUPPORT_PROMPT": "1", "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
"""It draws into memory here, and need not look for a screen or loudspeakers."""


class DrawnEnv:
    """An environment with a picture of its state. Actions are in [-1, 1], as everywhere inside Minerva."""

    def __init__(self, env: EnvLike, width: int, height: int) -> None:
        """`width` and `height` are for MuJoCo's pictures; others have the size that their environment gives them."""
        self.name = env_name(env)
        _prepare_mujoco(env)
        for name, value in QUIET_PYGAME.items():
            os.environ.setdefault(name, value)
        by_call = callable(env) and not isinstance(env, gym.Env)
        make = env if by_call else factory(env, render_mode="rgb_array")

        def make_to_draw() -> gym.Env[Any, Any]:
            return _made_to_draw(env, make, width, height)

        make_to_draw.__name__ = self.name  # what the engine's messages call it
        self._engine = GymnasiumEngine(make_to_draw, 1)
        self._env = self._engine.envs[0]
        self.observation, self.action = self._engine.observation, self._engine.action
        self.steps_per_second = _steps_per_second(self._env)
        self.longest: int | None = self._env.spec.max_episode_steps if self._env.spec else None
        """Steps after which an episode is cut, where that is known."""

    def reset(self, seed: int) -> Array:
        """Begin an episode; its first observation [1, O]."""
        return self._engine.reset_arrays(np.ones(1, np.bool_), [seed])

    def step(self, action: Array) -> tuple[Array, float, bool]:
        """(observation [1, O], reward, whether the episode is over) after an action [1, D]."""
        self._engine.send_arrays(self.action.to_environment(action))
        obs, rewards, terminated, truncated = self._engine.recv_arrays()
        return obs, float(rewards[0]), bool(terminated[0] or truncated[0])

    def picture(self) -> Array:
        """What the state looks like.  [height, width, 3], bytes"""
        try:
            drawn: Any = self._env.render()
        except gym.error.DependencyNotInstalled as error:
            missing = "pygame" if "pygame" in str(error) else str(error).splitlines()[0]
            raise EnvError(f"{self.name} is drawn with {missing}: pip install -e '.[video]'.") from None
        except Exception as error:  # whatever a renderer raises, of MuJoCo's or of the user's own
            reason = next(iter(str(error).strip().splitlines()), "")
            raise EnvError(f"{self.name} cannot be drawn ({type(error).__name__}: {reason}).") from error
        picture = np.asarray(drawn)
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
            raise EnvError(
                f"{self.name} draws {picture.dtype} pictures of shape {picture.shape}: its render must return bytes of "
                "shape (height, width, 3)."
            )
        return picture

    def close(self) -> None:
        """Free what the environment holds."""
        self._engine.close()


def _prepare_mujoco(env: EnvLike) -> None:
    """Choose how MuJoCo draws, if it may be what draws this environment; EnvError if it surely is and cannot."""
    spec = gym.registry.get(env) if isinstance(env, str) else None
    drawn_by = str(spec.entry_point) if spec else ""
    if is_dm_control(env) or drawn_by.startswith(DRAWN_BY_MUJOCO):
        select_gl_backend()
    elif not drawn_by.startswith(DRAWN_OTHERWISE):
        with contextlib.suppress(EnvError):  # it may be needed, and if it is not, nothing is missing
            select_gl_backend()


def _made_to_draw(env: EnvLike, make: Any, width: int, height: int) -> gym.Env[Any, Any]:
    try:
        made: gym.Env[Any, Any] = make()
    except (TypeError, ValueError, AssertionError):  # however an environment's constructor refuses the mode
        raise _draws_nothing(env) from None
    if made.render_mode != "rgb_array":
        raise _draws_nothing(env)
    base: Any = made.unwrapped
    if is_dm_control(env):
        camera = 0 if base.physics.model.ncam else -1  # the suite's own first camera follows the body
        base.render_kwargs = {"width": width, "height": height, "camera_id": camera}
        _make_room(base.physics.model, width, height)
    elif hasattr(base, "mujoco_renderer"):
        base.mujoco_renderer.width, base.mujoco_renderer.height = width, height
        _make_room(base.model, width, height)
    return made


def _draws_nothing(env: EnvLike) -> EnvError:
    return EnvError(
        f"{env_name(env)} has no render mode rgb_array: give it one (its constructor takes render_mode, and render "
        "returns the picture)."
    )


def _make_room(model: Any, width: int, height: int) -> None:
    """Room for pictures of this size; and shadows that a processor draws in half the time and nobody tells apart."""
    room, quality = model.vis.global_, model.vis.quality
    room.offwidth, room.offheight = max(room.offwidth, width), max(room.offheight, height)
    if os.environ.get("MUJOCO_GL") == "osmesa":
        quality.shadowsize = min(quality.shadowsize, COARSE_SHADOWS)


def _steps_per_second(env: gym.Env[Any, Any]) -> float:
    """Steps in a second of the environment's own time."""
    base: Any = env.unwrapped
    if hasattr(base, "control_timestep"):  # dm_control's; Shimmy's render_fps is not what its name says
        return 1 / float(base.control_timestep())
    return float(env.metadata.get("render_fps") or 30)
