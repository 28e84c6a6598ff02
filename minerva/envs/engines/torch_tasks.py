"""The engine `torch`: small tasks written in PyTorch, simulated on the learner's device.

They show what a simulator on the GPU needs, and their solutions are known: gymnasium's Pendulum-v1, which gives equal
numbers from equal states, and a linear system with quadratic costs, whose optimal policy has a closed form.
"""

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from minerva.compute.tree import Tree
from minerva.config import nearest
from minerva.envs.engines.device import DeviceEngine
from minerva.envs.ids import EnvLike, Task, env_name
from minerva.errors import EnvError
from minerva.spec import ActionSpec, ObservationSpec


class TorchEngine(DeviceEngine):
    """An engine of one of the `TASKS`; each task is a subclass."""

    name = "torch"
    task_observation: ClassVar[ObservationSpec]
    task_action: ClassVar[ActionSpec]

    def __init__(self, env: str, num_envs: int, device: torch.device) -> None:
        super().__init__(env, num_envs, self.task_observation, self.task_action, device)

    def with_envs(self, num_envs: int) -> "TorchEngine":
        """Return an engine of the same task with another number of environments."""
        return type(self)(self.env_name, num_envs, self.device)

    @classmethod
    def make(cls, env: EnvLike, num_envs: int, share: int, device: torch.device) -> "TorchEngine":
        """Make `num_envs` copies of a task on the learner's device."""
        reason = cls.unavailable_reason(env)
        if reason is not None or not isinstance(env, str):
            raise EnvError(f"The engine torch cannot be used: {reason}")
        return TASKS[env](env, num_envs, device)

    @classmethod
    def unavailable_reason(cls, env: EnvLike) -> str | None:
        """Return None for a task written in PyTorch; for another, the nearest names."""
        if isinstance(env, str) and env in TASKS:
            return None
        if isinstance(env, Task):
            return f"its tasks take no arguments, and {env} has some. The engine gymnasium takes them."
        return f"{env_name(env)} is not among its tasks. {nearest(env_name(env), TASKS)}"

    @abstractmethod
    def start(self, uniform: Tensor) -> Tree:
        """Return simulations at an episode's start, from uniform numbers in [0, 1).  [E, start_numbers] -> [E, ...]"""


class Pendulum(TorchEngine):
    """gymnasium's Pendulum-v1: swing up a pole and hold it, with a torque too weak to lift it at once."""

    task_observation = ObservationSpec((3,))
    task_action = ActionSpec.continuous([-2.0], [2.0])
    start_numbers, time_limit = 2, 200
    max_speed, dt, gravity, mass, length = 8.0, 0.05, 10.0, 1.0, 1.0

    def start(self, uniform: Tensor) -> Tree:
        """Return an angle within ±pi and a speed within ±1, both uniform."""
        angle, speed = (2 * uniform.double() - 1).unbind(1)
        return {"angle": math.pi * angle, "speed": speed}

    def observe(self, simulation: Tree) -> Tensor:
        """Return the pole's end as cosine and sine, and its speed.  -> [E, 3]"""
        angle, speed = simulation["angle"], simulation["speed"]
        return torch.stack((torch.cos(angle), torch.sin(angle), speed), 1).float()

    def simulate(self, simulation: Tree, actions: Tensor) -> tuple[Tree, Tensor, Tensor]:
        """Return the pole one time step later; the cost is that of the state before it. It never terminates."""
        angle, speed, torque = simulation["angle"], simulation["speed"], actions[:, 0].double()
        upright = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
        cost = upright**2 + 0.1 * speed**2 + 0.001 * torque**2
        pull = 3 * self.gravity / (2 * self.length) * torch.sin(angle)
        push = 3.0 / (self.mass * self.length**2) * torque
        new_speed = torch.clamp(speed + (pull + push) * self.dt, -self.max_speed, self.max_speed)
        simulation = {"angle": angle + new_speed * self.dt, "speed": new_speed}
        return simulation, -cost.float(), torch.zeros_like(angle, dtype=torch.bool)


class LinearSystem(TorchEngine):
    """A point mass pushed along a line, with quadratic costs: x' = A x + B u, r = -(x Q x + u R u)."""

    task_observation = ObservationSpec((2,))
    task_action = ActionSpec.continuous([-4.0], [4.0])
    start_numbers, time_limit = 2, 50
    A = ((1.0, 0.1), (0.0, 1.0))
    B = ((0.0,), (0.1,))
    Q = ((1.0, 0.0), (0.0, 0.1))
    R = ((0.01,),)

    def __init__(self, env: str, num_envs: int, device: torch.device) -> None:
        matrices = (self.A, self.B, self.Q, self.R)
        self._a, self._b, self._q, self._r = (torch.tensor(m, dtype=torch.float64, device=device) for m in matrices)
        super().__init__(env, num_envs, device)

    def start(self, uniform: Tensor) -> Tree:
        """Return a position and a speed within ±0.3, small enough that optimal actions stay within bounds."""
        return {"x": 0.3 * (2 * uniform.double() - 1)}

    def observe(self, simulation: Tree) -> Tensor:
        """Return position and speed.  -> [E, 2]"""
        return simulation["x"].float()

    def simulate(self, simulation: Tree, actions: Tensor) -> tuple[Tree, Tensor, Tensor]:
        """Return the mass one time step later; the cost is that of the state before it. It never terminates."""
        x, u = simulation["x"], actions.double()
        cost = (x @ self._q * x).sum(1) + (u @ self._r * u).sum(1)
        return {"x": x @ self._a.T + u @ self._b.T}, -cost.float(), torch.zeros_like(x[:, 0], dtype=torch.bool)


TASKS: dict[str, type[TorchEngine]] = {"Pendulum-v1": Pendulum, "LinearSystem-v0": LinearSystem}
