"""Images that stack the newest frames of an episode, so that one observation shows what moves.

Their space is a `FrameBox`, which says how many frames an image has. By this alone a replay knows that it may store
each frame once; of stacks in any other space it stores all frames of all observations.
"""

from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from minerva.errors import EnvError
from minerva.layout import Array


class FrameBox(spaces.Box):
    """Images of the newest `frames` of an episode along the first axis, the oldest first.

    Before there were so many, the episode's first frame is repeated.
    """

    def __init__(self, shape: tuple[int, ...], frames: int) -> None:
        super().__init__(0, 255, shape, np.uint8)
        self.frames = frames


class StackedFrames(gym.Wrapper[Any, Any, Any, Any]):
    """Gives the newest `frames` images of an episode as one, with channels first.  [frames * channels, H, W]"""

    def __init__(self, env: gym.Env[Any, Any], frames: int) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3):
            raise EnvError(f"Frames are stacked of images, bytes of [height, width] or with channels, not of {space}.")
        self.images: deque[Array] = deque(maxlen=frames)
        channels, *sides = self._channels_first(np.zeros(space.shape, np.uint8)).shape
        self.observation_space = FrameBox((frames * channels, *sides), frames)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Return the first image, repeated."""
        image, info = self.env.reset(seed=seed, options=options)
        self.images.extend([self._channels_first(image)] * (self.images.maxlen or 1))
        return np.concatenate(self.images), info

    def step(self, action: Any) -> tuple[Array, Any, bool, bool, dict[str, Any]]:
        """Return the step with the newest images."""
        image, reward, terminated, truncated, info = self.env.step(action)
        self.images.append(self._channels_first(image))
        return np.concatenate(self.images), reward, terminated, truncated, info

    @staticmethod
    def _channels_first(image: Any) -> Array:
        """Return an image as [channels, height, width]; channels are the shorter of the first and the last axis."""
        pixels = np.asarray(image)
        if pixels.ndim == 2:
            return pixels[None]
        return pixels if pixels.shape[0] < pixels.shape[2] else np.moveaxis(pixels, 2, 0)
