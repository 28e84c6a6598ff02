"""Load and use a trained policy. It needs only the checkpoint: no simulator, no environment."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from minerva.errors import CheckpointError, MinervaError
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.folder import find_checkpoint
from minerva.spec import ActionSpec, ObservationSpec
from minerva.trainers.registry import agent_class, config_class

Array = np.ndarray[Any, np.dtype[Any]]


class Policy:
    """A trained policy: observations to actions in the environment's units, observation normaliser included."""

    def __init__(self, agent: Any, about: dict[str, Any]) -> None:
        self.agent = agent
        self.about = about
        self.observation = ObservationSpec.from_dict(about["observation"])
        self.action = ActionSpec.from_dict(about["action"])

    def __repr__(self) -> str:
        made = f"{self.about['algo']} on {self.about['env']}, seed {self.about['seed']}, step {self.about['step']:,}"
        return f"Policy({made}, evaluated return {self.about['return']:,.1f})"

    def act(self, observation: Array, deterministic: bool = True) -> Array:
        """Return the action for one observation [O], or the actions for a batch [B, O]."""
        observation = np.asarray(observation, np.float32)
        if observation.shape[-1:] != self.observation.shape:
            raise CheckpointError(
                f"The observation has shape {observation.shape}: the policy was trained on {self.about['env']}, whose "
                f"observations have {self.observation.size} numbers."
            )
        actions = self.agent.policy_action(observation, deterministic).cpu().numpy()
        return self.action.to_environment(actions).astype(np.float32)


def load_policy(path: str | Path, which: str = "best", device: str = "cpu") -> Policy:
    """Load the policy of a run folder (its best checkpoint, or with `which="last"` its last) or of a file."""
    file = find_checkpoint(Path(path), which)
    about, state = load_checkpoint(file)
    try:
        _check_network_size(about, file.stat().st_size)
        made = agent_class(about["algo"])
        # a setting that did not exist yet has the value that stands for its absence
        config = config_class(about["algo"]).from_dict({**made.BY_HAND, **about["hyperparameters"]})
        sizes = ObservationSpec.from_dict(about["observation"]).size, ActionSpec.from_dict(about["action"]).size
        agent = made.from_config(*sizes, config, device=device)
        agent.load_policy(state["trainer"]["agent"])
        return Policy(agent, about)
    except (RuntimeError, KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, MinervaError):
            raise
        raise CheckpointError(f"{file} does not fit its own config: {str(error).splitlines()[0]}") from None


def _check_network_size(about: dict[str, Any], size: int) -> None:
    """Raise ValueError, before networks are allocated, if they are too large for a file of `size` bytes."""
    for name, layers in about["hyperparameters"].items():
        if name.endswith("layer_sizes"):
            widths = [*about["observation"]["shape"], *layers, len(about["action"]["low"])]
            if not all(type(width) is int for width in widths) or max(map(math.prod, pairwise(widths))) > size:
                raise ValueError(f"{name} is {layers}, more than the file can hold")
