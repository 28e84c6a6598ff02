"""EnvPool: tasks of gymnasium and dm_control and games of Atari, stepped by C++ threads.

gymnasium's environment remains the definition of a task: the order of its observations and the bounds of its actions
are read from one copy of it, and EnvPool's task of that name must match. A game of Atari differs in two things: it
begins with one idle frame also with sticky actions, and where `life_loss` ends an episode, the next one continues the
game with the next life, until none is left.
"""

import dataclasses
import importlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

from minerva.envs.engine import numbers_in
from minerva.envs.engines.host import Arrays, HostEngine
from minerva.envs.games import ATARI, IDLE_FRAMES
from minerva.envs.ids import DM_CONTROL, EnvLike, Task, env_name, factory, full_id, is_dm_control
from minerva.envs.mujoco_log import route_warnings
from minerva.envs.spaces import prepared, specs
from minerva.errors import EnvError, pip_install
from minerva.layout import Array

GYMNASIUM_TASKS = (
    *("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5", "InvertedDoublePendulum-v5"),
    *("InvertedPendulum-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5", "Walker2d-v5"),
    *("Pendulum-v1", "MountainCarContinuous-v0", "CartPole-v1", "Acrobot-v1", "MountainCar-v0"),
)
"""gymnasium's tasks that EnvPool has unchanged; its v4 tasks, for example, observe forces that gymnasium's do not."""

IN_NAME_ONLY = (
    *("dm_control/lqr/lqr_2_1", "dm_control/lqr/lqr_6_2"),
    *("dm_control/cartpole/two_poles", "dm_control/cartpole/three_poles"),
)
"""Tasks that differ: EnvPool's lqr terminates and has other springs in each environment; its second and third poles
start almost straight."""

GAME_OPTIONS = ("sticky", "frame_skip", "life_loss", "clip_rewards")
"""Arguments of a game of Atari that EnvPool has too."""

NO_LIMIT = 2**31 - 1
"""Disables EnvPool's time limit, which would report a termination in an episode's last step as a truncation."""

INFO = "info:"
"""Prefix of the names of what EnvPool reports beside observations and rewards."""

SEEDS = 2**31
"""Exclusive upper bound of EnvPool's seeds."""

THREADS = "MINERVA_ENV_THREADS"
"""Environment variable: maximum number of threads that step environments. Default: the number of cores."""


