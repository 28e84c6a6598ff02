"""Many environments stepped together, under one rule for all engines.

A step returns the *true* next observation of every environment; those whose episode ended are reset at once, and
the observation to act on next is `obs`. So every row is data: a reset row, on which the action is ignored and
the reward is 0, never leaves this file.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from minerva.config import checked
from minerva.envs.engines.envpool import EnvPoolEngine, obstacle
from minerva.envs.engines.gymnasium import GymnasiumEngine
from minerva.envs.engines.subprocesses import ProcessEngine
from minerva.envs.ids import EnvLike, env_name
from minerva.envs.snapshot import NoSnapshotError, Snapshot
from minerva.errors import EnvError, EnvStepError
from minerva.spec import Array, to_bounds

EngineName = Literal["auto", "gymnasium", "envpool", "processes"]


class Episode(NamedTuple):
    """A finished episode, in the environment's own rewards."""

    env: int
    episode_return: float
    length: int


class Step(NamedTuple):
    """What one step of E environments gave."""

    next_obs: Array
    rewards: Array
    terminated: Array
    truncated: Array
    episodes: list[Episode]


class Engine(Protocol):
    """What an engine has to offer. A step is in two halves, so that the caller may work while environments step."""

    num_envs: int
    obs_dim: int
    action_low: Array
    action_high: Array

    @property
    def name(self) -> EngineName:
        """Under which it can be asked for."""

    def reset(self, seeds: Sequence[int | None], mask: Array | None = None) -> Array:
        """Start a new episode in the environments of `mask` (default all); observations of all."""

    def send(self, actions: Array) -> None:
        """Begin a step with actions in the environment's units and within its bounds, in float64."""

    def recv(self) -> tuple[Array, Array, Array, Array]:
        """Finish it: (next observation, reward, terminated, truncated) of every environment, none of them reset."""

    def close(self) -> None:
        """Free what the environments hold."""


class VectorEnv:
    """E environments, acted on with actions in [-1, 1]."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self.name = name
        self.engine: EngineName = engine.name
        self.num_envs = engine.num_envs
        self.obs_dim = engine.obs_dim
        self.act_dim = engine.action_low.shape[0]
        self.action_low, self.action_high = engine.action_low, engine.action_high
        self.obs: Array = np.zeros((self.num_envs, self.obs_dim), np.float32)
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._stepping = False

    def reset(self, seeds: Sequence[int]) -> Array:
        """Start a new episode everywhere, environment i seeded with `seeds[i]`; a step under way is forgotten."""
        self._stepping = False
        self._returns[:] = 0
        self._lengths[:] = 0
        self.obs = self._finite("observation", self._engine.reset(seeds))
        return self.obs

    def step(self, actions: Array) -> Step:
        """One environment step each. Where an episode ended, `obs` is already the next episode's first."""
        self.send(actions)
        return self.recv()

    def send(self, actions: Array) -> None:
        """Begin a step. What the caller does before `recv` goes on at the same time, if the engine has threads."""
        if self._stepping:
            raise EnvError(f"{self.name} was sent actions twice: call recv for the step under way first.")
        self._engine.send(to_bounds(actions, self.action_low, self.action_high))
        self._stepping = True

    def recv(self) -> Step:
        """Finish the step that `send` began."""
        if not self._stepping:
            raise EnvError(f"{self.name} has no step under way: call send first.")
        self._stepping = False
        next_obs, rewards, terminated, truncated = self._engine.recv()
        self._lengths += 1
        self._finite("observation", next_obs)
        self._finite("reward", rewards)
        self._returns += rewards
        self.obs = next_obs
        ended = terminated | truncated
        episodes = self._restart(ended) if ended.any() else []
        return Step(next_obs, rewards, terminated, truncated, episodes)

    def state_dict(self) -> dict[str, Any]:
        """Simulators and episodes under way, as arrays and plain values. `obstacle`: why the simulators are missing."""
        taken, obstacle = list[Snapshot](), ""
        try:
            taken = self._engine.snapshots()  # type: ignore[attr-defined]
        except NoSnapshotError as reason:
            obstacle = str(reason)
        except AttributeError:
            obstacle = f"{type(self._engine).__name__} cannot save its simulators"
        under_way = {"obs": self.obs, "returns": self._returns, "lengths": self._lengths}
        episodes = {name: values.copy() for name, values in under_way.items()}
        return {**episodes, "simulators": [one._asdict() for one in taken], "obstacle": obstacle}

    def load_state_dict(self, state: dict[str, Any]) -> str:
        """Go on where `state_dict` was made. If that cannot be, the reason: environments then have to be reset."""
        if state["obstacle"]:
            return str(state["obstacle"])
        try:
            self._engine.restore([Snapshot(**one) for one in state["simulators"]])  # type: ignore[attr-defined]
        except (NoSnapshotError, AttributeError, ValueError) as reason:
            return str(reason)
        self.obs = self.obs.copy()
        for name, values in (("obs", self.obs), ("returns", self._returns), ("lengths", self._lengths)):
            values[:] = state[name]
        return ""

    def under_way(self) -> list[tuple[float, int]]:
        """Return and length, so far, of each environment's current episode."""
        return [(float(total), int(length)) for total, length in zip(self._returns, self._lengths, strict=True)]

    def close(self) -> None:
        """Free what the environments hold."""
        self._engine.close()

    def _restart(self, ended: Array) -> list[Episode]:
        """Note the episodes that ended and begin new ones in their place."""
        which = np.flatnonzero(ended)
        episodes = [Episode(int(i), float(self._returns[i]), int(self._lengths[i])) for i in which]
        self._returns[which] = 0
        self._lengths[which] = 0
        self.obs = self._finite("observation", self._engine.reset([None] * self.num_envs, ended))
        return episodes

    def _finite(self, what: str, values: Array) -> Array:
        if not np.isfinite(values).all():
            i = int(np.flatnonzero(~np.isfinite(values.reshape(self.num_envs, -1)).all(1))[0])
            raise EnvStepError(
                f"{self.name} gave a non-finite {what} in environment {i} at step {self._lengths[i]} of its episode: "
                f"{values[i]}. Training cannot go on from it; mend the environment or clip its {what}s."
            )
        return values


