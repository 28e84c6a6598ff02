"""The engine `warp`: MuJoCo Warp simulates a task in thousands of worlds on the learner's GPU.

Training alone uses it. Evaluation, videos and exported policies step the same task on the CPU, with MuJoCo itself.
"""

import importlib.util
import logging
from typing import ClassVar

import torch
from torch import Tensor

from minerva.compute.cuda_graph import InPlace
from minerva.compute.tree import Tree, copy_, mapped
from minerva.config import nearest
from minerva.envs.engine import Episode
from minerva.envs.engines.device import DeviceEngine, where
from minerva.envs.ids import EnvLike, Task, env_name
from minerva.envs.warp.registry import has_task, make_task, task_names
from minerva.envs.warp.simulator import Simulator
from minerva.envs.warp.task import Task as WarpTask
from minerva.errors import EnvError, EnvStepError, pip_install

logger = logging.getLogger("minerva")

LARGEST_STATE = 1e10
"""A position or a velocity beyond it has diverged, as in MuJoCo."""
MOST_FAULTS = 0.001
"""Share of the steps since the last call of `take_episodes` at which worlds that diverged or overflowed end the run."""


class WarpEngine(DeviceEngine):
    """Worlds of one task. A step is one graph of the simulator, and one of rewards and restarts."""

    name = "warp"
    evaluated_with = "auto"
    staggered = True
    captures: ClassVar[bool] = True
    """Whether the simulator is run as graphs; eager calls are slow, and serve to find errors."""

    def __init__(self, env: EnvLike, num_envs: int, device: torch.device, task: WarpTask | None = None) -> None:
        """Make worlds of a task; `task` is given if there is an engine of it already."""
        self.task = task or make_task(env, device)
        self.start_numbers, self.time_limit = self.task.start_numbers, self.task.time_limit
        self.simulator = Simulator(self.task, num_envs, device, self.captures)
        self._controls, self._overflow = self.simulator.tensor("ctrl"), self.simulator.tensor("overflow")
        super().__init__(env_name(env), num_envs, self.task.observation, self.task.action, device)
        shared = {name: self.simulator.tensor(name) for name in self.simulator.state_names}
        simulation = mapped(torch.clone, self.state["simulation"])  # what is remembered may be views of its arrays
        copy_(shared, simulation["data"])
        self.state["simulation"] = {**simulation, "data": shared}  # a step writes into the simulator's memory
        self._restart = InPlace(self._restarted, self.state["simulation"], "auto")
        self._steps, self._faults = 0, torch.zeros((), device=device)

    def with_envs(self, num_envs: int) -> "WarpEngine":
        """Return an engine of the same task with another number of worlds: one simulator, however many are joined."""
        return type(self)(self.env_name, num_envs, self.device, self.task)

    @classmethod
    def make(cls, env: EnvLike, num_envs: int, share: int, device: torch.device) -> "WarpEngine":
        """Make `num_envs` worlds of a task on the learner's device."""
        reason = cls.unavailable_reason(env)
        if reason is not None:
            raise EnvError(f"The engine warp cannot be used: {reason}")
        if device.type == "cuda":
            _require_driver(device)
        else:
            logger.warning("warp simulates on the CPU, slower than gymnasium does: use --device cuda.")
        return cls(env, num_envs, device)

    @classmethod
    def unavailable_reason(cls, env: EnvLike) -> str | None:
        """Return None if MuJoCo Warp is installed and has the task; otherwise what to do."""
        if importlib.util.find_spec("mujoco_warp") is None or importlib.util.find_spec("warp") is None:
            return f"MuJoCo Warp is not installed: {pip_install('warp')}."
        if isinstance(env, Task):
            return f"its tasks take no arguments, and {env} has some. The engine gymnasium takes them."
        if has_task(env):
            return None
        return f"{env_name(env)} is not among its tasks. {nearest(env_name(env), task_names())}"

    # --- a step ---------------------------------------------------------------------------------------------

    def start(self, uniform: Tensor) -> Tree:
        """Return the state at an episode's start: the task's, without activations and forces of the last episode."""
        names = self.simulator.state_names
        given = self.task.start(uniform)
        zeros = {name: torch.zeros_like(self.simulator.tensor(name)) for name in names if name not in given}
        data = {name: given[name] if name in given else zeros[name] for name in names}
        no_fault = torch.zeros(len(uniform), device=uniform.device)
        return {"data": data, "before": self.task.remember(self._view(data, starts=True)), "fault": no_fault}

    def observe(self, simulation: Tree) -> Tensor:
        """Return the task's observations; numbers of a world that diverged are 0."""
        return _finite(self.task.observe(self._view(simulation["data"])))

    def simulate(self, simulation: Tree, actions: Tensor) -> tuple[Tree, Tensor, Tensor]:
        """Judge the step that the simulator has made. A world that diverged or overflowed ends its episode."""
        data = simulation["data"]
        view = self._view(data)
        rewards, terminated = self.task.judge(simulation["before"], view, actions)
        state = torch.cat((data["qpos"], data["qvel"]), 1)
        diverged = ~(state.abs() <= LARGEST_STATE).all(1) | ~torch.isfinite(rewards)
        fault = diverged | ((self._overflow & self.simulator.lost) != 0)
        simulation = {**simulation, "before": self.task.remember(view), "fault": fault.float()}
        return simulation, torch.where(diverged, 0.0, rewards), terminated | fault

    def inform(self, simulation: Tree) -> dict[str, Tensor]:
        """Return which worlds ended by a fault of the simulation."""
        return {"fault": simulation["fault"]}

    def advance(self, actions: Tensor, uniform: Tensor) -> Tree:
        """Simulate, judge and restart, one after the other on PyTorch's stream."""
        self._controls.copy_(self.in_units(actions))
        self._overflow.zero_()
        self.simulator.step()
        outputs = super().advance(actions, uniform)
        self._steps += self.num_envs
        self._faults += outputs["info"]["fault"].sum()
        if not self.task.refresh:
            return outputs
        self._refresh()
        return {**outputs, "obs": self._restart(outputs["ended"], outputs["next_obs"])}

    def _refresh(self) -> None:
        """Compute what follows from the state. This changes arrays of every world, but only starts read them."""
        self._controls.zero_()
        self.simulator.refresh(self.task.refresh)

    def _restarted(self, simulation: Tree, ended: Tensor, next_obs: Tensor) -> tuple[Tree, Tensor]:
        """Return what is remembered and observed, of worlds that begin an episode from the refreshed arrays."""
        view = self._view(simulation["data"], starts=True)
        before = where(ended, self.task.remember(view), simulation["before"])
        return {"before": before}, where(ended, _finite(self.task.observe(view)), next_obs)

    def observed_starts(self) -> Tensor:
        """Return the first observations of episodes that all begin."""
        self._refresh()
        everyone = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        begun, obs = self._restarted(self.state["simulation"], everyone, torch.zeros_like(self.obs))
        copy_(self.state["simulation"], begun)
        return obs

    def _view(self, data: dict[str, Tensor], starts: bool = False) -> "View":
        return View(data, self.simulator, starts)

    # --- faults ---------------------------------------------------------------------------------------------

    def take_episodes(self) -> list[Episode]:
        """Return the episodes since the last call but for those that a fault ended, which are counted."""
        episodes = super().take_episodes()
        faults, steps = int(self._faults), self._steps
        self._faults.zero_()
        self._steps = 0
        if faults:
            self._tell_faults(faults, steps)
        return [one._replace(info={}) for one in episodes if not one.info["fault"]]

    def _tell_faults(self, faults: int, steps: int) -> None:
        what = (
            f"{faults} worlds of {self.env_name} diverged or had more contacts than {self.task.contacts}, or more rows "
            f"of constraints than {self.task.constraints}, in {steps:,} steps"
        )
        if faults > MOST_FAULTS * steps:
            raise EnvStepError(f"{what}: training cannot continue. Lower the learning rate, or use --engine gymnasium.")
        logger.warning("%s: they were reset.", what)

    @classmethod
    def inexact_reason(cls, device: torch.device) -> str:
        """Return why runs on a GPU are not bit for bit repeated; on the CPU they are."""
        return "MuJoCo Warp adds in no fixed order on a GPU" if device.type == "cuda" else ""


class View:
    """The arrays of all worlds under their names in mjData, as tasks read them.

    At an episode's start there are no contact forces, and unless everything is computed anew, no other forces.
    """

    def __init__(self, state: dict[str, Tensor], simulator: Simulator, starts: bool) -> None:
        self._state, self._simulator = state, simulator
        self._zero = () if not starts else ("cfrc_",) if simulator.task.refresh == "forward" else ("cfrc_", "qfrc_")

    def __getattr__(self, name: str) -> Tensor:
        if name in self._state:
            return self._state[name]
        values = self._simulator.tensor(name)
        return torch.zeros_like(values) if name.startswith(self._zero) else values


def _finite(values: Tensor) -> Tensor:
    return torch.where(torch.isfinite(values), values, 0.0)


def _require_driver(device: torch.device) -> None:
    """Raise EnvError if Warp cannot use the GPU that PyTorch uses."""
    from minerva.envs.warp.simulator import usable_warp

    wp, _ = usable_warp()
    if not wp.is_cuda_available():
        raise EnvError(
            f"The engine warp cannot be used on {device}: Warp finds no CUDA driver of version 580 or later. Update "
            "the driver, or use --engine envpool."
        )
