"""Minerva: MPO, V-MPO and PPO for control, with continuous or discrete actions.

>>> import minerva
>>> result = minerva.train("ppo", "Pendulum-v1")
>>> policy = minerva.load_policy(result.folder)
>>> action = policy.act(observation)
"""

import importlib
from typing import TYPE_CHECKING, Any

from minerva.trainers.registry import class_homes
from minerva.version import __version__ as __version__

if (
    TYPE_CHECKING
):  # for editors and type checkers only: an algorithm that is not listed here works, with names of type Any
    from minerva.api import evaluate as evaluate
    from minerva.api import train as train
    from minerva.api import train_seeds as train_seeds
    from minerva.envs.warp.own import MujocoTask as MujocoTask
    from minerva.policy import Policy as Policy
    from minerva.policy import load_policy as load_policy
    from minerva.runs.callbacks import Callback as Callback
    from minerva.runs.callbacks import Schedule as Schedule
    from minerva.runs.loggers import LoggedRun as LoggedRun
    from minerva.runs.loggers import Logger as Logger
    from minerva.trainers.mpo.agent import MPOAgent as MPOAgent
    from minerva.trainers.mpo.config import MPOConfig as MPOConfig
    from minerva.trainers.mpo.trainer import MPOTrainer as MPOTrainer
    from minerva.trainers.ppo.agent import PPOAgent as PPOAgent
    from minerva.trainers.ppo.config import PPOConfig as PPOConfig
    from minerva.trainers.ppo.trainer import PPOTrainer as PPOTrainer
    from minerva.trainers.sac.agent import SACAgent as SACAgent
    from minerva.trainers.sac.config import SACConfig as SACConfig
    from minerva.trainers.sac.trainer import SACTrainer as SACTrainer
    from minerva.trainers.vmpo.agent import VMPOAgent as VMPOAgent
    from minerva.trainers.vmpo.config import VMPOConfig as VMPOConfig
    from minerva.trainers.vmpo.trainer import VMPOTrainer as VMPOTrainer

# Imported on first use: acting with a trained policy needs no simulator, and `import minerva` needs no torch.
_HOMES = {
    "train": "minerva.api",
    "train_seeds": "minerva.api",
    "evaluate": "minerva.api",
    "load_policy": "minerva.policy",
    "Policy": "minerva.policy",
    "MujocoTask": "minerva.envs.warp.own",
    "Callback": "minerva.runs.callbacks",
    "Schedule": "minerva.runs.callbacks",
    "Logger": "minerva.runs.loggers",
    "LoggedRun": "minerva.runs.loggers",
    **class_homes(),
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'minerva' has no attribute {name!r}")
