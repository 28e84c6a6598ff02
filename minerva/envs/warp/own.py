"""A user's own task: one definition, which MuJoCo simulates as a gymnasium environment and MuJoCo Warp in worlds.

`minerva train --env your_module:YourTask --engine warp` trains it on the GPU and evaluates it with MuJoCo on the CPU.
"""

from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from minerva.envs.warp.task import Task
from minerva.errors import EnvError
from minerva.spec import ActionSpec, ObservationSpec

CPU = torch.device("cpu")
MATRICES = ("xmat", "ximat", "geom_xmat", "site_xmat")
"""Arrays that MuJoCo has as rows of 9 numbers, and MuJoCo Warp as matrices."""


class MujocoTask(Task, gym.Env[Any, Any]):
    """Subclass it with `xml`, `frame_skip`, `time_limit` and `start_numbers`, and with `start`, `observe` and `judge`.

    Actions are the model's controls, whose ranges have to be bounded.
    """

    xml: ClassVar[str | Path]
    """The MJCF: its text, or the path of its file."""

    def __init__(self, render_mode: str | None = None, device: torch.device = CPU) -> None:
        import mujoco

        self._mujoco = mujoco
        written = str(self.xml)
        text = written.lstrip().startswith("<")
        self.model = (mujoco.MjModel.from_xml_string if text else mujoco.MjModel.from_xml_path)(written)
        self.data = mujoco.MjData(self.model)
        if not self.model.actuator_ctrllimited.all():
            raise EnvError(f"{type(self).__name__} has controls without a ctrlrange: bound them in its xml.")
        self.action = ActionSpec.continuous(*self.model.actuator_ctrlrange.T)
        self.action_space = gym.spaces.Box(*self.model.actuator_ctrlrange.T.astype(np.float32))
        self.device, self.render_mode = device, render_mode
        self._renderer: Any = None
        self._before: dict[str, Tensor] = {}
        self.metadata = {
            "render_modes": ["rgb_array", "depth_array"],
            "render_fps": round(1 / (self.frame_skip * self.model.opt.timestep)),
        }
        size = len(self._begun(np.full(self.start_numbers, 0.5, np.float32)))
        self.observation = ObservationSpec((size,))
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode and return its first observation."""
        super().reset(seed=seed)
        return self._begun(self.np_random.random(self.start_numbers, np.float32)), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Simulate one step with MuJoCo."""
        self.data.ctrl[:] = action
        self._mujoco.mj_step(self.model, self.data, self.frame_skip)
        if self.contact_forces:
            self._mujoco.mj_rnePostConstraint(self.model, self.data)
        if self.up_to_date:
            self._mujoco.mj_step1(self.model, self.data)
        self._length += 1
        view = self._view()
        given = torch.as_tensor(np.asarray(action, np.float32), device=self.device)[None]
        rewards, terminated = self.judge(self._before, view, given)
        self._before = self.remember(view)
        return self._seen(view), float(rewards), bool(terminated), self._length >= self.time_limit, {}

    def render(self) -> Any:
        """Return the picture that `render_mode` asks for."""
        if self._renderer is None:
            from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

            self._renderer = MujocoRenderer(self.model, self.data)
        return self._renderer.render(self.render_mode)

    def close(self) -> None:
        """Close the renderer."""
        if self._renderer is not None:
            self._renderer.close()

    def _begun(self, uniform: Any) -> Any:
        """Set the simulation to the start that these numbers draw, and return its observation."""
        self._mujoco.mj_resetData(self.model, self.data)
        for name, values in self.start(torch.as_tensor(uniform, device=self.device)[None]).items():
            owner = self.model if name in self.varied else self.data
            getattr(owner, name)[:] = values[0].cpu().numpy().reshape(getattr(owner, name).shape)
        self._mujoco.mj_forward(self.model, self.data)
        self._length, self._before = 0, self.remember(self._view())
        return self._seen(self._view())

    def _seen(self, view: Any) -> Any:
        return self.observe(view)[0].cpu().numpy()

    def _view(self) -> "_One":
        return _One(self.data, self.device)


class _One:
    """The arrays of one mjData as tasks read them: float32, with an axis for the only world."""

    def __init__(self, data: Any, device: torch.device) -> None:
        self._data, self._device = data, device

    def __getattr__(self, name: str) -> Tensor:
        values = torch.tensor(np.array(getattr(self._data, name)), dtype=torch.float32, device=self._device)
        return (values.unflatten(-1, (3, 3)) if name in MATRICES else values)[None]