class EnvPoolEngine(HostEngine):
    """An EnvPool with one thread per environment, at most one per core.

    EnvPool resets an environment on the step after its episode's end. That never happens here, because an ended
    environment is reset before it is stepped again.
    """

    name = "envpool"
    resumes_exactly = False

    def __init__(self, env: EnvLike, num_envs: int, share: int = 1) -> None:
        """Read the specs of the task; `share` engines share the machine's cores."""
        reason = self.unavailable_reason(env)
        if reason is not None:
            raise EnvError(f"The engine envpool cannot be used: {reason}. The engine gymnasium steps everything.")
        name, given = env_name(env), dict(env.kwargs) if isinstance(env, Task) else {}
        self._envpool, self._task = _envpool(), _task(name)
        self._game, self._by_life = name.startswith(ATARI), bool(given.get("life_loss"))
        self._options = _game_options(**given) if self._game else {"max_episode_steps": NO_LIMIT}
        route_warnings()
        reference = factory(env)()
        self._entries = _entries(reference.observation_space)
        observation, action = specs(prepared(reference, name))
        if self._by_life:  # an episode may begin amid a game, with frames of the life before
            observation = dataclasses.replace(observation, frames=())
        super().__init__(name, num_envs, observation, action)
        reference.close()
        self._threads = min(
            cores(), -(-2 * cores() // share)
        )  # twice its share, because pools are idle part of the time
        self._read_spec(self._envpool.make_spec(self._task))
        self._ids = np.arange(num_envs, dtype=np.int32)
        self._pool: Any = None
        self._infos: dict[int, dict[str, float]] = {}

    @classmethod
    def make(cls, env: EnvLike, num_envs: int, share: int, device: torch.device) -> "EnvPoolEngine":
        """Make a pool of `num_envs` environments."""
        return cls(env, num_envs, share)

    @classmethod
    def unavailable_reason(cls, env: EnvLike) -> str | None:
        """Return why EnvPool cannot step this environment here, with the fix if there is one; None if it can."""
        if not isinstance(env, (str, Task)):
            return f"EnvPool steps what is given by id, and {env_name(env)} is given as an object"
        name = full_id(env_name(env))
        if isinstance(env, Task) and not (name.startswith(ATARI) and set(env.kwargs) <= set(GAME_OPTIONS)):
            return f"EnvPool steps tasks as they are registered, and {env} has arguments"
        if name in IN_NAME_ONLY or not (name in GYMNASIUM_TASKS or is_dm_control(name) or name.startswith(ATARI)):
            return f"EnvPool does not have {name}"
        if importlib.util.find_spec("envpool") is None:
            return f"EnvPool is not installed: {pip_install('envpool')}"
        try:
            envpool = _envpool()
            if _task(name) not in envpool.list_all_envs():
                return f"EnvPool does not have {name}"
            envpool.make_spec(_task(name))  # loads the task's simulator
        except ImportError as error:
            return f"EnvPool cannot be loaded ({error}): on Debian, apt-get install libegl1 libgl1 libopengl0"
        return None

    def _read_spec(self, spec: Any) -> None:
        """Read EnvPool's spec of the task; raise EnvError if it differs from the reference environment."""
        arrays, actions = spec.state_array_spec, spec.action_array_spec["action"]
        sizes = {name: int(np.prod(array.shape)) for name, array in arrays.items()}
        low, high = np.float64(actions.minimum), np.float64(actions.maximum)
        lowest, highest = self.action.range
        if not (np.allclose(low, lowest) and np.allclose(high, highest)) or any(
            sizes.get(name) != size for name, size in self._entries
        ):
            raise EnvError(f"EnvPool's {self._task} has other observations or actions: use the engine gymnasium.")
        self._index = {name: i for i, name in enumerate(arrays)}
        self._action_dtype, self._action_shape = actions.dtype, () if self.action.kind == "discrete" else (-1,)
        self._limit: int = spec.config.max_episode_steps

    def reset_arrays(self, mask: Array, seeds: Sequence[int] | None = None) -> Array:
        """Reset the environments of `mask`. EnvPool takes seeds when a pool is made: new seeds make a new pool."""
        if seeds is not None:
            self._pool = self._envpool.make_gymnasium(
                self._task,
                num_envs=self.num_envs,
                num_threads=min(self.num_envs, self._threads),
                seed=[int(seed) % SEEDS for seed in seeds],
                **self._options,
            )
        ids = self._ids[mask]
        if seeds is None and self._by_life:  # stepped after an episode's end, it goes on with the next life
            self._pool._send([ids, ids, np.zeros(len(ids), self._action_dtype)])
        else:
            self._pool._reset(ids)
        return self._flat(self._pool._recv())

    def send_arrays(self, actions: Array) -> None:
        """Start a step; the environments step while the caller does other work."""
        # private, because the overhead of the public `send` and `recv` is about a step of HalfCheetah
        shaped = actions.astype(self._action_dtype).reshape(self.num_envs, *self._action_shape)
        self._pool._send([self._ids, self._ids, shaped])

    def recv_arrays(self) -> Arrays:
        """Wait for the step and return its arrays. Rows come back in the order in which they were sent."""
        state = self._pool._recv()
        rewards, terminated = state[self._index["reward"]], state[self._index["done"]]
        if self._game:  # EnvPool has to know the limit of a game, after which it begins a new one
            truncated = state[self._index["trunc"]].astype(np.bool_)
            terminated = terminated & ~truncated
        else:
            truncated = state[self._index["elapsed_step"]] >= self._limit
        self._infos = {int(i): self._info(state, int(i)) for i in np.flatnonzero(terminated | truncated)}
        return self._flat(state), rewards.astype(np.float64), terminated, truncated

    def close(self) -> None:
        """Release the pool."""
        self._pool = None

    def ended_infos(self) -> Mapping[int, Mapping[str, float]]:
        """Return the numbers in the `info` of each environment whose episode ended in the last step."""
        return self._infos

    def _info(self, state: list[Array], row: int) -> dict[str, float]:
        """Return the numbers that EnvPool names `info:<name>`, of one environment."""
        infos = {name: place for name, place in self._index.items() if name.startswith(INFO)}
        return numbers_in({name.removeprefix(INFO): state[place][row] for name, place in infos.items()})

    def _flat(self, state: list[Array]) -> Array:
        """Return the observations in an EnvPool state, flattened in gymnasium's order.  -> [E, O]"""
        if self.observation.images:
            return state[self._index["obs"]].reshape(-1, self.observation.size)
        entries = [state[self._index[name]].reshape(-1, size) for name, size in self._entries]
        return np.concatenate(entries, axis=1, dtype=np.float32, casting="same_kind")


def _envpool() -> Any:
    """Import EnvPool and undo its changes to os.environ (it sets variables for matplotlib)."""
    before = dict(os.environ)
    try:
        return importlib.import_module("envpool")
    finally:
        os.environ.clear()
        os.environ.update(before)


def _task(env_id: str) -> str:
    """Return EnvPool's name of a task: dm_control/ball_in_cup/catch is BallInCupCatch-v1, Atari/Pong-v5 is Pong-v5."""
    if env_id.startswith(ATARI):
        return full_id(env_id).removeprefix(ATARI)
    if not is_dm_control(env_id):
        return env_id
    words = env_id.removeprefix(DM_CONTROL).replace("/", "_").split("_")
    return "".join(word[:1].upper() + word[1:] for word in words) + "-v1"


def _game_options(
    sticky: float = 0.25, frame_skip: int = 4, life_loss: bool = False, clip_rewards: bool = False
) -> dict[str, Any]:
    """Return EnvPool's options for a game of Atari with these arguments; it plays at least one idle frame."""
    return {
        "repeat_action_probability": sticky,
        "frame_skip": frame_skip,
        "episodic_life": life_loss,
        "reward_clip": clip_rewards,
        "noop_max": 1 if sticky else IDLE_FRAMES,
        "use_fire_reset": False,
    }


def _entries(space: gym.Space[Any]) -> list[tuple[str, int]]:
    """Return EnvPool's name and the size of each entry of an observation, in gymnasium's flattening order.

    EnvPool keeps the order of dm_control's code, and gives all tasks of a domain the entries that any of them observes.
    """
    if isinstance(space, spaces.Dict):
        return [(f"obs:{name}", spaces.flatdim(part)) for name, part in space.spaces.items()]
    return [("obs", spaces.flatdim(space))]


def cores() -> int:
    """Return the number of cores that this process may use, or the value of `MINERVA_ENV_THREADS`."""
    limit = os.environ.get(THREADS, "")
    if limit.isdigit():
        return max(int(limit), 1)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
