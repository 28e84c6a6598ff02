"""A vector environment of your own: all its environments are one NumPy array, stepped in one call."""

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

import minerva


class Points(VectorEnv):
    """Points that are to be moved to the origin, 50 steps an episode."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  gymnasium reads it from the class

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
        self.single_action_space = gym.spaces.Box(-1, 1, (2,))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        """Begin all episodes."""
        super().reset(seed=seed[0] if isinstance(seed, (list, tuple)) else seed)
        self.positions = self.np_random.uniform(-1, 1, (self.num_envs, 2))
        self.steps, self.over = np.zeros(self.num_envs, int), np.zeros(self.num_envs, bool)
        return self.positions.astype(np.float32), {}

    def step(self, actions):
        """Move all points; those whose episode ended begin a new one instead (AutoresetMode.NEXT_STEP)."""
        moved = self.positions + 0.1 * actions
        begun = self.np_random.uniform(-1, 1, moved.shape)
        self.positions = np.where(self.over[:, None], begun, moved)
        self.steps = np.where(self.over, 0, self.steps + 1)
        rewards = np.where(self.over, 0.0, -np.linalg.norm(self.positions, axis=1))
        self.over = self.steps >= 50
        return self.positions.astype(np.float32), rewards, np.zeros(self.num_envs, bool), self.over.copy(), {}


class Point(gym.Env):
    """One of them, to evaluate on."""

    def __init__(self) -> None:
        self.points = Points(1)
        self.observation_space = self.points.single_observation_space
        self.action_space = self.points.single_action_space

    def reset(self, *, seed=None, options=None):
        """Begin an episode."""
        obs, info = self.points.reset(seed=seed)
        return obs[0], info

    def step(self, action):
        """Move the point."""
        obs, rewards, terminated, truncated, info = self.points.step(np.asarray(action)[None])
        return obs[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), info


if __name__ == "__main__":
    settings = {"eval_episodes": 5, "eval_every": 4_096, "compile": "off"}
    result = minerva.train("ppo", Points(32), eval_env=Point, total_steps=8_192, settings=settings)
    print(f"return: {result.before:.2f} before, {result.after:.2f} after")
