"""An environment as a class: trained, evaluated, and used."""

import gymnasium as gym
import numpy as np

import minerva


class Reach(gym.Env):
    """Move a point to the origin; an episode ends when it is there."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gym.spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        """Put the point somewhere in the square."""
        super().reset(seed=seed)
        self.position, self.steps = self.np_random.uniform(-1, 1, 2), 0
        return self.position.astype(np.float32), {}

    def step(self, action):
        """Move the point a tenth of the action."""
        self.position, self.steps = self.position + 0.1 * action, self.steps + 1
        distance = float(np.linalg.norm(self.position))
        terminated = distance < 0.05  # the task is over: nothing is to be gained after this
        truncated = self.steps >= 50  # the time is: what would follow still counts
        return self.position.astype(np.float32), -distance, terminated, truncated, {"is_success": terminated}


if __name__ == "__main__":
    settings = {"eval_episodes": 5, "eval_every": 2_048, "compile": "off"}
    result = minerva.train("ppo", Reach, total_steps=6_144, num_envs=8, settings=settings)
    print(f"return: {result.before:.2f} before, {result.after:.2f} after, {result.random:.2f} of a random policy")
    print(f"mean of 20 episodes: {minerva.evaluate(result.folder, env=Reach, episodes=20).mean:.2f}")
