"""A trained policy, for use outside of training. Needs the checkpoint alone: no simulator, no environment."""

from pathlib import Path
from typing import Any

import numpy as np

from minerva.errors import CheckpointError
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.folder import find_checkpoint
from minerva.trainers.registry import agent_class, config_class
from minerva.utils.scaling import to_bounds

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
    config = config_class(about["algo"]).from_dict(about["hyperparameters"])
    agent = agent_class(about["algo"]).from_config(about["obs_dim"], about["act_dim"], config, device=device)
    try:
        agent.load_policy(state["trainer"]["agent"])
    except (RuntimeError, KeyError) as error:
        raise CheckpointError(f"{file} does not fit its own config: {str(error).splitlines()[0]}") from None
    return Policy(agent, about)
