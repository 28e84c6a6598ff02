"""Tasks of the dm_control suite as functions of tensors; dm_control's own environments are their definition."""

import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from minerva.envs.warp.suite_task import INF, SuiteTask, small, tolerance


class Cheetah(SuiteTask):
    """cheetah: run."""

    domain, speed = "cheetah", 10.0

    def entries(self, data: Any) -> dict[str, Tensor]:
        """Return positions but for x, and velocities."""
        return {"position": data.qpos[:, 1:], "velocity": data.qvel}

    def reward(self, data: Any, actions: Tensor) -> Tensor:
        """Return the speed's share of the wanted one."""
        speed = self.sensors(data, "torso_subtreelinvel")[:, 0]
        return tolerance(speed, (self.speed, INF), self.speed, "linear", 0)


class Walker(SuiteTask):
    """walker: stand, walk and run."""

    domain = "walker"
    speeds: ClassVar = {"stand": 0.0, "walk": 1.0, "run": 8.0}

    def __init__(self, env_id: str, device: torch.device) -> None:
        super().__init__(env_id, device)
        self.speed, (self.torso,) = self.speeds[env_id.split("/")[2]], self.bodies("torso")

    def entries(self, data: Any) -> dict[str, Tensor]:
        """Return the bodies' orientations in the plane, the torso's height, and velocities."""
        orientations = data.xmat[:, 1:, 0, ::2]
        return {"orientations": orientations, "height": data.xpos[:, self.torso, 2], "velocity": data.qvel}

    def reward(self, data: Any, actions: Tensor) -> Tensor:
        """Return the reward for standing upright, times that for the speed."""
        standing = tolerance(data.xpos[:, self.torso, 2], (1.2, INF), 0.6)
        upright = (1 + data.xmat[:, self.torso, 2, 2]) / 2
        stand = (3 * standing + upright) / 4
        if self.speed == 0:
            return stand
        speed = self.sensors(data, "torso_subtreelinvel")[:, 0]
        move = tolerance(speed, (self.speed, INF), self.speed / 2, "linear", 0.5)
        return stand * (5 * move + 1) / 6


class Hopper(SuiteTask):
    """hopper: stand and hop."""

    domain, refresh = "hopper", "forward"

    def __init__(self, env_id: str, device: torch.device) -> None:
        super().__init__(env_id, device)
        self.hopping, (self.torso, self.foot) = env_id.endswith("hop"), self.bodies("torso", "foot")

    def entries(self, data: Any) -> dict[str, Tensor]:
        """Return positions but for x, velocities, and how firmly toe and heel touch the ground."""
        touch = torch.log1p(self.sensors(data, "touch_toe", "touch_heel"))
        return {"position": data.qpos[:, 1:], "velocity": data.qvel, "touch": touch}

    def reward(self, data: Any, actions: Tensor) -> Tensor:
        """Return the reward for standing, times that for the speed or for small actions."""
        standing = tolerance(data.xipos[:, self.torso, 2] - data.xipos[:, self.foot, 2], (0.6, 2.0))
        if not self.hopping:
            return standing * (small(actions).mean(1) + 4) / 5
        speed = self.sensors(data, "torso_subtreelinvel")[:, 0]
        return standing * tolerance(speed, (2.0, INF), 1.0, "linear", 0.5)


