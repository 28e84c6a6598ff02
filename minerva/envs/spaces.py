"""Check an environment's spaces and make rows of its observations: one row in, bounded numbers or choices out."""

import contextlib
import dataclasses
import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from minerva.envs.frames import FrameBox
from minerva.errors import EnvError
from minerva.layout import CHOICES, IMAGE, TUPLE, Layout, is_image, leaves, rows
from minerva.spec import LARGEST, ActionSpec, ObservationSpec


def prepared(env: gym.Env[Any, Any], name: str) -> gym.Env[Any, Any]:
    """Return the environment with observations as rows; raise EnvError if its spaces are not supported.

    A Dict observation becomes its entries one after another in the order of the space's keys, whatever the order in the
    observation. gymnasium sorts the keys of a space made from a plain dict by name, so dm_control's are sorted by name.
    """
    for space in ("action_space", "observation_space"):
        if not hasattr(env, space):
            raise EnvError(f"{name} has no {space}: set it in its __init__, or as an attribute of its class.")
    _check_actions(env.action_space, name)
    layout = observation_layout(env.observation_space, name)
    masked = _gives_masks(env)
    return Rows(env, layout, masked) if masked or layout is not None else env


def specs(env: gym.Env[Any, Any]) -> tuple[ObservationSpec, ActionSpec]:
    """Return the specs of a prepared environment's observations, as rows, and actions."""
    action = action_spec(env.action_space)
    if not isinstance(env, Rows):
        return ObservationSpec((spaces.flatdim(env.observation_space),)), action
    action = dataclasses.replace(action, masked=env.masked)
    if env.layout is None:
        return ObservationSpec((spaces.flatdim(env.env.observation_space) + action.mask_size,)), action
    frames = tuple(stacked_frames(env.env.observation_space))
    return ObservationSpec.of_layout(env.layout, action.mask_size, frames), action


class OddObservationError(ValueError):
    """An observation that does not have the form of the environment's space."""


class Rows(gym.Wrapper[Any, Any, Any, Any]):
    """Gives each observation as one row: all numbers, then all images; `layout` None stands for a vector.

    If the environment gives masks, `info["action_mask"]` follows the numbers: 1 for each possible choice, 0 for the
    others; where it gives none, all are possible. So a mask is stored, sent and saved wherever its observation is.
    """

    def __init__(self, env: gym.Env[Any, Any], layout: Layout, masked: bool) -> None:
        super().__init__(env)
        self.layout, self.masked = layout, masked
        self.mask = np.ones(sum(action_spec(env.action_space).counts), np.bool_)
        spec, _ = specs(self)
        low, high = (0, 255) if spec.images else (-np.inf, np.inf)
        self.observation_space = spaces.Box(low, high, spec.shape, np.dtype(spec.dtype).type)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Return the first observation with its mask."""
        obs, info = super().reset(**options)
        return self._checked_row(obs, info, ended=False), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Return the step with the next observation's mask."""
        obs, reward, terminated, truncated, info = super().step(action)
        return self._checked_row(obs, info, terminated or truncated), reward, terminated, truncated, info

    def _checked_row(self, obs: Any, info: dict[str, Any], ended: bool) -> Any:
        try:
            return self._row(obs, info, ended)
        except ValueError as error:
            raise OddObservationError(str(error)) from None

    def _row(self, obs: Any, info: dict[str, Any], ended: bool) -> Any:
        if not self.masked:
            return rows(self.layout, obs)
        given, action = info.get("action_mask"), action_spec(self.action_space)
        mask = np.ones_like(self.mask) if given is None else action.flat_mask(given).ravel()
        self.mask = action.checked_mask(mask, chosen=not ended)
        if self.layout is not None:
            return rows(self.layout, obs, self.mask)
        return np.concatenate((obs, self.mask), dtype=np.float32, casting="unsafe")


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
        raise EnvError(
            f"{name} has actions of shape {space.shape}: they must be a vector. Give it one with "
            "gymnasium.wrappers.TransformAction(env, lambda action: action.reshape(...), action_space)."
        )
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


def observation_layout(space: spaces.Space[Any], name: str) -> Layout:
    """Return how an environment gives observations, None for vectors; raise EnvError if they are not supported."""
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and space.shape[0] > 0:
        return None
    layout = _layout(space, name)
    if not leaves(layout):
        raise _nothing(name)
    return layout


def stacked_frames(space: spaces.Space[Any]) -> list[int]:
    """Return how many frames each image of a supported space stacks, in the order of a row."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return [frames for part in parts for frames in stacked_frames(part)]
    if isinstance(space, FrameBox):
        return [space.frames]
    return [1] if isinstance(space, spaces.Box) and is_image(_box_layout(space, "")) else []


def _nothing(name: str) -> EnvError:
    return EnvError(f"{name} has an empty observation, or one with an empty entry: there is nothing to learn from it.")


def _layout(space: spaces.Space[Any], name: str) -> Any:
    match space:
        case spaces.Dict():
            return {key: _layout(part, name) for key, part in space.spaces.items()}
        case spaces.Tuple():
            return [TUPLE, *(_layout(part, name) for part in space.spaces)]
        case spaces.Discrete():
            return [CHOICES, [], [int(space.start)], [int(space.n)]]
        case spaces.MultiDiscrete():
            return [CHOICES, list(space.shape), space.start.ravel().tolist(), space.nvec.ravel().tolist()]
        case spaces.MultiBinary():
            return list(space.shape)
        case spaces.Box():
            return _box_layout(space, name)
    raise EnvError(
        f"{name} has observations of the space {space}: Minerva takes Box, Discrete, MultiDiscrete, MultiBinary, and a "
        "Dict or Tuple of them. Give it one of these with gymnasium.wrappers.TransformObservation."
    )


def _box_layout(space: spaces.Box, name: str) -> Any:
    """Return the layout of an array: an image if it has two or three axes of bytes, or three of flags."""
    shape, axes = list(space.shape), len(space.shape)
    if not math.prod(shape):
        raise _nothing(name)
    if space.dtype == np.uint8 and axes > 3:
        raise EnvError(
            f"{name} observes images of shape {space.shape}: an image has height, width and channels. "
            "minerva.envs.frames.StackedFrames stacks frames along the channels."
        )
    if space.dtype == np.uint8 and axes >= 2:
        return [IMAGE, 255, *shape]
    return [IMAGE, 1, *shape] if space.dtype == np.bool_ and axes == 3 else shape
