"""Tasks of dm_control seen through a camera: `dm_control/cheetah/run/pixels`.

One step holds the action for `action_repeat` control steps and adds up their rewards, so that an episode of 1,000
control steps has 500. The observation is the newest three pictures of an episode in colour, 84 x 84, as bytes
[9, 84, 84]; nothing else of the simulation is observed.
"""

import os
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from minerva.envs.frames import StackedFrames
from minerva.envs.headless import select_gl_backend
from minerva.errors import EnvError
from minerva.layout import Array

PIXELS = "/pixels"
"""End of an id."""
STACKED = 3
"""Pictures in an observation."""
CAMERAS = {"quadruped": 2}
"""The camera that follows the body, where it is not the first."""


def prepare_drawing() -> None:
    """Let dm_control draw, without a display, in the thread that steps it; to be called before it is imported.

    In a thread of its own, as is its default, OSMesa waits forever once another picture's environment was closed.
    """
    select_gl_backend()
    os.environ.setdefault("DISABLE_RENDER_THREAD_OFFLOADING", "1")


def register_pixels(gymnasium_id: str) -> str:
    """Register a task that is seen through a camera with gymnasium, by the task's own id, and return its id."""
    seen = f"{gymnasium_id.removesuffix('-v0')}-pixels-v0"
    if seen not in gym.registry:
        gym.register(seen, "minerva.envs.pixels:make_pixels", kwargs={"task": gymnasium_id})
    return seen


def make_pixels(
    task: str, action_repeat: int = 2, frames: int = STACKED, size: int = 84, camera: int | None = None, **options: Any
) -> gym.Env[Any, Any]:
    """Return a task of dm_control as this file's docstring says; `options` are those of the task."""
    made = gym.make(task, disable_env_checker=True, **options)
    domain = task.rpartition("/")[2].partition("-")[0]
    return StackedFrames(
        Pictures(made, size, CAMERAS.get(domain, 0) if camera is None else camera, action_repeat), frames
    )


class Pictures(gym.Wrapper[Any, Any, Any, Any]):
    """Shows a picture in place of the observation, after each action was repeated."""

    drawn = True
    """Whether anything is drawn. In a forked process, where OpenGL would wait forever, a picture holds the bytes of the
    state that it would show."""

    def __init__(self, env: gym.Env[Any, Any], size: int, camera: int, action_repeat: int) -> None:
        super().__init__(env)
        self.size, self.camera, self.action_repeat = size, camera, action_repeat
        self.observation_space = spaces.Box(0, 255, (size, size, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Return the picture of the first state."""
        _, info = self.env.reset(seed=seed, options=options)
        return self._picture(), info

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Repeat the action, not beyond the episode's end; return the sum of the rewards."""
        total = 0.0
        for _ in range(self.action_repeat):
            _, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return self._picture(), total, terminated, truncated, info

    def _picture(self) -> Array:
        physics: Any = self.unwrapped.physics  # type: ignore[attr-defined]
        if not self.drawn:
            return np.resize(physics.get_state().view(np.uint8), (self.size, self.size, 3))
        try:
            drawn: Array = physics.render(self.size, self.size, camera_id=self.camera)
        except RuntimeError as error:
            raise EnvError(
                f"MuJoCo cannot draw the task ({error}): set MUJOCO_GL to egl or osmesa before MuJoCo is imported."
            ) from None
        return drawn
