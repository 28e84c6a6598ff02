"""Real simulators with short episodes, so that a whole run of a test takes a second."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium as gym

STEPS = 40
PROCESS = os.getpid()


def hopper() -> gym.Env[Any, Any]:
    """Return Hopper whose episodes end by falling or after 40 steps."""
    return gym.make("Hopper-v5", max_episode_steps=STEPS)


def cheetah() -> gym.Env[Any, Any]:
    """Return HalfCheetah whose episodes end after 40 steps."""
    return gym.make("HalfCheetah-v5", max_episode_steps=STEPS)


def reacher() -> gym.Env[Any, Any]:
    """A dm_control task that writes its target into the model."""
    import shimmy  # noqa: F401  registers it

    return gym.make("dm_control/reacher-easy-v0", task_kwargs={"random": 0, "time_limit": STEPS * 0.02})


gym.register("ShortHopper-v0", entry_point=hopper)
gym.register("ShortCheetah-v0", entry_point=cheetah)
gym.register("ShortReacher-v0", entry_point=reacher)


class Faulty(gym.Wrapper[Any, Any, Any, Any]):
    """Wrapper that raises, dies or hangs in step 30, as FAULT says: once if FAULT_MARK names a file, else always."""

    taken = 0

    def step(self, action: Any) -> Any:
        self.taken += 1
        mark, at = os.environ.get("FAULT_MARK"), int(os.environ.get("FAULT_AT", "30"))
        if self.taken == at and self._may_fail() and not (mark and Path(mark).exists()):
            if mark:
                Path(mark).touch()
            self._fail(os.environ["FAULT"])
        return super().step(action)

    def _may_fail(self) -> bool:
        """A copy of the process, which only rehearses what a snapshot holds, never fails."""
        return "FAULT" in os.environ and os.getpid() == PROCESS

    def _fail(self, how: str) -> None:
        if how == "raises":
            raise ValueError("a cable came loose", 7)
        if how == "exits":
            os._exit(1)
        if how == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "hangs":
            time.sleep(1000)


gym.register("FaultyHopper-v0", entry_point=lambda: Faulty(hopper()))