class Humanoid(SuiteTask):
    """humanoid: stand, walk, run and run_pure_state."""

    domain, contacts, constraints = "humanoid", 24, 96
    speeds: ClassVar = {"stand": 0.0, "walk": 1.0, "run": 10.0, "run_pure_state": 10.0}

    def __init__(self, env_id: str, device: torch.device) -> None:
        super().__init__(env_id, device)
        task = env_id.split("/")[2]
        self.speed, self.pure_state = self.speeds[task], task == "run_pure_state"
        self.torso, self.head = self.bodies("torso", "head")
        self.limbs = self.bodies("left_hand", "left_foot", "right_hand", "right_foot")

    def entries(self, data: Any) -> dict[str, Tensor]:
        """Return the joints' angles, where the extremities are, how the torso stands and moves, and velocities."""
        if self.pure_state:
            return super().entries(data)
        return {
            "joint_angles": data.qpos[:, 7:],
            "head_height": data.xpos[:, self.head, 2],
            "extremities": seen_from(self.torso, self.limbs, data),
            "torso_vertical": data.xmat[:, self.torso, 2],
            "com_velocity": self.sensors(data, "torso_subtreelinvel"),
            "velocity": data.qvel,
        }

    def reward(self, data: Any, actions: Tensor) -> Tensor:
        """Return the product of the rewards for standing, small actions and the speed."""
        standing = tolerance(data.xpos[:, self.head, 2], (1.4, INF), 0.35)
        upright = tolerance(data.xmat[:, self.torso, 2, 2], (0.9, INF), 1.9, "linear", 0)
        control = (4 + small(actions).mean(1)) / 5
        velocity = self.sensors(data, "torso_subtreelinvel")[:, :2]
        if self.speed == 0:
            return control * standing * upright * tolerance(velocity, margin=2).mean(1)
        move = tolerance(velocity.norm(dim=1), (self.speed, INF), self.speed, "linear", 0)
        return control * standing * upright * (5 * move + 1) / 6


def seen_from(body: int, others: list[int], data: Any) -> Tensor:
    """Return the places of other bodies in the frame of a body.  -> [E, n, 3]"""
    places = torch.stack([data.xpos[:, other] for other in others], 1)
    return (places - data.xpos[:, body, None]) @ data.xmat[:, body]


class Cartpole(SuiteTask):
    """cartpole: balance, swingup, their sparse forms, two_poles and three_poles."""

    domain = "cartpole"

    def __init__(self, env_id: str, device: torch.device) -> None:
        super().__init__(env_id, device)
        self.sparse = env_id.endswith("sparse")

    def entries(self, data: Any) -> dict[str, Tensor]:
        """Return the cart's place, cosines and sines of the poles, and velocities."""
        poles = torch.stack((data.xmat[:, 2:, 2, 2], data.xmat[:, 2:, 0, 2]), 2)
        return {"position": torch.cat((data.qpos[:, :1], poles.flatten(1)), 1), "velocity": data.qvel}

    def reward(self, data: Any, actions: Tensor) -> Tensor:
        """Return the reward for upright poles above a centred cart, with little force and speed."""
        cart, cosines = data.qpos[:, 0], data.xmat[:, 2:, 2, 2]
        if self.sparse:
            return tolerance(cart, (-0.25, 0.25)) * tolerance(cosines, (0.995, 1.0)).prod(1)
        centred = (1 + tolerance(cart, margin=2)) / 2
        control = (4 + small(actions)[:, 0]) / 5
        slow = (1 + tolerance(data.qvel[:, 1:], margin=5).amin(1)) / 2
        return ((cosines + 1) / 2).mean(1) * control * slow * centred


class Reacher(SuiteTask):
    """reacher: easy and hard."""

    domain, varied = "reacher", ("geom_pos",)

    def __init__(self, env_id: str, device: torch.device) -> None:
        super().__init__(env_id, device)
        self.target, self.finger = (int(self.model.geom(name).id) for name in ("target", "finger"))
        self.radii = float(self.model.geom_size[[self.target, self.finger], 0].sum())

    def to_target(self, data: Any) -> Tensor:
        """Return the vector from the finger to the target, whose place MuJoCo Warp keeps in the model.  -> [E, 2]"""
        return data.geom_pos[:, self.target, :2] - data.geom_xpos[:, self.finger, :2]

    def entries(self, data: Any) -> dict[str, Tensor]:
        """Return positions, velocities and the vector to the target."""
        return {**super().entries(data), "to_target": self.to_target(data)}

    def reward(self, data: Any, actions: Tensor) -> Tensor:
        """Return 1 where the finger touches the target."""
        return tolerance(self.to_target(data).norm(dim=1), (0.0, self.radii))


