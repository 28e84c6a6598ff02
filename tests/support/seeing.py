"""An environment that is seen through a camera, numbers and choices at once; each tells a part of what pays."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

LENGTH = 8


class Seeing(gym.Env[Any, Any]):
    """A bright half of an image, the sign of a number and a choice say which of eight actions pays."""

    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (6, 4, 3), np.uint8),
            "gear": spaces.Discrete(2, start=5),
            "state": spaces.Tuple((spaces.Box(-np.inf, np.inf, (1, 2)), spaces.MultiBinary(3))),
        }
    )
    action_space = spaces.Discrete(8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self.wanted)
        self.steps += 1
        return self._shown(), reward, False, self.steps == LENGTH, {}

    def _shown(self) -> dict[str, Any]:
        bright, high, positive = self.np_random.integers(2, size=3)
        self.wanted = 4 * bright + 2 * high + positive
        camera = np.zeros((6, 4, 3), np.uint8)
        camera[:, 2 * bright : 2 * bright + 2] = 200
        numbers = np.array([[30.0 * (2 * positive - 1), self.np_random.normal()]], np.float32)
        flags = self.np_random.integers(2, size=3).astype(np.int8)
        return {"camera": camera, "gear": np.int64(5 + high), "state": (numbers, flags)}


class Steering(gym.ActionWrapper[Any, Any, Any]):
    """`Seeing` with three numbers as action, whose signs are the digits of the choice."""

    def __init__(self) -> None:
        super().__init__(Seeing())
        self.action_space = spaces.Box(-1.0, 1.0, (3,))

    def action(self, action: Any) -> int:
        """Return the choice."""
        return int((action > 0) @ [4, 2, 1])


class Watching(gym.Wrapper[Any, Any, Any, Any]):
    """The image of `Seeing` alone, of which the bright half says which of two actions pays."""

    def __init__(self) -> None:
        super().__init__(Seeing())
        self.observation_space = Seeing.observation_space["camera"]
        self.action_space = spaces.Discrete(2)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Return the image."""
        obs, info = self.env.reset(**options)
        self.wanted = self.unwrapped.wanted // 4  # type: ignore[attr-defined]
        return obs["camera"], info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Pay for the half that is bright."""
        reward = float(action == self.wanted)
        obs, _, over, cut, info = self.env.step(0)
        self.wanted = self.unwrapped.wanted // 4  # type: ignore[attr-defined]
        return obs["camera"], reward, over, cut, info
