"""What a row of experience consists of, field by field, each with its own shape and dtype."""

from collections.abc import Mapping
from typing import NamedTuple

import torch

from minerva.spec import ActionSpec, ObservationSpec


class Field(NamedTuple):
    """Shape and dtype of one field of a row."""

    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32


Fields = Mapping[str, Field]


def transition_fields(observation: ObservationSpec) -> dict[str, Field]:
    """Return the fields that every transition has. `next_obs` is the true next observation, also at an end."""
    seen = Field(observation.shape, getattr(torch, observation.dtype))
    flag = Field(dtype=torch.bool)
    return {"obs": seen, "next_obs": seen, "rewards": Field(), "terminated": flag, "truncated": flag}


def action_field(action: ActionSpec) -> Field:
    """Return the field of an action, raw or executed."""
    return Field((action.size,), torch.float32 if action.kind == "continuous" else torch.int64)
