"""Base of the agents that learn from batches of a replay."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from minerva.compute.flat import FlatParameters
from minerva.compute.seeding import restore_generator
from minerva.compute.tree import Tree, copy_
from minerva.data.fields import OBSERVATIONS, Field
from minerva.data.normalizers import RunningNorm, refreshed, standardized
from minerva.errors import ConfigError
from minerva.formulas.gaussian import uniform_actions
from minerva.loop.agent import Agent, Array, Rows
from minerva.networks.observations import ObservationEncoder
from minerva.spec import ActionSpec

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
    policy: Any
    """The policy's network, which begins with an encoder."""
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

    @property
    def acts_with_pink_noise(self) -> bool:
        """Whether the actions that collect experience have pink noise instead of white."""
        return False

    def make_encoder(self, action: ActionSpec) -> ObservationEncoder:
        """Return a new encoder of the observations: each network has its own."""
        return ObservationEncoder(self.observation, action.mask_size, self.config.image_encoder, self.own_encoder)

    def make_normalizer(self, numbers: int, used: bool) -> nn.Module:
        """Return a normaliser of the numbers of observations; if there are none or it is not `used`, the identity."""
        normalizer: nn.Module = RunningNorm(numbers, active=True) if used and numbers else nn.Identity()
        return normalizer.to(self.device)

    def normalized(self, state: Tree, obs: Tensor) -> Tensor:
        """Return observations as the networks see them: with normalised numbers.  [..., O] -> [..., O]"""
        if not state["normalizer"]:
            return obs
        rows: Tensor = self.policy.obs_encoder.changed(obs, lambda seen: standardized(state["normalizer"], seen))
        return rows

    def see(self, obs: Tensor) -> None:
        """Add new observations to the normaliser's statistics, if there is one.  [n, O]"""
        if self.state["normalizer"]:
            seen = self.policy.obs_encoder.split(obs).numbers
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

    def numbers_of(self, data: Rows) -> list[Tensor]:
        """Return the values of a batch that may be non-finite: all but images."""
        split = self.policy.obs_encoder.split
        return [split(values).numbers if name in OBSERVATIONS else values for name, values in data.items()]

    def with_time_first(self, rows: Rows, steps: int | None) -> Rows:
        """Return transitions as sequences of length 1, and of sequences [B, T, ...] the first `steps`: [T, B, ...].

        `truncated`, if it is there, becomes `ended`. Raise ConfigError if a field does not fit the observations.
        """
        rows = dict(rows)
        self._check_shapes(rows)
        truncated = rows.pop("truncated", rows["terminated"])
        rows["ended"] = torch.maximum(rows["terminated"], truncated)
        for name in sorted(SCALAR_FIELDS & set(rows)):  # in one order, or each process would compile anew
            rows[name] = rows[name].reshape(rows["obs"].shape[:-1])
        if rows["obs"].ndim == 2:
            return {name: value.unsqueeze(0) for name, value in rows.items()}
        return {name: value.transpose(0, 1)[:steps] for name, value in rows.items()}

    def _check_shapes(self, rows: Rows) -> None:
        """Raise ConfigError if a batch is not [batch, ...] or [batch, time, ...] in all its fields."""
        lead = tuple(rows["obs"].shape[:-1])
        for name, values in rows.items():
            size = self.observation.size if name in OBSERVATIONS else self.action.size
            single = name in SCALAR_FIELDS or name == "truncated"
            shapes = (lead, (*lead, 1)) if single else ((*lead, size),)
            if len(lead) not in (1, 2) or tuple(values.shape) not in shapes:
                raise ConfigError(
                    f"{name} has shape {tuple(values.shape)}, and obs {tuple(rows['obs'].shape)}: give transitions of "
                    f"[batch, ...] or sequences of [batch, time, ...], with {self.observation.size} elements of an "
                    f"observation and {self.action.size} of an action."
                )

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
