"""Base of the dm_control suite's tasks as functions of tensors: their starts, entries and the shape of rewards.

Episodes start from states that dm_control has drawn: it rejects states with contacts, or simulates until a body has
come to rest, which a GPU cannot do for single worlds. Each start is one of `STARTS` such states.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from minerva.envs.ids import factory
from minerva.envs.spaces import prepared, specs
from minerva.envs.warp.task import Judgement, Refresh, Task

STARTS = 512
"""States from which episodes start."""

INF = math.inf


class SuiteTask(Task):
    """A task of the suite. `entries` are the observation's, in dm_control's names; a reward lies in [0, 1]."""

    start_numbers = 1
    up_to_date = True
    refresh: Refresh = "kinematics"
    domain: ClassVar[str]

    def __init__(self, env_id: str, device: torch.device) -> None:
        from dm_control import suite

        env = prepared(factory(env_id)(), env_id)
        self.observation, self.action = specs(env)
        env.close()
        _, domain, task = env_id.split("/")
        source = suite.load(domain, task, task_kwargs={"random": 0})
        drawn = self._drawn(source)  # before the model is read: a reset writes its constants into it
        self.starts = {name: values.to(device) for name, values in drawn.items() if values[0].numel()}
        self.model: Any = source.physics.model.ptr
        self.frame_skip = int(source._n_sub_steps)
        self.time_limit = math.ceil(source._step_limit)

    def _drawn(self, source: Any) -> dict[str, Tensor]:
        """Return the starts of `STARTS` of dm_control's episodes, by array.  [STARTS, ...] each"""
        names, rows = ["qpos", "qvel", "act"], []
        for _ in range(STARTS):
            source.reset()
            data = {name: getattr(source.physics.data, name) for name in names}
            model = {name: getattr(source.physics.model, name) for name in self.varied}
            rows.append({name: np.array(values, np.float32) for name, values in (data | model).items()})
        return {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}

    def start(self, uniform: Tensor) -> dict[str, Tensor]:
        """Return one of dm_control's starts for each world."""
        chosen = (uniform[:, 0] * STARTS).long().clamp_max(STARTS - 1)
        return {name: values[chosen] for name, values in self.starts.items()}

    def observe(self, data: Any) -> Tensor:
        """Return the entries side by side, in the order of their names."""
        entries = self.entries(data)
        return torch.cat([entries[name].reshape(len(data.qpos), -1) for name in sorted(entries)], 1)

    def entries(self, data: Any) -> dict[str, Tensor]:
        """Return the observation's entries: by default all positions and velocities."""
        return {"position": data.qpos, "velocity": data.qvel}

    def judge(self, before: dict[str, Tensor], data: Any, actions: Tensor) -> Judgement:
        """Return the task's reward; no task of the suite that is here ends before its time."""
        reward = self.reward(data, actions)
        return reward, torch.zeros_like(reward, dtype=torch.bool)

    @abstractmethod
    def reward(self, data: Any, actions: Tensor) -> Tensor:
        """Return the reward of each world.  -> [E]"""

    # --- the model's names ----------------------------------------------------------------------------------

    def bodies(self, *names: str) -> list[int]:
        """Return the numbers of bodies."""
        return [int(self.model.body(name).id) for name in names]

    def sensors(self, data: Any, *names: str) -> Tensor:
        """Return what sensors read, side by side.  -> [E, n]"""
        return torch.cat([data.sensordata[:, self._slice(name)] for name in names], 1)

    def _slice(self, name: str) -> slice:
        sensor = self.model.sensor(name)
        return slice(int(sensor.adr[0]), int(sensor.adr[0] + sensor.dim[0]))


def tolerance(
    x: Tensor, bounds: tuple[float, float] = (0.0, 0.0), margin: float = 0.0, kind: str = "gaussian", at: float = 0.1
) -> Tensor:
    """Return 1 within the bounds and less outside, `at` in a distance of `margin` from them; 0 without a margin."""
    lower, upper = bounds
    inside = (x >= lower) & (x <= upper)
    if margin == 0:
        return inside.float()
    distance = torch.where(x < lower, lower - x, x - upper) / margin
    return torch.where(inside, 1.0, SIGMOIDS[kind](distance, at))


SIGMOIDS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "gaussian": lambda d, at: torch.exp(math.log(at) * d.square()),
    "linear": lambda d, at: (1 - (1 - at) * d).clamp_min(0),
    "quadratic": lambda d, at: (1 - (1 - at) * d.square()).clamp_min(0),
}


def small(actions: Tensor) -> Tensor:
    """Return the reward for small actions, of each of them."""
    return tolerance(actions, margin=1, kind="quadratic", at=0)
