"""What comparisons with Stable-Baselines3 share: the shapes of a task, and observations in double precision."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from torch import Tensor

sb3 = pytest.importorskip("stable_baselines3")
from stable_baselines3.common.torch_layers import FlattenExtractor  # noqa: E402

OBS, ACT = 4, 2


class Spaces(gym.Env[np.ndarray, np.ndarray]):
    """Never stepped: it tells Stable-Baselines3 the shapes."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (OBS,), np.float64)
    action_space: gym.Space[Any] = gym.spaces.Box(-1, 1, (ACT,), np.float32)

    def __init__(self, action_space: gym.Space[Any] | None = None) -> None:
        self.action_space = action_space or type(self).action_space


class DoubleExtractor(FlattenExtractor):
    """Stable-Baselines3 casts observations to float32; back to double for a comparison to the last digits."""

    def forward(self, observations: Tensor) -> Tensor:
        return super().forward(observations).double()
