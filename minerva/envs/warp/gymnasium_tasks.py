"""gymnasium's MuJoCo tasks of version 5 as functions of tensors; gymnasium's own environments are their definition.

Model, substeps, bounds and time limit are read from the environment that gymnasium makes, with its default arguments.
"""

from typing import Any

import torch
from torch import Tensor

from minerva.envs.ids import factory
from minerva.envs.spaces import prepared, specs
from minerva.envs.warp.task import Judgement, Task

SMALLEST = 1e-7
"""Uniform numbers of 0 are raised to it, half the spacing of float32's numbers below 1, before their logarithm."""


class GymnasiumTask(Task):
    """A task of gymnasium: starts are noise around the model's initial state, uniform or of a normal distribution."""

    position_noise: float
    velocity_noise: float
    normal_velocities: bool = False
    unseen: int = 0
    """Leading positions that are not observed."""

    def __init__(self, env_id: str, device: torch.device) -> None:
        env = prepared(factory(env_id)(), env_id)
        self.observation, self.action = specs(env)
        inner: Any = env.unwrapped
        self.model, self.frame_skip, self.dt = inner.model, inner.frame_skip, float(inner.dt)
        self.time_limit = int(env.spec.max_episode_steps)  # type: ignore[union-attr,arg-type]
        initial = inner.init_qpos, inner.init_qvel
        self._qpos, self._qvel = (torch.tensor(part, dtype=torch.float32, device=device) for part in initial)
        self.start_numbers = self.model.nq + (2 if self.normal_velocities else 1) * self.model.nv
        env.close()

    def body(self, name: str) -> int:
        """Return the number of the body of this name."""
        return int(self.model.body(name).id)

    def start(self, uniform: Tensor) -> dict[str, Tensor]:
        """Return the initial state with noise."""
        nq, nv = self.model.nq, self.model.nv
        noise = 2 * uniform - 1
        positions = self._qpos + self.position_noise * noise[:, :nq]
        if self.normal_velocities:
            speeds = _normal(uniform[:, nq : nq + nv], uniform[:, nq + nv :])
        else:
            speeds = noise[:, nq:]
        return {"qpos": positions, "qvel": self._qvel + self.velocity_noise * speeds}

    def observe(self, data: Any) -> Tensor:
        """Return positions and velocities, without the leading positions that are not observed."""
        return torch.cat((data.qpos[:, self.unseen :], data.qvel), 1)


def _normal(first: Tensor, second: Tensor) -> Tensor:
    """Return normally distributed numbers from two uniform ones each, by the transformation of Box and Muller."""
    radius = torch.sqrt(-2 * torch.log(first.clamp_min(SMALLEST)))
    return radius * torch.cos(2 * torch.pi * second)


def _never(values: Tensor) -> Tensor:
    return torch.zeros_like(values, dtype=torch.bool)


def _cost(actions: Tensor) -> Tensor:
    return actions.square().sum(1)


class _Runner(GymnasiumTask):
    """A task that rewards the speed of the root's x coordinate."""

    control_cost: float

    def remember(self, data: Any) -> dict[str, Tensor]:
        """Return the x coordinate."""
        return {"x": data.qpos[:, 0]}

    def forward(self, before: dict[str, Tensor], data: Any, actions: Tensor) -> Tensor:
        """Return the speed, less the cost of the actions."""
        return (data.qpos[:, 0] - before["x"]) / self.dt - self.control_cost * _cost(actions)


class HalfCheetah(_Runner):
    """HalfCheetah-v5."""

    position_noise = velocity_noise = 0.1
    normal_velocities, unseen, control_cost = True, 1, 0.1

    def judge(self, before: dict[str, Tensor], data: Any, actions: Tensor) -> Judgement:
        """Return the speed less the actions' cost; it never ends."""
        reward = self.forward(before, data, actions)
        return reward, _never(reward)


class Swimmer(HalfCheetah):
    """Swimmer-v5."""

    normal_velocities, unseen, control_cost = False, 2, 1e-4


class Hopper(_Runner):
    """Hopper-v5."""

    position_noise = velocity_noise = 5e-3
    unseen, control_cost = 1, 1e-3

    def observe(self, data: Any) -> Tensor:
        """Return positions but for x, and velocities within ±10."""
        return torch.cat((data.qpos[:, 1:], data.qvel.clamp(-10, 10)), 1)

    def healthy(self, data: Any) -> Tensor:
        """Return whether the height, the angle and all else of the state are within bounds."""
        rest = torch.cat((data.qpos[:, 2:], data.qvel), 1)
        z, angle = data.qpos[:, 1], data.qpos[:, 2]
        return (rest.abs() < 100).all(1) & (z > 0.7) & (angle.abs() < 0.2)

    def judge(self, before: dict[str, Tensor], data: Any, actions: Tensor) -> Judgement:
        """Return speed and 1 for being healthy, less the actions' cost; it ends when unhealthy."""
        healthy = self.healthy(data)
        return self.forward(before, data, actions) + healthy.float(), ~healthy


