"""The horizon of a task: counts of its episodes, from which discount and traces follow where no setting gives them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.tree import Tree, copy_
from minerva.formulas.horizon import SHORTEST, discount, horizon, trace

RULES = {"gamma": discount, "gae_lambda": trace}
"""Settings that follow from the horizon where they are None."""


def left_open(config: Any) -> list[str]:
    """Return the settings of a config that follow from the horizon."""
    return [name for name in RULES if getattr(config, name) is None]


def settings_of(steps_ahead: Tensor) -> dict[str, Tensor]:
    """Return the settings that follow from a horizon."""
    return {name: rule(steps_ahead) for name, rule in RULES.items()}


def settings_before_episodes(given: Mapping[str, Any]) -> dict[str, float]:
    """Return the settings as they are given, and where they are None those of the shortest horizon."""
    derived = settings_of(torch.tensor(float(SHORTEST), dtype=torch.float64))
    return {name: derived[name].item() if given[name] is None else given[name] for name in RULES}


def with_settings_of(rollout: Mapping[str, Tensor], hyper: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the numbers of an update with those that come with its rollout, as they follow from the horizon."""
    return {**hyper, **{name: rollout[name] for name in RULES if name in rollout}}


def discount_metric(rollout: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the discount as a metric, if it follows from the horizon and so comes with the rollout."""
    return {"charts/discount": rollout["gamma"]} if "gamma" in rollout else {}


class Horizon:
    """Counts steps and episodes of rollouts; where none terminates, rewards count as far ahead as episodes are long."""

    def __init__(self, device: torch.device | None = None) -> None:
        names = ("steps", "truncated", "terminated")
        self.state: Tree = {name: torch.zeros((), dtype=torch.float64, device=device) for name in names}

    @staticmethod
    def measured(
        state: Tree, terminated: Tensor, ended: Tensor, ranks: Ranks = SINGLE
    ) -> tuple[Tree, dict[str, Tensor]]:
        """Return the state with a rollout [T, E] of all ranks counted, and the settings that follow from it."""
        found = {"steps": torch.ones_like(ended), "truncated": ended - terminated, "terminated": terminated}
        state = {name: state[name] + ranks.count * ranks.mean(rows.double().sum()) for name, rows in found.items()}
        return state, settings_of(horizon(**state))

    def move(self, state: Tree) -> None:
        """Use these tensors, which hold equal values, as the storage of the state."""
        self.state = state

    def state_dict(self) -> Tree:
        """Return the counts."""
        return self.state

    def load_state_dict(self, state: Tree) -> None:
        """Load a state made by `state_dict`."""
        copy_(self.state, state)
