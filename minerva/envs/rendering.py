"""Render one environment: stepped as in an evaluation, with a frame of every state."""

import contextlib
import importlib.util
import os
from typing import Any

import gymnasium as gym
import numpy as np

from minerva.envs.engines.gymnasium import GymnasiumEngine
from minerva.envs.headless import select_gl_backend
from minerva.envs.ids import EnvLike, Task, env_name, factory, is_dm_control
from minerva.errors import EnvError, pip_install
from minerva.layout import Array

DRAWN_BY_MUJOCO = "gymnasium.envs.mujoco"
DRAWN_OTHERWISE = ("gymnasium.envs.classic_control", "gymnasium.envs.box2d")

NOT_MADE = (TypeError, ValueError, AssertionError)
"""What a constructor raises that refuses an argument; an EnvError is a ValueError."""

COARSE_SHADOWS = 1024
"""Side of the shadow map in pixels."""

QUIET_PYGAME = {"PYGAME_HIDE_SUPPORT_PROMPT": "1", "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
"""Environment variables for pygame, which renders into memory here and needs no display or audio."""


class DrawnEnv:
    """An environment that renders its state. Actions are in [-1, 1], as everywhere inside Minerva."""

    def __init__(self, env: EnvLike, width: int, height: int) -> None:
        """Make the environment; `width` and `height` apply to MuJoCo, other environments choose their frame size."""
        self.name = env_name(env)
        _prepare_mujoco(env)
        for name, value in QUIET_PYGAME.items():
            os.environ.setdefault(name, value)
        by_call = callable(env) and not isinstance(env, gym.Env)
        make = env if by_call else factory(env, render_mode="rgb_array")

        def make_rendered() -> gym.Env[Any, Any]:
            return _make_rendered(env, make, width, height)

        make_rendered.__name__ = self.name  # the name in the engine's messages
        self._engine = GymnasiumEngine(make_rendered, 1)
        self._env = self._engine.envs[0]
        self.observation, self.action = self._engine.observation, self._engine.action
        self.steps_per_second = _steps_per_second(self._env)
        self.longest: int | None = self._env.spec.max_episode_steps if self._env.spec else None
        """Steps after which an episode is truncated, if known."""

    def reset(self, seed: int) -> Array:
        """Start an episode and return its first observation [1, O]."""
        return self._engine.reset_arrays(np.ones(1, np.bool_), [seed])

    def step(self, action: Array) -> tuple[Array, float, bool]:
        """Step with an action [1, D] and return (observation [1, O], reward, ended)."""
        self._engine.send_arrays(self.action.to_environment(action))
        obs, rewards, terminated, truncated = self._engine.recv_arrays()
        return obs, float(rewards[0]), bool(terminated[0] or truncated[0])

    def picture(self) -> Array:
        """Return a frame of the current state.  [height, width, 3], uint8"""
        try:
            drawn: Any = self._env.render()
        except gym.error.DependencyNotInstalled as error:
            missing = "pygame" if "pygame" in str(error) else str(error).splitlines()[0]
            raise EnvError(f"{self.name} is drawn with {missing}: {pip_install('video')}.") from None
        except Exception as error:  # whatever MuJoCo's or the user's renderer raises
            raise EnvError(f"{self.name} cannot be drawn ({_named(error)}).") from error
        picture = np.asarray(drawn)
        if picture.dtype.kind == "f" and picture.size and picture.min() >= 0 and picture.max() <= 1:  # as MinAtar's are
            picture = (255 * picture).astype(np.uint8)
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
            raise EnvError(
                f"{self.name} draws {picture.dtype} pictures of shape {picture.shape}: its render must return bytes of "
                "shape (height, width, 3)."
            )
        return picture

    def close(self) -> None:
        """Release the environment's resources."""
        self._engine.close()


def drawable(env: EnvLike) -> bool:
    """Return whether a video of the environment can be recorded, as far as is known without drawing it."""
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        return False
    try:
        made = factory(env)()
    except Exception:  # whatever an environment raises: this is asked for a hint alone
        return False
    made.close()
    drawn_by = str(made.spec.entry_point) if made.spec else ""
    by_pygame = drawn_by.startswith(DRAWN_OTHERWISE)
    modes = made.metadata.get("render_modes") or ()
    return "rgb_array" in modes and not (by_pygame and importlib.util.find_spec("pygame") is None)


def _prepare_mujoco(env: EnvLike) -> None:
    """Select MuJoCo's GL backend if MuJoCo may render this environment; raise EnvError if it must and cannot."""
    spec = gym.registry.get(env_name(env)) if isinstance(env, (str, Task)) else None
    drawn_by = str(spec.entry_point) if spec else ""
    if is_dm_control(env) or drawn_by.startswith(DRAWN_BY_MUJOCO):
        select_gl_backend()
    elif not drawn_by.startswith(DRAWN_OTHERWISE):
        with contextlib.suppress(EnvError):  # perhaps MuJoCo does not render it, and no backend is needed
            select_gl_backend()


def _make_rendered(env: EnvLike, make: Any, width: int, height: int) -> gym.Env[Any, Any]:
    try:
        made: gym.Env[Any, Any] = make()
    except NOT_MADE as error:
        raise _not_made(env, error) from None
    if made.render_mode != "rgb_array":
        raise _no_render_mode(env)
    base: Any = made.unwrapped
    if is_dm_control(env):
        camera = 0 if base.physics.model.ncam else -1  # the suite's own first camera follows the body
        base.render_kwargs = {"width": width, "height": height, "camera_id": camera}
        _size_buffers(base.physics.model, width, height)
    elif hasattr(base, "mujoco_renderer"):
        base.mujoco_renderer.width, base.mujoco_renderer.height = width, height
        _size_buffers(base.model, width, height)
    return made


def _not_made(env: EnvLike, error: Exception) -> EnvError:
    """Return the error of an environment that refuses the render mode, or else of one that cannot be made at all."""
    if isinstance(env, (str, Task)):
        try:
            factory(env)().close()
        except NOT_MADE as same_without:
            error = same_without
        else:
            return _no_render_mode(env, f" ({_named(error)})")
    return error if isinstance(error, EnvError) else EnvError(f"{env_name(env)} could not be made ({_named(error)}).")


def _no_render_mode(env: EnvLike, reason: str = "") -> EnvError:
    return EnvError(
        f"{env_name(env)} has no render mode rgb_array{reason}: give it one (its constructor takes render_mode, and "
        "render returns the picture)."
    )


def _named(error: Exception) -> str:
    """Return an error's type and the first line of its message."""
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])


def _size_buffers(model: Any, width: int, height: int) -> None:
    """Enlarge the offscreen buffer to this size; on a CPU use coarser shadows, at half the time and no visible loss."""
    room, quality = model.vis.global_, model.vis.quality
    room.offwidth, room.offheight = max(room.offwidth, width), max(room.offheight, height)
    if os.environ.get("MUJOCO_GL") == "osmesa":
        quality.shadowsize = min(quality.shadowsize, COARSE_SHADOWS)


def _steps_per_second(env: gym.Env[Any, Any]) -> float:
    """Return the environment steps per second of simulated time."""
    base: Any = env.unwrapped
    if hasattr(base, "control_timestep"):  # dm_control's; Shimmy's render_fps is not what its name says
        return 1 / float(base.control_timestep())
    return float(env.metadata.get("render_fps") or 30)