class Finger(SuiteTask):
    """finger: spin."""

    domain, refresh = "finger", "forward"

    def tip(self, data: Any) -> Tensor:
        """Return where the tip is, seen from the spinner.  -> [E, 2]"""
        return self._from_spinner(data, "tip")

    def _from_spinner(self, data: Any, name: str) -> Tensor:
        return (self.sensors(data, name) - self.sensors(data, "spinner"))[:, ::2]

    def entries(self, data: Any) -> dict[str, Tensor]:
        """Return the finger's angles and tip, speeds, and how firmly it is touched."""
        return {
            "position": torch.cat((self.sensors(data, "proximal", "distal"), self.tip(data)), 1),
            "velocity": self.sensors(data, "proximal_velocity", "distal_velocity", "hinge_velocity"),
            "touch": torch.log1p(self.sensors(data, "touchtop", "touchbottom")),
        }

    def reward(self, data: Any, actions: Tensor) -> Tensor:
        """Return 1 where the spinner turns fast."""
        return (self.sensors(data, "hinge_velocity")[:, 0] <= -15).float()


class FingerTurn(Finger):
    """finger: turn_easy and turn_hard."""

    varied = ("site_pos",)

    def target(self, data: Any) -> Tensor:
        """Return where the target is, seen from the spinner.  -> [E, 2]"""
        return self._from_spinner(data, "target")

    def distance(self, data: Any) -> Tensor:
        """Return the distance of the tip from the target's rim.  -> [E]"""
        radius = float(self.model.site("target").size[0])
        return (self.target(data) - self.tip(data)).norm(dim=1) - radius

    def entries(self, data: Any) -> dict[str, Tensor]:
        """Return what spin observes, the target, and the distance from it."""
        more = {"target_position": self.target(data), "dist_to_target": self.distance(data)}
        return {**super().entries(data), **more}

    def reward(self, data: Any, actions: Tensor) -> Tensor:
        """Return 1 where the tip is within the target."""
        return (self.distance(data) <= 0).float()


class BallInCup(SuiteTask):
    """ball_in_cup: catch."""

    domain = "ball_in_cup"

    def __init__(self, env_id: str, device: torch.device) -> None:
        super().__init__(env_id, device)
        site, (self.ball,) = self.model.site("target"), self.bodies("ball")
        self.target, room = int(site.id), site.size[::2] - self.model.geom("ball").size[0]
        self.room = torch.tensor(room, dtype=torch.float32, device=device)

    def reward(self, data: Any, actions: Tensor) -> Tensor:
        """Return 1 where the ball is in the cup."""
        away = (data.site_xpos[:, self.target] - data.xpos[:, self.ball])[:, ::2].abs()
        return (away < self.room).all(1).float()


class Pendulum(SuiteTask):
    """pendulum: swingup."""

    domain = "pendulum"

    def entries(self, data: Any) -> dict[str, Tensor]:
        """Return cosine and sine of the angle, and the speed."""
        (pole,) = self.bodies("pole")
        cosine, sine = data.xmat[:, pole, 2, 2], data.xmat[:, pole, 0, 2]
        return {"orientation": torch.stack((cosine, sine), 1), "velocity": data.qvel}

    def reward(self, data: Any, actions: Tensor) -> Tensor:
        """Return 1 within 8 degrees of the top."""
        (pole,) = self.bodies("pole")
        return tolerance(data.xmat[:, pole, 2, 2], (math.cos(math.radians(8)), 1.0))