class Walker2d(Hopper):
    """Walker2d-v5."""

    def healthy(self, data: Any) -> Tensor:
        """Return whether height and angle are within bounds."""
        z, angle = data.qpos[:, 1], data.qpos[:, 2]
        return (z > 0.8) & (z < 2) & (angle.abs() < 1)


class Ant(GymnasiumTask):
    """Ant-v5."""

    position_noise = velocity_noise = 0.1
    normal_velocities, unseen = True, 2
    contact_forces, refresh = True, "kinematics"

    def observe(self, data: Any) -> Tensor:
        """Return positions but for x and y, velocities, and contact forces within ±1."""
        forces = data.cfrc_ext[:, 1:].clamp(-1, 1)
        return torch.cat((data.qpos[:, 2:], data.qvel, forces.flatten(1)), 1)

    def remember(self, data: Any) -> dict[str, Tensor]:
        """Return the torso's x coordinate, which lags the positions as gymnasium's does."""
        return {"x": data.xpos[:, 1, 0]}

    def judge(self, before: dict[str, Tensor], data: Any, actions: Tensor) -> Judgement:
        """Return speed and 1 for being healthy, less the costs of actions and contacts."""
        z = data.qpos[:, 2]
        healthy = (z >= 0.2) & (z <= 1.0)
        speed = (data.xpos[:, 1, 0] - before["x"]) / self.dt
        contacts = data.cfrc_ext.clamp(-1, 1).square().sum((1, 2))
        return speed + healthy.float() - 0.5 * _cost(actions) - 5e-4 * contacts, ~healthy


class HumanoidStandup(GymnasiumTask):
    """HumanoidStandup-v5."""

    position_noise = velocity_noise = 0.01
    contact_forces, refresh, unseen = True, "kinematics", 2
    contacts, constraints = 24, 96

    def observe(self, data: Any) -> Tensor:
        """Return positions but for x and y, velocities, inertias, body velocities, actuator and contact forces."""
        bodies = (data.cinert[:, 1:].flatten(1), data.cvel[:, 1:].flatten(1))
        forces = (data.qfrc_actuator[:, 6:], data.cfrc_ext[:, 1:].flatten(1))
        return torch.cat((data.qpos[:, 2:], data.qvel, *bodies, *forces), 1)

    def costs(self, data: Any, actions: Tensor) -> Tensor:
        """Return the costs of actions and of contacts."""
        contacts = (5e-7 * data.cfrc_ext.square().sum((1, 2))).clamp_max(10)
        return 0.1 * _cost(actions) + contacts

    def judge(self, before: dict[str, Tensor], data: Any, actions: Tensor) -> Judgement:
        """Return the height over the simulator's time step, plus 1, less the costs; it never ends."""
        height = data.qpos[:, 2] / self.model.opt.timestep
        reward = height - self.costs(data, actions) + 1
        return reward, _never(reward)


class Humanoid(HumanoidStandup):
    """Humanoid-v5."""

    contacts, constraints = 16, 64

    def __init__(self, env_id: str, device: torch.device) -> None:
        super().__init__(env_id, device)
        shares = self.model.body_mass / self.model.body_mass.sum()
        self._mass = torch.tensor(shares, dtype=torch.float32, device=device)

    def remember(self, data: Any) -> dict[str, Tensor]:
        """Return the mass centre's x coordinate."""
        return {"x": (data.xipos[:, :, 0] * self._mass).sum(1)}

    def judge(self, before: dict[str, Tensor], data: Any, actions: Tensor) -> Judgement:
        """Return the mass centre's speed and 5 for being healthy, less the costs; it ends when unhealthy."""
        z = data.qpos[:, 2]
        healthy = (z > 1) & (z < 2)
        speed = (self.remember(data)["x"] - before["x"]) / self.dt
        return 1.25 * speed + 5 * healthy.float() - self.costs(data, actions), ~healthy


class Reacher(GymnasiumTask):
    """Reacher-v5."""

    position_noise, velocity_noise, refresh = 0.1, 0.005, "kinematics"

    def start(self, uniform: Tensor) -> dict[str, Tensor]:
        """Return the arm near its initial state, and a target that is uniformly distributed in a disc."""
        state = super().start(uniform)
        radius, angle = 0.2 * uniform[:, 2].sqrt(), 2 * torch.pi * uniform[:, 3]
        target = torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), 1)
        still = torch.zeros_like(target)
        return {
            "qpos": torch.cat((state["qpos"][:, :2], target), 1),
            "qvel": torch.cat((state["qvel"][:, :2], still), 1),
        }

    def distance(self, data: Any) -> Tensor:
        """Return the vector from the target to the fingertip.  -> [E, 3]"""
        return data.xpos[:, self.body("fingertip")] - data.xpos[:, self.body("target")]

    def observe(self, data: Any) -> Tensor:
        """Return cosines and sines of the angles, the target, the angles' speeds and the distance."""
        angles = data.qpos[:, :2]
        pose = (angles.cos(), angles.sin(), data.qpos[:, 2:])
        return torch.cat((*pose, data.qvel[:, :2], self.distance(data)[:, :2]), 1)

    def judge(self, before: dict[str, Tensor], data: Any, actions: Tensor) -> Judgement:
        """Return minus the distance and minus the actions' cost; it never ends."""
        reward = -self.distance(data).norm(dim=1) - _cost(actions)
        return reward, _never(reward)


