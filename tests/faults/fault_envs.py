"""Real simulators with short episodes, so that a whole run of a test takes a second."""

from typing import Any

import gymnasium as gym

STEPS = 40


def hopper() -> gym.Env[Any, Any]:
    """Ends by falling, or after 40 steps."""
    return gym.make("Hopper-v5", max_episode_steps=STEPS)


def cheetah() -> gym.Env[Any, Any]:
    """Ends after 40 steps."""
    return gym.make("HalfCheetah-v5", max_episode_steps=STEPS)


def reacher() -> gym.Env[Any, Any]:
    """A dm_control task that writes its target into the model."""
    import shimmy  # noqa: F401  registers it

    return gym.make("dm_control/reacher-easy-v0", task_kwargs={"random": 0, "time_limit": STEPS * 0.02})


gym.register("ShortHopper-v0", entry_point=hopper)
gym.register("ShortCheetah-v0", entry_point=cheetah)
gym.register("ShortReacher-v0", entry_point=reacher)
