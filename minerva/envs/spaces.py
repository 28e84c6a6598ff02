"""Check an environment's spaces and flatten its observations: a flat vector in, bounded numbers or choices out."""

import contextlib
import dataclasses
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation

from minerva.errors import EnvError
from minerva.spec import LARGEST, ActionSpec, Layout, ObservationSpec


def prepared(env: gym.Env[Any, Any], name: str) -> gym.Env[Any, Any]:
    """Return the environment with one-dimensional observations; raise EnvError if its spaces are not supported.

    A Dict observation becomes its entries concatenated in the order of the space's keys, whatever the order in the
    observation. gymnasium sorts the keys of a space made from a plain dict by name, so dm_control's are sorted by name.
    """
    _check_actions(env.action_space, name)
    _check_observations(env.observation_space, name)
    if not (isinstance(env.observation_space, spaces.Box) and len(env.observation_space.shape) == 1):
        env = FlattenObservation(env)
    return ShowMask(env) if _gives_masks(env) else env


def specs(env: gym.Env[Any, Any]) -> tuple[ObservationSpec, ActionSpec]:
    """Return the specs of a prepared environment's observations, as float32, and actions."""
    flattened = env.env if isinstance(env, ShowMask) else env
    layout = _layout(flattened.env.observation_space) if isinstance(flattened, FlattenObservation) else None
    observation = ObservationSpec((spaces.flatdim(env.observation_space),), layout=layout)
    return observation, dataclasses.replace(action_spec(env.action_space), masked=isinstance(env, ShowMask))


def _layout(space: spaces.Space[Any]) -> Layout:
    """Return how a policy flattens an observation; None for spaces that only gymnasium flattens."""
    if isinstance(space, spaces.Dict):
        parts = {name: _layout(part) for name, part in space.spaces.items()}
        return None if None in parts.values() else parts
    return list(space.shape) if isinstance(space, spaces.Box) else None


class ShowMask(gym.Wrapper[Any, Any, Any, Any]):
    """Appends `info["action_mask"]` to the observation: 1 for each possible choice, 0 for the others.

    So a mask is stored, sent and saved wherever its observation is. Where the environment gives none, all are possible.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.choices = sum(action_spec(env.action_space).counts)
        self.mask = np.ones(self.choices, np.bool_)
        size = spaces.flatdim(env.observation_space) + self.choices
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Return the first observation with its mask."""
        obs, info = super().reset(**options)
        return self._shown(obs, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Return the step with the next observation's mask."""
        obs, reward, terminated, truncated, info = super().step(action)
        return self._shown(obs, info), reward, terminated, truncated, info

    def _shown(self, obs: Any, info: dict[str, Any]) -> Any:
        given = info.get("action_mask")
        mask = np.ones(self.choices) if given is None else _flat_mask(given, self.action_space)
        if len(mask) != self.choices:
            raise ValueError(f"its action_mask has {len(mask)} entries, and its actions have {self.choices} choices")
        self.mask = mask != 0
        return np.concatenate((obs, self.mask), dtype=np.float32, casting="unsafe")


def _flat_mask(mask: Any, space: spaces.Space[Any]) -> Any:
    """Return a mask, or a structure of masks like that of the actions, as one vector in the order of the choices."""
    if isinstance(space, spaces.Dict):
        parts = [_flat_mask(mask[name], part) for name, part in space.spaces.items() if action_spec(part).counts]
        return np.concatenate(parts)
    if isinstance(space, spaces.Tuple):
        return np.concatenate([_flat_mask(mask[n], part) for n, part in enumerate(space) if action_spec(part).counts])
    return np.concatenate([np.ravel(part) for part in mask])


def _gives_masks(env: gym.Env[Any, Any]) -> bool:
    """Return whether an environment with choices gives masks of them: its first reset tells."""
    if not action_spec(env.action_space).counts:
        return False
    with contextlib.suppress(Exception):  # whatever it raises, it raises again when it is reset to be stepped
        return "action_mask" in env.reset(seed=0)[1]
    return False


def action_spec(space: spaces.Space[Any]) -> ActionSpec:
    """Return the spec of a space of actions."""
    match space:
        case spaces.Discrete():
            return ActionSpec.discrete(int(space.n), int(space.start), str(space.dtype))
        case spaces.MultiDiscrete():
            return ActionSpec.multi_discrete(space.nvec.tolist(), space.start.tolist(), str(space.dtype))
        case spaces.MultiBinary():
            return ActionSpec.multi_discrete([2] * space.shape[0], dtype=str(space.dtype))
        case spaces.Box():
            return ActionSpec.continuous(space.low, space.high)
        case spaces.Dict():
            return ActionSpec.compound([action_spec(part) for part in space.spaces.values()], list(space.spaces))
        case spaces.Tuple():
            return ActionSpec.compound([action_spec(part) for part in space.spaces])
    raise TypeError(f"no spec for {space}")


def _check_actions(space: spaces.Space[Any], name: str) -> None:
    if isinstance(space, spaces.Discrete):
        return
    if isinstance(space, (spaces.Dict, spaces.Tuple)) and len(space.spaces):
        for part in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            _check_actions(part, name)
        return
    if not isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box)):
        raise EnvError(
            f"{name} has the action space {space}: Minerva takes Box, Discrete, MultiDiscrete, MultiBinary, and a Dict "
            "or Tuple of them. Give it one of these with gymnasium.wrappers.TransformAction."
        )
    if len(space.shape) != 1 or space.shape[0] == 0:
        raise EnvError(f"{name} has actions of shape {space.shape}: they must be a vector. Flatten them in a wrapper.")
    if isinstance(space, spaces.Box):
        _check_box(space, name)


def _check_box(space: spaces.Box, name: str) -> None:
    if not np.issubdtype(space.dtype, np.floating):
        raise EnvError(
            f"{name} has the action space {space}: a Box of actions has to be of floats, and whole numbers a "
            "MultiDiscrete. Give it one with gymnasium.wrappers.TransformAction."
        )
    if not (np.all(np.abs(space.low) <= LARGEST) and np.all(np.abs(space.high) <= LARGEST)):
        raise EnvError(
            f"{name} has unbounded actions: give them finite bounds (float32 ends at {LARGEST:.2g}), in its "
            "action_space or with gymnasium.wrappers.TransformAction(env, func, action_space)."
        )
    if not np.all(space.low < space.high):
        raise EnvError(f"{name} has an action whose lower bound is not below its upper bound: {space}.")


def _check_observations(space: spaces.Space[Any], name: str) -> None:
    for part in _parts(space):
        if isinstance(part, spaces.Box) and part.dtype == np.uint8 and len(part.shape) >= 2:
            raise EnvError(
                f"{name} observes images of shape {part.shape}: Minerva learns from state vectors. "
                "Use the task's state observations."
            )
    if not getattr(space, "is_np_flattenable", False):
        raise EnvError(f"{name} has observations ({type(space).__name__}) that cannot be flattened into a vector.")
    if spaces.flatdim(space) == 0:
        raise EnvError(f"{name} has an empty observation: there is nothing to learn from.")


def _parts(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    """Return the leaves of nested Dict and Tuple spaces."""
    if isinstance(space, spaces.Dict):
        return [leaf for part in space.spaces.values() for leaf in _parts(part)]
    if isinstance(space, spaces.Tuple):
        return [leaf for part in space.spaces for leaf in _parts(part)]
    return [space]
