"""A trained policy, for use outside of training. Needs the checkpoint alone: no simulator, no environment."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from minerva.errors import CheckpointError, MinervaError
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.folder import find_checkpoint
from minerva.spec import to_bounds
from minerva.trainers.registry import agent_class, config_class

Array = np.ndarray[Any, np.dtype[Any]]


class Policy:
    """Maps observations to actions in the environment's own units; the normaliser is inside."""

    def __init__(self, agent: Any, about: dict[str, Any]) -> None:
        self.agent = agent
        self.about = about
        self.low = np.asarray(about["action_low"], np.float64)
        self.high = np.asarray(about["action_high"], np.float64)

    def __repr__(self) -> str:
        made = f"{self.about['algo']} on {self.about['env']}, seed {self.about['seed']}, step {self.about['step']:,}"
        return f"Policy({made}, evaluated return {self.about['return']:,.1f})"

    def act(self, observation: Array, deterministic: bool = True) -> Array:
        """The action for one observation [O], or the actions for a batch [B, O]."""
        observation = np.asarray(observation, np.float32)
        if observation.shape[-1:] != (self.about["obs_dim"],):
            raise CheckpointError(
                f"The observation has shape {observation.shape}: the policy was trained on {self.about['env']}, whose "
                f"observations have {self.about['obs_dim']} numbers."
            )
        actions = self.agent.policy_action(observation, deterministic).cpu().numpy()
        return to_bounds(actions, self.low, self.high).astype(np.float32)


def load_policy(path: str | Path, which: str = "best", device: str = "cpu") -> Policy:
    """The policy of a run's folder (its best, or with `which="last"` its last checkpoint) or of a checkpoint file."""
    file = find_checkpoint(Path(path), which)
    about, state = load_checkpoint(file)
    try:
        _refuse_giants(about, file.stat().st_size)
        config = config_class(about["algo"]).from_dict(about["hyperparameters"])
        agent = agent_class(about["algo"]).from_config(about["obs_dim"], about["act_dim"], config, device=device)
        agent.load_policy(state["trainer"]["agent"])
        return Policy(agent, about)
    except (RuntimeError, KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, MinervaError):
            raise
        raise CheckpointError(f"{file} does not fit its own config: {str(error).splitlines()[0]}") from None


def _refuse_giants(about: dict[str, Any], size: int) -> None:
    """Networks are made before they are filled: one that could not have come from the file is not even made."""
    for name, layers in about["hyperparameters"].items():
        if name.endswith("layer_sizes"):
            widths = [about["obs_dim"], *layers, about["act_dim"]]
            if not all(type(width) is int for width in widths) or max(map(math.prod, pairwise(widths))) > size:
                raise ValueError(f"{name} is {layers}, more than the file can hold")
