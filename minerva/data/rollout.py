"""A rollout: T steps of E environments in preallocated memory. Every row is data; there are no reset rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from minerva.compute.tree import Tree
from minerva.data.fields import Fields
from minerva.spec import Array


class Rollout:
    """Filled row by row on the engine's device while collecting, then read as [T, E, ...] on the learner's."""

    def __init__(
        self, steps: int, num_envs: int, fields: Fields, device: torch.device, learner: torch.device | None = None
    ) -> None:
        """`device` is the engine's, `learner` the learner's (None: they are the same)."""
        self.steps, self.num_envs, self.learner = steps, num_envs, learner or device
        self.filled = 0
        self.noise: Tensor | None = None
        """Of the actions of all its steps, drawn when it is begun.  [T, E, D]"""
        pinned = device.type == "cpu" and self.learner.type == "cuda"
        self.state: Tree = {
            name: torch.zeros((steps, num_envs, *shape), dtype=dtype, device=device, pin_memory=pinned)
            for name, (shape, dtype) in fields.items()
        }

    @property
    def full(self) -> bool:
        """Whether every row is written."""
        return self.filled == self.steps

    def begin(self, draw: Callable[[tuple[int, ...]], Tensor]) -> None:
        """Start anew with noise for all steps; one that was begun and is not full is continued."""
        if self.full or self.noise is None:
            self.filled = 0
            self.noise = draw((self.steps, self.num_envs))

    def clear(self) -> None:
        """Drop what was begun."""
        self.filled, self.noise = 0, None

    def move(self, state: Tree) -> None:
        """Keep the rows in these tensors, which hold the same numbers, from now on."""
        self.state = state

    def tensors(self) -> dict[str, Tensor]:
        """Return all fields on the learner's device, as the learner takes them."""
        return learnable(self.state, self.learner)

    def state_dict(self) -> Tree:
        """Return what there is of a rollout that was begun, be it the noise alone; a full one was learned from."""
        filled = 0 if self.full else self.filled
        rows = {name: field[:filled] for name, field in self.state.items()}
        return {**rows, "noise": None if self.full else self.noise}

    def load_state_dict(self, state: Tree) -> None:
        """Take over a state made by `state_dict`."""
        self.filled = len(state["rewards"])
        self.noise = state["noise"] if state["noise"] is None else state["noise"].to(self.learner)
        for name, field in self.state.items():
            field[: self.filled] = state[name]


class RolloutWriter:
    """Writes steps into one rollout, or into several that are equally full and whose rows lie stacked in `state`."""

    def __init__(self, rollouts: Sequence[Rollout], state: Tree) -> None:
        self.rollouts, self.state = list(rollouts), state
        self._before: tuple[Any, ...] = (slice(None),) * (len(rollouts) > 1)
        self._lead = (len(rollouts), rollouts[0].num_envs) if len(rollouts) > 1 else (rollouts[0].num_envs,)
        on_host = next(iter(state.values())).device.type == "cpu"
        self._rows: dict[str, Array] = {name: field.numpy() for name, field in state.items()} if on_host else {}

    def add(self, step: Mapping[str, Tensor]) -> None:
        """Write one step of all environments, those of one rollout after another's.  [S * E, ...] by field"""
        place = (*self._before, self.rollouts[0].filled)
        if self._rows:  # NumPy writes a small row in a tenth of the time that PyTorch takes
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
    """Return a rollout's fields on `device`: flags as numbers, and `ended` instead of `truncated`."""
    fields = {name: field.to(device, non_blocking=True) for name, field in state.items()}
    terminated, truncated = fields["terminated"], fields.pop("truncated")
    kind = fields["rewards"].dtype
    return {**fields, "terminated": terminated.to(kind), "ended": (terminated | truncated).to(kind)}