class Joined(VectorEnv):
    """Vector environments of one shape, stepped at the same time and seen as one.

    What they know of their episodes lies in one array, of which theirs are views from now on.
    """

    def __init__(self, parts: Sequence[VectorEnv]) -> None:
        engines = _Engines([part._engine for part in parts])
        super().__init__(engines, parts[0].name)
        self._parts = list(zip(parts, engines.shares, strict=True))
        self.obs = np.concatenate([part.obs for part in parts])
        self._returns = np.concatenate([part._returns for part in parts])
        self._lengths = np.concatenate([part._lengths for part in parts])
        for part, own in self._parts:
            part._returns, part._lengths = self._returns[own], self._lengths[own]

    def recv(self) -> Step:
        """See `VectorEnv`."""
        step = super().recv()
        for part, own in self._parts:
            part.obs = self.obs[own]
        return step


class _Engines:
    """Engines of one shape as one; all are under way before the first is waited for."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        first, each, self._engines = engines[0], engines[0].num_envs, list(engines)
        self.name: EngineName = first.name
        self.num_envs, self.obs_dim = each * len(engines), first.obs_dim
        self.action_low, self.action_high = first.action_low, first.action_high
        self.shares = [slice(n * each, (n + 1) * each) for n in range(len(engines))]
        """The environments of each engine."""
        self._obs: Array = np.zeros((self.num_envs, self.obs_dim), np.float32)

    def reset(self, seeds: Sequence[int | None], mask: Array | None = None) -> Array:
        """See `Engine`."""
        obs = self._obs.copy()  # rows that were handed out stay as they are
        for engine, own in zip(self._engines, self.shares, strict=True):
            part = None if mask is None else mask[own]
            if part is None or part.any():
                obs[own] = engine.reset(seeds[own], part)
        self._obs = obs
        return obs

    def send(self, actions: Array) -> None:
        """See `Engine`."""
        for engine, own in zip(self._engines, self.shares, strict=True):
            engine.send(actions[own])

    def recv(self) -> tuple[Array, Array, Array, Array]:
        """See `Engine`."""
        parts = [engine.recv() for engine in self._engines]
        obs, rewards, terminated, truncated = (np.concatenate(part) for part in zip(*parts, strict=True))
        self._obs = obs
        return obs, rewards, terminated, truncated

    def close(self) -> None:
        """See `Engine`."""
        for engine in self._engines:
            engine.close()


def make_vector(env: EnvLike, num_envs: int, engine: EngineName = "auto", share: int = 1) -> VectorEnv:
    """`num_envs` copies of an environment, stepped by `engine`; `auto` is envpool where it can be had, or gymnasium.

    `processes` are gymnasium's in processes of their own, which may raise, hang or die. `share` is the number of vector
    environments among which the machine's cores are divided.
    """
    checked("engine", engine, EngineName)
    if engine == "auto":
        engine = "gymnasium" if obstacle(env) else "envpool"
    if engine == "envpool":
        return VectorEnv(EnvPoolEngine(env, num_envs, share), env_name(env))
    if engine == "processes":
        return VectorEnv(ProcessEngine(env, num_envs), env_name(env))
    return VectorEnv(GymnasiumEngine(env, num_envs), env_name(env))
