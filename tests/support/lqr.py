"""A linear-quadratic regulator: a control problem whose best cost is known in closed form.

States x (4) start from a standard normal and follow x' = A x + B u; each step costs x'Qx + u'Ru; an episode is cut
by a time limit after 50 steps. The Riccati recursion gives the least cost from any state. Nothing is random but the
start, so a policy's excess cost is exact, and no policy can have less than none.
"""

from typing import Any

import gymnasium as gym
import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]

A: Array = np.array(
    [
        [0.99, 0.10, 0.00, -0.05],
        [-0.08, 0.95, 0.12, 0.00],
        [0.00, -0.10, 0.97, 0.10],
        [0.06, 0.00, -0.07, 0.92],
    ]
)
B: Array = np.array([[0.20, 0.00], [0.00, 0.15], [-0.10, 0.20], [0.05, 0.10]])
Q: Array = np.diag([1.0, 0.5, 1.0, 0.5])
R: Array = np.diag([0.2, 0.1])
HORIZON = 50
LARGEST_CONTROL = 10.0
EPISODES = 100


def riccati() -> tuple[Array, list[Array]]:
    """The matrix P of an episode's least cost x'Px, and the gains K of its controls u = -K x, step by step."""
    cost, gains = np.zeros_like(A), []
    for _ in range(HORIZON):
        gain = np.linalg.solve(R + B.T @ cost @ B, B.T @ cost @ A)
        cost = Q + A.T @ cost @ (A - B @ gain)
        gains.append(gain)
    return cost, gains[::-1]


class LQR(gym.Env[Array, Array]):
    """Rewards are minus the cost; the controls' bounds are wide enough for the best controller."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (A.shape[0],), np.float64)
    action_space = gym.spaces.Box(-LARGEST_CONTROL, LARGEST_CONTROL, (B.shape[1],), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """A start from the standard normal distribution."""
        super().reset(seed=seed)
        self.steps = 0
        self.state = self.np_random.standard_normal(A.shape[0])
        return self.state.copy(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """One step; the episode never terminates, it is only cut."""
        cost = self.state @ Q @ self.state + action @ R @ action
        self.state = A @ self.state + B @ action
        self.steps += 1
        return self.state.copy(), -float(cost), False, self.steps >= HORIZON, {}


def least_costs(seeds: list[int]) -> Array:
    """The least cost of an episode from each seed's start."""
    best, _ = riccati()
    env = LQR()
    starts = [env.reset(seed=seed)[0] for seed in seeds]
    return np.array([start @ best @ start for start in starts])


def lqr_gap(trainer: Any, episodes: int = EPISODES) -> float:
    """How much more a trainer's deterministic policy costs than the best controller, as a share of the least cost.

    `trainer` is one made for `LQR`; its own evaluator runs the episodes.
    """
    evaluator = trainer.make_evaluator(episodes)
    try:
        cost = -evaluator(trainer.greedy).mean
        least = least_costs(evaluator.seeds).mean()
    finally:
        evaluator.close()
    return float(cost / least - 1)