class Pusher(GymnasiumTask):
    """Pusher-v5."""

    position_noise, velocity_noise, refresh = 0.0, 0.005, "kinematics"
    nearest = 0.17
    """Least distance of the object from the goal, in the origin, at the start."""

    def __init__(self, env_id: str, device: torch.device) -> None:
        super().__init__(env_id, device)
        self.start_numbers += 2 * TRIES

    def start(self, uniform: Tensor) -> dict[str, Tensor]:
        """Return the arm at rest but for its speeds, and the first drawn object that is far enough from the goal."""
        own = self.start_numbers - 2 * TRIES
        state = super().start(uniform[:, :own])
        x, y = uniform[:, own:].unflatten(1, (TRIES, 2)).unbind(2)
        drawn = torch.stack((-0.3 * x, 0.4 * y - 0.2), 2)
        far = drawn.norm(dim=2) > self.nearest
        first = far.float().argmax(1)  # of equal ones, the first
        places = drawn.gather(1, first[:, None, None].expand(-1, 1, 2)).squeeze(1)
        still = torch.zeros_like(uniform[:, :4])
        return {
            "qpos": torch.cat((state["qpos"][:, :-4], places, still[:, :2]), 1),
            "qvel": torch.cat((state["qvel"][:, :-4], still), 1),
        }

    def places(self, data: Any) -> list[Tensor]:
        """Return where the arm's tips, the object and the goal are.  -> [E, 3] each"""
        return [data.xpos[:, self.body(name)] for name in ("tips_arm", "object", "goal")]

    def observe(self, data: Any) -> Tensor:
        """Return the arm's positions and velocities, and the places."""
        return torch.cat((data.qpos[:, :7], data.qvel[:, :7], *self.places(data)), 1)

    def judge(self, before: dict[str, Tensor], data: Any, actions: Tensor) -> Judgement:
        """Return minus the object's distances from tips and goal, and minus the actions' cost; it never ends."""
        tips, thing, goal = self.places(data)
        reward = -0.5 * (thing - tips).norm(dim=1) - (thing - goal).norm(dim=1) - 0.1 * _cost(actions)
        return reward, _never(reward)


TRIES = 20
"""Places that Pusher draws for its object: less than once in 10 ** 8 starts all are too near to the goal."""


class InvertedPendulum(GymnasiumTask):
    """InvertedPendulum-v5."""

    position_noise = velocity_noise = 0.01

    def judge(self, before: dict[str, Tensor], data: Any, actions: Tensor) -> Judgement:
        """Return 1 until the pole leaves ±0.2."""
        fallen = data.qpos[:, 1].abs() > 0.2
        return (~fallen).float(), fallen


class InvertedDoublePendulum(GymnasiumTask):
    """InvertedDoublePendulum-v5."""

    position_noise = velocity_noise = 0.1
    normal_velocities, refresh = True, "forward"

    def observe(self, data: Any) -> Tensor:
        """Return the cart's place, sines and cosines of the angles, velocities, and the force of the cart's limits."""
        angles = data.qpos[:, 1:]
        forces = data.qfrc_constraint[:, :1].clamp(-10, 10)
        return torch.cat((data.qpos[:, :1], angles.sin(), angles.cos(), data.qvel.clamp(-10, 10), forces), 1)

    def judge(self, before: dict[str, Tensor], data: Any, actions: Tensor) -> Judgement:
        """Return 10 until the tip falls below 1, less its distance from the top and the angles' speeds."""
        x, y = data.site_xpos[:, 0, 0], data.site_xpos[:, 0, 2]
        fallen = y <= 1
        distance = 0.01 * x.square() + (y - 2).square()
        speeds = 1e-3 * data.qvel[:, 1].square() + 5e-3 * data.qvel[:, 2].square()
        return 10 * (~fallen).float() - distance - speeds, fallen


GYMNASIUM: dict[str, type[GymnasiumTask]] = {
    "Ant-v5": Ant,
    "HalfCheetah-v5": HalfCheetah,
    "Hopper-v5": Hopper,
    "Humanoid-v5": Humanoid,
    "HumanoidStandup-v5": HumanoidStandup,
    "InvertedDoublePendulum-v5": InvertedDoublePendulum,
    "InvertedPendulum-v5": InvertedPendulum,
    "Pusher-v5": Pusher,
    "Reacher-v5": Reacher,
    "Swimmer-v5": Swimmer,
    "Walker2d-v5": Walker2d,
}
