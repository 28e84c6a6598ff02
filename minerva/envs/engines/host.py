"""What engines share whose environments run on the CPU: NumPy inside, tensors of the same memory outside."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minerva.envs.engine import Engine, Episode, Transition
from minerva.envs.snapshot import NoSnapshotError, Snapshot
from minerva.errors import EnvStepError
from minerva.spec import ActionSpec, Array, ObservationSpec

Arrays = tuple[Array, Array, Array, Array]
"""Next observation, reward, terminated and truncated of every environment."""


class HostEngine(Engine):
    """Scales actions, sums up episodes, checks for non-finite values and restarts what ended.

    A subclass steps the environments: `reset_arrays`, `send_arrays` and `recv_arrays`, and `snapshots` and `restore`
    if it can. Arrays that they return are handed out as they are, so a later step must not write to them.
    """

    device = torch.device("cpu")

    def __init__(self, env_name: str, num_envs: int, observation: ObservationSpec, action: ActionSpec) -> None:
        self.env_name, self.num_envs = env_name, num_envs
        self.observation, self.action = observation, action
        self._obs: Array = np.zeros((num_envs, *observation.shape), observation.dtype)
        self.obs = torch.from_numpy(self._obs)
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self._episodes: list[Episode] = []
        self._stepping = False

    # --- what a subclass does -------------------------------------------------------------------------------

    @abstractmethod
    def reset_arrays(self, mask: Array, seeds: Sequence[int] | None = None) -> Array:
        """Start a new episode in the environments of `mask` and return their first observations, one row each.

        `seeds`, one for each environment, begin new random streams; without them the streams go on.
        """

    @abstractmethod
    def send_arrays(self, actions: Array) -> None:
        """Begin a step with actions in the environment's units and within its bounds, in float64."""

    @abstractmethod
    def recv_arrays(self) -> Arrays:
        """Finish it; no environment is reset."""

    def snapshots(self) -> list[Snapshot]:
        """Return the state of every environment, or raise NoSnapshotError."""
        raise NoSnapshotError(f"{type(self).__name__} cannot save its simulators")

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Put every environment into a state that it, or one made in the same way, was in."""
        raise NoSnapshotError(f"{type(self).__name__} cannot restore its simulators")

    # --- what the caller sees -------------------------------------------------------------------------------

    def reset(self, seeds: Sequence[int]) -> Tensor:
        """Start a new episode everywhere, environment i seeded with `seeds[i]`; a step under way is dropped."""
        self._stepping = False
        self._returns[:] = 0
        self._lengths[:] = 0
        self._episodes = []
        self._begin(np.ones(self.num_envs, np.bool_), seeds)
        return self.obs

    def send(self, actions: Tensor) -> None:
        """Begin a step. What the caller does before `recv` happens meanwhile if the engine has threads."""
        self._check_order(sending=True, under_way=self._stepping)
        self.send_arrays(self.action.to_environment(actions.numpy()))
        self._stepping = True

    def recv(self) -> Transition:
        """Finish the step that `send` began, and begin new episodes where one ended."""
        self._check_order(sending=False, under_way=self._stepping)
        self._stepping = False
        next_obs, rewards, terminated, truncated = self.recv_arrays()
        self._lengths += 1
        self._finite("observation", next_obs)
        self._finite("reward", rewards)
        self._returns += rewards
        seen = torch.from_numpy(next_obs)
        self._obs, self.obs = next_obs, seen
        ended = terminated | truncated
        if ended.any():
            self._restart(ended)
        flags = torch.from_numpy(terminated), torch.from_numpy(truncated)
        return Transition(seen, torch.from_numpy(rewards), *flags)

    def take_episodes(self) -> list[Episode]:
        """Return the episodes that ended since the last call."""
        taken, self._episodes = self._episodes, []
        return taken

    def under_way(self) -> list[tuple[float, int]]:
        """Return and length, so far, of each environment's current episode."""
        return [(float(total), int(length)) for total, length in zip(self._returns, self._lengths, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Return simulators and episodes under way; `obstacle` says why the simulators are missing."""
        taken, reason = list[Snapshot](), ""
        try:
            taken = self.snapshots()
        except NoSnapshotError as error:
            reason = str(error)
        episodes = {"obs": self._obs, "returns": self._returns, "lengths": self._lengths}
        tensors = {name: torch.from_numpy(values.copy()) for name, values in episodes.items()}
        simulators = [{"values": one.values, "data": torch.from_numpy(one.data.copy())} for one in taken]
        return {**tensors, "simulators": simulators, "obstacle": reason}

    def load_state_dict(self, state: dict[str, Any]) -> str:
        """Go on where `state_dict` was made. Return why that cannot be done, if so: then reset the environments."""
        if state["obstacle"]:
            return str(state["obstacle"])
        try:
            self.restore([Snapshot(one["values"], one["data"].numpy()) for one in state["simulators"]])
        except (NoSnapshotError, ValueError) as error:
            return str(error)
        self._show(state["obs"].numpy().copy())
        for name, values in (("returns", self._returns), ("lengths", self._lengths)):
            values[:] = state[name].numpy()
        return ""

    @classmethod
    def joined(cls, engines: Sequence["HostEngine"]) -> "HostEngine":
        """Return engines of one shape as one, whose environments are theirs one after another."""
        return JoinedEngine(engines)

    # --- details --------------------------------------------------------------------------------------------

    def _show(self, obs: Array) -> None:
        """Make these the observations to act on."""
        self._obs, self.obs = obs, torch.from_numpy(obs)

    def _begin(self, mask: Array, seeds: Sequence[int] | None = None) -> None:
        """Begin the episodes of `mask`."""
        obs = self._obs.copy()  # rows that were handed out stay as they are
        obs[mask] = self.reset_arrays(mask, seeds)
        self._show(self._finite("observation", obs))

    def _restart(self, ended: Array) -> None:
        """Note the episodes that ended and begin new ones in their place."""
        for i in np.flatnonzero(ended):
            self._episodes.append(Episode(int(i), float(self._returns[i]), int(self._lengths[i])))
        self._returns[ended] = 0
        self._lengths[ended] = 0
        self._begin(ended)

    def _finite(self, what: str, values: Array) -> Array:
        if not np.isfinite(values).all():
            i = int(np.flatnonzero(~np.isfinite(values.reshape(self.num_envs, -1)).all(1))[0])
            raise EnvStepError(
                f"{self.env_name} gave a non-finite {what} in environment {i} at step {self._lengths[i]} of its "
                f"episode: {values[i]}. Training cannot go on from it; mend the environment or clip its {what}s."
            )
        return values


class JoinedEngine(HostEngine):
    """Engines of one shape as one: all are under way before the first is waited for.

    Returns and lengths of their episodes lie in one array, of which theirs are views from now on.
    """

    def __init__(self, parts: Sequence[HostEngine]) -> None:
        first, each = parts[0], parts[0].num_envs
        super().__init__(first.env_name, each * len(parts), first.observation, first.action)
        self.name = first.name  # type: ignore[misc]
        self._parts = [(part, slice(n * each, (n + 1) * each)) for n, part in enumerate(parts)]
        self._show(np.concatenate([part._obs for part in parts]))
        self._returns = np.concatenate([part._returns for part in parts])
        self._lengths = np.concatenate([part._lengths for part in parts])
        for part, own in self._parts:
            part._returns, part._lengths = self._returns[own], self._lengths[own]

    @classmethod
    def make(cls, *_: Any) -> Engine:
        """Refuse: it is made of engines."""
        raise TypeError("A JoinedEngine is made of engines.")

    def reset_arrays(self, mask: Array, seeds: Sequence[int] | None = None) -> Array:
        """Start new episodes in those parts that have one to start."""
        rows = [
            part.reset_arrays(mask[own], None if seeds is None else seeds[own])
            for part, own in self._parts
            if mask[own].any()
        ]
        return np.concatenate(rows)

    def send_arrays(self, actions: Array) -> None:
        """Begin a step everywhere."""
        for part, own in self._parts:
            part.send_arrays(actions[own])

    def recv_arrays(self) -> Arrays:
        """Finish it, one part after another."""
        results = [part.recv_arrays() for part, _ in self._parts]
        obs, rewards, terminated, truncated = (np.concatenate(values) for values in zip(*results, strict=True))
        return obs, rewards, terminated, truncated

    def _show(self, obs: Array) -> None:
        super()._show(obs)
        for part, own in getattr(self, "_parts", ()):
            part._show(obs[own])

    def recv(self) -> Transition:
        """Finish the step; each part, too, knows what it will be acted on next."""
        transition = super().recv()
        self._show(self._obs)
        return transition

    def close(self) -> None:
        """Close every part."""
        for part, _ in self._parts:
            part.close()
