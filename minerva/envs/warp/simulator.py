"""Worlds of one model in MuJoCo Warp, stepped together: by CUDA graphs on a GPU, by recorded calls on the CPU."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minerva.envs.warp.task import Refresh, Task
from minerva.errors import EnvError

STATE = ("qpos", "qvel", "act", "qacc_warmstart")
"""Arrays on which a simulation's future depends; `ctrl` is set before each step, the rest computed from these."""


def usable_warp() -> Any:
    """Import Warp and MuJoCo Warp, quietly, and return both modules."""
    import warp as wp

    wp.config.log_level = wp.LOG_WARNING  # before it starts: else it prints every module that it loads
    import mujoco_warp as mjw

    wp.init()
    return wp, mjw


class Simulator:
    """`worlds` simulations of a task's model on `device`; its arrays are PyTorch tensors of the same memory."""

    def __init__(self, task: Task, worlds: int, device: torch.device, capture: bool = True) -> None:
        self.wp, self.mjw = usable_warp()
        self.task, self.worlds, self.device, self.capture = task, worlds, device, capture
        self._on = self.wp.device_from_torch(str(device))  # by name: "cuda" is the current GPU
        self._tensors: dict[str, Tensor] = {}
        self._recorded: dict[str, Any] = {}
        self._streams: dict[int, Any] = {}
        kinds = self.mjw.OverflowType
        self.lost = int(kinds.ALL) & ~int(kinds.ITERATIONS | kinds.LS_ITERATIONS)
        """Bits of `overflow` that say that contacts or constraints were dropped, not that the solver stopped early."""
        with self.wp.ScopedDevice(self._on):
            self._make()

    def _make(self) -> None:
        """Put the model on the device and allocate the worlds."""
        wp, mjw, task = self.wp, self.mjw, self.task
        sizes = {"nconmax": task.contacts, "njmax": task.constraints}
        self._require_memory(_bytes(mjw.make_data(task.model, nworld=1, **sizes)))
        self.model = mjw.put_model(supported(task.model))
        self.model.opt.warn_overflow = 0  # read out by the engine; Warp would print from the device
        for name in task.varied:
            one = getattr(self.model, name)
            rows = np.repeat(one.numpy()[:1], self.worlds, axis=0)
            setattr(self.model, name, wp.array(rows, dtype=one.dtype))
        self.data = mjw.make_data(task.model, nworld=self.worlds, **sizes)
        wp.synchronize_device(self._on)  # later calls are on PyTorch's stream

    def tensor(self, name: str) -> Tensor:
        """Return an array of the data, or a varied one of the model, as a tensor of the same memory.  [E, ...]"""
        if name not in self._tensors:
            owner = self.model if name in self.task.varied else self.data
            self._tensors[name] = self.wp.to_torch(getattr(owner, name))
        return self._tensors[name]

    @property
    def state_names(self) -> list[str]:
        """Names of the arrays that make up a simulation's state, without empty ones."""
        return [name for name in STATE if getattr(self.data, name).size] + list(self.task.varied)

    # --- what is run, without waiting for the device ---------------------------------------------------------

    def step(self) -> None:
        """Simulate one step of the task in every world, with the controls in `ctrl`."""
        self._run("step", self._step)

    def refresh(self, what: Refresh) -> None:
        """Compute what follows from the state: poses and velocities, or everything; the state stays as it is."""
        if what:
            self._run(what, self._forward if what == "forward" else self._kinematics)

    def _step(self) -> None:
        for _ in range(self.task.frame_skip):
            self.mjw.step(self.model, self.data)
        if self.task.contact_forces:
            self.mjw.rne_postconstraint(self.model, self.data)
        if self.task.up_to_date:
            self._kinematics()

    def _forward(self) -> None:
        self.mjw.forward(self.model, self.data)

    def _kinematics(self) -> None:
        """Update poses, velocities and their sensors; sensors of forces keep the values of the last substep."""
        m, d = self.model, self.data
        self.mjw.fwd_kinematics(m, d)
        self.mjw.sensor_pos(m, d)
        self.mjw.com_vel(m, d)
        self.mjw.sensor_vel(m, d)

    def _run(self, name: str, work: Callable[[], None]) -> None:
        """Run the work on PyTorch's current stream: eagerly at first, which compiles its kernels, then as a graph."""
        with self._on_torch_stream():
            if not self.capture:
                work()
                return
            if name not in self._recorded:
                self._recorded[name] = self._record(work)
            self.wp.capture_launch(self._recorded[name])

    def _record(self, work: Callable[[], None]) -> Any:
        """Return the work as a graph; the state is left as it was."""
        kept = {name: self.tensor(name).clone() for name in self.state_names}
        work()
        for name, values in kept.items():
            self.tensor(name).copy_(values)
        if self.device.type == "cpu":
            with self.wp.ScopedCapture(device=self._on) as recorded:
                work()
            return recorded.graph
        self.wp.synchronize_device(self._on)
        side = self.wp.Stream(self._on)  # PyTorch's default stream is CUDA's legacy one, which cannot be captured
        with _without_collection(), self.wp.ScopedStream(side), self.wp.ScopedCapture(stream=side) as recorded:
            work()
        return recorded.graph

    @contextmanager
    def _on_torch_stream(self) -> Iterator[None]:
        with self.wp.ScopedDevice(self._on):
            if self.device.type == "cpu":
                yield
                return
            current = torch.cuda.current_stream(self.device)
            if current.cuda_stream not in self._streams:
                self._streams[current.cuda_stream] = self.wp.stream_from_torch(current)
            with self.wp.ScopedStream(self._streams[current.cuda_stream], sync_enter=False):
                yield

    def _require_memory(self, each: int) -> None:
        """Raise EnvError if the worlds' arrays do not fit what is free."""
        if self.device.type == "cuda":
            free = torch.cuda.mem_get_info(self.device)[0]
        else:
            free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if each * self.worlds > free:
            raise EnvError(
                f"{self.worlds:,} worlds need {each * self.worlds / 2**30:,.1f} GiB, and {free / 2**30:,.1f} GiB are "
                f"free on {self.device}: set num_envs to {free // each // 2:,} or less."
            )


def supported(model: Any) -> Any:
    """Return the model with a solver that MuJoCo Warp has: Newton's instead of PGS, which differ by 2e-4 in a speed."""
    import copy

    import mujoco

    if model.opt.solver != mujoco.mjtSolver.mjSOL_PGS:
        return model
    changed = copy.copy(model)
    changed.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    return changed


def _bytes(data: Any) -> int:
    """Return the memory of a structure's arrays."""
    arrays = [value for value in vars(data).values() if hasattr(value, "capacity")]
    nested = [value for value in vars(data).values() if hasattr(value, "__dataclass_fields__")]
    return sum(array.capacity for array in arrays) + sum(map(_bytes, nested))


@contextmanager
def _without_collection() -> Iterator[None]:
    """Keep Python from collecting a dead graph in the block: its destructor would be recorded into the new one."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
