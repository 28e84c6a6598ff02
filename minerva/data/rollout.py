"""Rollout buffer: T steps of E environments in preallocated memory. Every row is data; there are no reset rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from minerva.compute.tree import Tree
from minerva.data.fields import Fields
from minerva.layout import Array


class Rollout:
    """A rollout buffer, filled step by step on the engine's device and read as [T, E, ...] on the learner's."""

    def __init__(
        self, steps: int, num_envs: int, fields: Fields, device: torch.device, learner: torch.device | None = None
    ) -> None:
        """Allocate the buffer on `device`, the engine's; `learner` is the learner's device (None: `device`)."""
        self.steps, self.num_envs, self.learner = steps, num_envs, learner or device
        self.filled = 0
        self.noise: Tensor | None = None
        """Action noise of all steps, drawn by `begin`.  [T, E, D]"""
        pinned = device.type == "cpu" and self.learner.type == "cuda"
        self.state: Tree = {
            name: torch.zeros((steps, num_envs, *shape), dtype=dtype, device=device, pin_memory=pinned)
            for name, (shape, dtype) in fields.items()
        }

    @property
    def full(self) -> bool:
        """Whether every step is written."""
        return self.filled == self.steps

    def begin(self, draw: Callable[[tuple[int, ...]], Tensor]) -> None:
        """Start a new rollout and draw its action noise, unless an unfinished one is to be continued."""
        if self.full or self.noise is None:
            self.filled = 0
            self.noise = draw((self.steps, self.num_envs))

    def clear(self) -> None:
        """Discard all steps and the noise."""
        self.filled, self.noise = 0, None

    def move(self, state: Tree) -> None:
        """Use these tensors, which hold equal values, as the buffer."""
        self.state = state

    def tensors(self) -> dict[str, Tensor]:
        """Return all fields on the learner's device, in the form that agents learn from."""
        return learnable(self.state, self.learner)

    def state_dict(self) -> Tree:
        """Return the steps and the noise of an unfinished rollout; a full one was learned from and is left out."""
        filled = 0 if self.full else self.filled
        rows = {name: field[:filled] for name, field in self.state.items()}
        return {**rows, "noise": None if self.full else self.noise}

    def load_state_dict(self, state: Tree) -> None:
        """Load a state made by `state_dict`."""
        self.filled = len(state["rewards"])
        self.noise = state["noise"] if state["noise"] is None else state["noise"].to(self.learner)
        for name, field in self.state.items():
            field[: self.filled] = state[name]


class RolloutWriter:
    """Writes steps into one rollout, or into several equally full ones whose buffers are stacked in `state`."""

    def __init__(self, rollouts: Sequence[Rollout], state: Tree) -> None:
        self.rollouts, self.state = list(rollouts), state
        self._before: tuple[Any, ...] = (slice(None),) * (len(rollouts) > 1)
        self._lead = (len(rollouts), rollouts[0].num_envs) if len(rollouts) > 1 else (rollouts[0].num_envs,)
        on_host = next(iter(state.values())).device.type == "cpu"
        self._rows: dict[str, Array] = {name: field.numpy() for name, field in state.items()} if on_host else {}

    def add(self, step: Mapping[str, Tensor]) -> None:
        """Write one step of all environments, ordered rollout by rollout.  [S * E, ...] by field"""
        place = (*self._before, self.rollouts[0].filled)
        if self._rows:  # NumPy writes a small row in a tenth of PyTorch's time
            for name, rows in self._rows.items():
                rows[place] = step[name].numpy().reshape(self._lead + rows.shape[len(place) + 1 :])
        else:
            for name, field in self.state.items():
                field[place].copy_(step[name].view(self._lead + field.shape[len(place) + 1 :]), non_blocking=True)
        for rollout in self.rollouts:
            rollout.filled += 1

    def fill(self, fields: Mapping[str, Tensor]) -> None:
        """Write all steps of a single rollout at once, [T, E, ...] by field."""
        (rollout,) = self.rollouts
        for name, field in self.state.items():
            field.copy_(fields[name])
        rollout.filled = rollout.steps

    def tensors(self) -> dict[str, Tensor]:
        """Return all fields of all rollouts on the learner's device, [S, T, E, ...] or [T, E, ...] by field."""
        return learnable(self.state, self.rollouts[0].learner)


def learnable(state: Tree, device: torch.device) -> dict[str, Tensor]:
    """Return a rollout's fields on `device`, with flags as numbers and `ended` instead of `truncated`."""
    fields = {name: field.to(device, non_blocking=True) for name, field in state.items()}
    terminated, truncated = fields["terminated"], fields.pop("truncated")
    kind = fields["rewards"].dtype
    return {**fields, "terminated": terminated.to(kind), "ended": (terminated | truncated).to(kind)}
