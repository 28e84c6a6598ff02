"""Base of the agents that learn from batches of a replay."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from minerva.compute.flat import FlatParameters
from minerva.compute.seeding import restore_generator
from minerva.compute.tree import Tree, copy_
from minerva.data.fields import Field
from minerva.data.normalizers import RunningNorm, refreshed, standardized
from minerva.formulas.gaussian import uniform_actions
from minerva.loop.agent import Agent, Array, Rows
from minerva.networks.masks import without_mask

SCALAR_FIELDS = {"rewards", "terminated", "ended", "behaviour_logp"}
"""Fields of a batch with one number per row."""


class OffPolicyAgent(Agent):
    """An agent that learns from batches of a replay. Its networks are attributes that share their tensors with `state`.

    Each name in `flats` is that of a module and of the entry of the state that holds its parameters as one vector.
    """

    flats: dict[str, FlatParameters]
    """The parameters of each module, as one vector."""
    normalizer: nn.Module
    """Normaliser of observations, whose statistics are an entry of the state; the identity if there is none."""
    mask_size: int = 0
    """Length of the mask of possible choices that follows an observation, which is not normalised."""
    skipped: int = 0
    """Updates skipped because a value was not finite."""

    @property
    def sequence_length(self) -> int:
        """Length of the replay sequences in a batch; 1: single transitions."""
        return 1

    @property
    def batches(self) -> int:
        """Batches that one update learns from."""
        return 1

    @property
    def scales_rewards(self) -> bool:
        """Whether the rewards of a batch are to be scaled by the largest return."""
        return False

    def make_normalizer(self, obs_dim: int, used: bool) -> nn.Module:
        """Return a normaliser of observations; if it is not `used`, the identity."""
        normalizer: nn.Module = RunningNorm(obs_dim, active=True) if used else nn.Identity()
        return normalizer.to(self.device)

    def normalized(self, state: Tree, obs: Tensor) -> Tensor:
        """Return observations as the networks see them.  [..., O] -> [..., O]"""
        if not state["normalizer"]:
            return obs
        seen, mask = without_mask(obs, self.mask_size)
        normalized = standardized(state["normalizer"], seen)
        return normalized if mask is None else torch.cat((normalized, mask), -1)

    def see(self, obs: Tensor) -> None:
        """Add new observations to the normaliser's statistics, if there is one.  [n, O]"""
        if self.state["normalizer"]:
            seen, _ = without_mask(obs, self.mask_size)
            copy_(self.state["normalizer"], refreshed(self.state["normalizer"], seen, self.ranks))

    def action_fields(self, action: Field) -> dict[str, Field]:
        """Return the outputs of `acted` that the replay stores beside `actions_executed`; `action` is their field."""
        return {}

    @abstractmethod
    def sample_uniform(self, shape: tuple[int, ...]) -> Rows | Tensor:
        """Draw uniform actions for a batch of this shape, with the keys of `acted`; or the noise to act with.

        Noise serves a policy that is uniform before its first update, where only an observation tells what is possible.
        """

    def uniform_actions(self, low: Tensor, high: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Draw actions uniformly between their bounds.  [D], [D] -> [*shape, D]"""
        unit = torch.rand((*shape, low.shape[0]), generator=self.generator, device=self.device, dtype=low.dtype)
        return uniform_actions(unit, low, high)

    # --- learning -------------------------------------------------------------------------------------------

    def learn(self, data: Rows, remaining: float = 1.0, noise: Any = None) -> dict[str, float]:
        """Learn from a prepared batch and return the metrics; an empty dict if the update was skipped."""
        for flat in self.flats.values():
            flat.adopt()
        return super().learn(data, remaining, noise)

    @abstractmethod
    def prepared(self, batch: Mapping[str, Array | Tensor]) -> Rows:
        """Return a batch from the replay, or a caller's, in the form that `updated` takes."""

    def with_time_first(self, rows: Rows, steps: int | None) -> Rows:
        """Return transitions as sequences of length 1, and of sequences [B, T, ...] the first `steps`: [T, B, ...].

        `truncated`, if it is there, becomes `ended`.
        """
        rows = dict(rows)
        truncated = rows.pop("truncated", rows["terminated"])
        rows["ended"] = torch.maximum(rows["terminated"], truncated)
        for name in SCALAR_FIELDS & set(rows):
            rows[name] = rows[name].reshape(rows["obs"].shape[:-1])
        if rows["obs"].ndim == 2:
            return {name: value.unsqueeze(0) for name, value in rows.items()}
        return {name: value.transpose(0, 1)[:steps] for name, value in rows.items()}

    # --- state ----------------------------------------------------------------------------------------------

    def move(self, state: Tree) -> None:
        """Use these tensors, which hold equal values, as the agent's state from now on."""
        self.state = state
        for name, flat in self.flats.items():
            flat.move(state[name])
        if isinstance(self.normalizer, RunningNorm):
            self.normalizer.move(state["normalizer"])

    def state_dict(self) -> Tree:
        """Return everything that an exact continuation of training needs."""
        modules = {name: dict(getattr(self, name).state_dict()) for name in self.flats}
        owned = {name: part for name, part in self.state.items() if name not in self.flats}
        return {**modules, **owned, "generator": self.generator.get_state()}

    def load_state_dict(self, state: Tree) -> None:
        """Load a state that `state_dict` returned."""
        for name in self.flats:
            getattr(self, name).load_state_dict(state[name])
        copy_(self.state, {name: state[name] for name in self.state if name not in self.flats})
        restore_generator(self.generator, state["generator"])

    def load_policy(self, state: Tree) -> None:
        """Load only networks and normaliser of a saved state: to act, or to start training from."""
        for name in self.POLICY_MODULES:
            getattr(self, name).load_state_dict(state[name])
        copy_(self.state["normalizer"], state.get("normalizer", {}))
