"""Collecting in tests: rollouts made for an engine, filled by a stack of agents."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from minerva.data.fields import action_field, transition_fields
from minerva.data.replay import Replay
from minerva.data.rollout import Rollout, RolloutWriter
from minerva.envs.engine import Engine, Episode
from minerva.loop.collector import LocalCollector
from minerva.loop.stacking import Stack, joined_state
from minerva.spec import ActionSpec, ObservationSpec


def make_rollout(steps: int, num_envs: int, obs_dim: int, act_dim: int) -> Rollout:
    """A rollout on the CPU for observations and actions of these sizes."""
    action = ActionSpec.continuous([-1.0] * act_dim, [1.0] * act_dim)
    fields = {**transition_fields(ObservationSpec((obs_dim,))), "actions_raw": action_field(action)}
    return Rollout(steps, num_envs, fields, torch.device("cpu"))


def collect(envs: Engine, stack: Stack, rollouts: Sequence[Rollout]) -> list[Episode]:
    """Fill the rollouts; the episodes that ended meanwhile."""
    return LocalCollector(envs).fill_rollouts(stack, RolloutWriter(rollouts, joined_state(rollouts)))


def drawn(source: np.random.Generator, envs: Engine) -> Tensor:
    """Uniform actions for every environment."""
    return torch.from_numpy(envs.action.random(envs.obs.cpu().numpy(), source))


def rows_of(replay: Replay) -> Tensor:
    """All rows of a replay whose fields are float32.  [steps, E, width]"""
    rows: Tensor = replay.state["storage"]["float32"]
    return rows
