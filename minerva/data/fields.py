"""The fields of a transition, each with its shape and dtype."""

from collections.abc import Mapping
from typing import NamedTuple

import torch

from minerva.spec import ActionSpec, ObservationSpec


class Field(NamedTuple):
    """Shape and dtype of one field of a transition."""

    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32


Fields = Mapping[str, Field]
OBSERVATIONS = ("obs", "next_obs")
"""Fields of a transition that hold observations."""


def transition_fields(observation: ObservationSpec) -> dict[str, Field]:
    """Return the fields that every transition has. `next_obs` is the true one, also at an episode's end."""
    obs = Field(observation.shape, getattr(torch, observation.dtype))
    flag = Field(dtype=torch.bool)
    return {"obs": obs, "next_obs": obs, "rewards": Field(), "terminated": flag, "truncated": flag}


def action_field(action: ActionSpec) -> Field:
    """Return the field of an action, raw or executed; choices beside continuous numbers are float32, as they are."""
    return Field((action.size,), torch.float32 if action.low else torch.int64)