class Acrobot(SuiteTask):
    """acrobot: swingup and swingup_sparse."""

    domain = "acrobot"

    def __init__(self, env_id: str, device: torch.device) -> None:
        super().__init__(env_id, device)
        self.arms, self.margin = self.bodies("upper_arm", "lower_arm"), 0.0 if env_id.endswith("sparse") else 1.0
        self.target, self.tip = (int(self.model.site(name).id) for name in ("target", "tip"))

    def entries(self, data: Any) -> dict[str, Tensor]:
        """Return sines and cosines of both arms, and velocities."""
        parts = [data.xmat[:, arm, axis, 2] for axis in (0, 2) for arm in self.arms]
        return {"orientations": torch.stack(parts, 1), "velocity": data.qvel}

    def reward(self, data: Any, actions: Tensor) -> Tensor:
        """Return the reward for the tip's nearness to the target."""
        distance = (data.site_xpos[:, self.target] - data.site_xpos[:, self.tip]).norm(dim=1)
        return tolerance(distance, (0.0, float(self.model.site_size[self.target, 0])), self.margin)


class Quadruped(SuiteTask):
    """quadruped: walk and run."""

    domain, refresh, contacts, constraints = "quadruped", "forward", 32, 160
    speeds: ClassVar = {"walk": 0.5, "run": 5.0}

    def __init__(self, env_id: str, device: torch.device) -> None:
        import mujoco

        super().__init__(env_id, device)
        self.speed, (self.torso,) = self.speeds[env_id.split("/")[2]], self.bodies("torso")
        kinds = mujoco.mjtSensor
        self.imu = self._of_kind(kinds.mjSENS_GYRO, kinds.mjSENS_ACCELEROMETER)
        self.forces = self._of_kind(kinds.mjSENS_FORCE, kinds.mjSENS_TORQUE)
        hinges = self.model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
        places = self.model.jnt_qposadr[hinges], self.model.jnt_dofadr[hinges]
        self.angles, self.turns = (torch.tensor(place, dtype=torch.int64, device=device) for place in places)

    def _of_kind(self, *kinds: Any) -> list[str]:
        return [self.model.sensor(i).name for i in np.flatnonzero(np.isin(self.model.sensor_type, kinds))]

    def entries(self, data: Any) -> dict[str, Tensor]:
        """Return the hinges' angles and speeds, the actuators' states, and what the sensors read."""
        hinges = data.qpos[:, self.angles], data.qvel[:, self.turns]
        return {
            "egocentric_state": torch.cat((*hinges, data.act), 1),
            "torso_velocity": self.sensors(data, "velocimeter"),
            "torso_upright": data.xmat[:, self.torso, 2, 2],
            "imu": self.sensors(data, *self.imu),
            "force_torque": torch.asinh(self.sensors(data, *self.forces)),
        }

    def reward(self, data: Any, actions: Tensor) -> Tensor:
        """Return the reward for the speed, times that for being upright."""
        upright = tolerance(data.xmat[:, self.torso, 2, 2], (1.0, INF), 2.0, "linear", 0)
        speed = self.sensors(data, "velocimeter")[:, 0]
        return upright * tolerance(speed, (self.speed, INF), self.speed, "linear", 0.5)


def _ids(tasks: type[SuiteTask], *names: str) -> dict[str, type[SuiteTask]]:
    return {f"dm_control/{tasks.domain}/{name}": tasks for name in names}


DM_CONTROL: dict[str, type[SuiteTask]] = {
    **_ids(Acrobot, "swingup", "swingup_sparse"),
    **_ids(BallInCup, "catch"),
    **_ids(Cartpole, "balance", "balance_sparse", "swingup", "swingup_sparse", "two_poles", "three_poles"),
    **_ids(Cheetah, "run"),
    **_ids(Finger, "spin"),
    **_ids(FingerTurn, "turn_easy", "turn_hard"),
    **_ids(Hopper, "stand", "hop"),
    **_ids(Humanoid, "stand", "walk", "run", "run_pure_state"),
    **_ids(Pendulum, "swingup"),
    **_ids(Quadruped, "walk", "run"),
    **_ids(Reacher, "easy", "hard"),
    **_ids(Walker, "stand", "walk", "run"),
}
