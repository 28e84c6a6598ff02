"""Base of engines whose environments run on the CPU: NumPy arrays inside, tensors that share their memory outside."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minerva.envs.engine import Engine, Episode, Transition
from minerva.envs.snapshot import NoSnapshotError, Snapshot
from minerva.errors import EnvStepError
from minerva.layout import Array
from minerva.spec import LARGEST, ActionSpec, ObservationSpec

Arrays = tuple[Array, Array, Array, Array]
"""Next observation, reward, terminated and truncated of every environment."""


class HostEngine(Engine):
    """An engine that scales actions, accumulates returns, checks for non-finite values and resets ended environments.

    A subclass implements `reset_arrays`, `send_arrays` and `recv_arrays`, and `snapshots` and `restore` if it can.
    The arrays they return are passed on without a copy, so a later step must not write to them.
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

    # --- implemented by subclasses --------------------------------------------------------------------------

    @abstractmethod
    def reset_arrays(self, mask: Array, seeds: Sequence[int] | None = None) -> Array:
        """Reset the environments of `mask` and return their first observations, one row each.

        `seeds`, one per environment, start new random streams; without them the streams continue.
        """

    @abstractmethod
    def send_arrays(self, actions: Array) -> None:
        """Start a step with actions in the environment's units: float64 within its bounds, or choices.  [E, D]"""

    @abstractmethod
    def recv_arrays(self) -> Arrays:
        """Finish the step and return its arrays, without resetting any environment."""

    def ended_infos(self) -> Mapping[int, Mapping[str, float]]:
        """Return the numbers in the `info` of each environment whose episode ended in the last step."""
        return {}

    def snapshots(self) -> list[Snapshot]:
        """Return a snapshot of every environment; raise NoSnapshotError if one has none."""
        raise NoSnapshotError(f"{type(self).__name__} cannot save its simulators")

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Restore every environment from a snapshot of it, or of one made in the same way."""
        raise NoSnapshotError(f"{type(self).__name__} cannot restore its simulators")

    # --- the engine's interface -----------------------------------------------------------------------------

    def reset(self, seeds: Sequence[int]) -> Tensor:
        """Reset every environment, environment i with `seeds[i]`, and return `obs`; a step in progress is dropped."""
        self._stepping = False
        self._returns[:] = 0
        self._lengths[:] = 0
        self._episodes = []
        self._begin(np.ones(self.num_envs, np.bool_), seeds)
        return self.obs

    def send(self, actions: Tensor) -> None:
        """Start a step with actions in [-1, 1], or choices; threads or processes then step until `recv`.  [E, D]"""
        self._check_order(sending=True, under_way=self._stepping)
        self.send_arrays(self.action.to_environment(actions.numpy()))
        self._stepping = True

    def recv(self) -> Transition:
        """Finish the step that `send` started, reset environments that ended, and return the transition."""
        self._check_order(sending=False, under_way=self._stepping)
        self._stepping = False
        next_obs, rewards, terminated, truncated = self.recv_arrays()
        self._lengths += 1
        self._finite("observation", self.observation.numbers_of(next_obs))
        self._finite("reward", rewards)
        self._returns += rewards
        next_obs_tensor = torch.from_numpy(next_obs)
        self._obs, self.obs = next_obs, next_obs_tensor
        ended = terminated | truncated
        if ended.any():
            self._restart(ended)
        flags = torch.from_numpy(terminated), torch.from_numpy(truncated)
        return Transition(next_obs_tensor, torch.from_numpy(rewards), *flags)

    def take_episodes(self) -> list[Episode]:
        """Return the episodes that ended since the last call."""
        taken, self._episodes = self._episodes, []
        return taken

    def under_way(self) -> list[tuple[float, int]]:
        """Return the return and the length, so far, of each environment's current episode."""
        return [(float(total), int(length)) for total, length in zip(self._returns, self._lengths, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Return simulators and unfinished episodes, and in `unavailable_reason` why there are no simulators, or ""."""
        taken, reason = list[Snapshot](), ""
        try:
            taken = self.snapshots()
        except NoSnapshotError as error:
            reason = str(error)
        episodes = {"obs": self._obs, "returns": self._returns, "lengths": self._lengths}
        tensors = {name: torch.from_numpy(values.copy()) for name, values in episodes.items()}
        simulators = [{"values": one.values, "data": torch.from_numpy(one.data.copy())} for one in taken]
        return {**tensors, "simulators": simulators, "unavailable_reason": reason}

    def load_state_dict(self, state: dict[str, Any]) -> str:
        """Restore a state of `state_dict`; return "", or why that is impossible: then reset the environments."""
        if state["unavailable_reason"]:
            return str(state["unavailable_reason"])
        try:
            self.restore([Snapshot(one["values"], one["data"].numpy()) for one in state["simulators"]])
        except (NoSnapshotError, ValueError) as error:
            return str(error)
        self._set_obs(state["obs"].numpy().copy())
        for name, values in (("returns", self._returns), ("lengths", self._lengths)):
            values[:] = state[name].numpy()
        return ""

    @classmethod
    def joined(cls, engines: Sequence["HostEngine"]) -> "HostEngine":
        """Return one engine for the environments of several engines of one shape, engine by engine."""
        return JoinedEngine(engines)

    # --- details --------------------------------------------------------------------------------------------

    def _set_obs(self, obs: Array) -> None:
        """Set the observations to act on next."""
        self._obs, self.obs = obs, torch.from_numpy(obs)

    def _begin(self, mask: Array, seeds: Sequence[int] | None = None) -> None:
        """Reset the environments of `mask` and set their first observations."""
        obs = self._obs.copy()  # a copy, because the caller holds the old array
        obs[mask] = self.reset_arrays(mask, seeds)
        self._finite("observation", self.observation.numbers_of(obs))
        self._set_obs(obs)

    def _restart(self, ended: Array) -> None:
        """Record the episodes that ended and reset their environments."""
        infos = self.ended_infos()
        for i in np.flatnonzero(ended).tolist():
            self._episodes.append(Episode(i, float(self._returns[i]), int(self._lengths[i]), infos.get(i, {})))
        self._returns[ended] = 0
        self._lengths[ended] = 0
        self._begin(ended)

    def _finite(self, what: str, values: Array) -> None:
        """Raise EnvStepError if a value is not finite in float32."""
        within = np.abs(values) <= LARGEST  # false for NaN; rewards are float64 here, and float32 where they are stored
        if not within.all():
            i = int(np.flatnonzero(~within.reshape(self.num_envs, -1).all(1))[0])
            shown = self.observation.first_infinite(values[i]) if what == "observation" else values[i]
            raise EnvStepError(
                f"{self.env_name} gave a non-finite {what} in environment {i} at step {self._lengths[i]} of its "
                f"episode: {shown} (float32 ends at {LARGEST:.2g}). Training cannot continue from it; fix the "
                f"environment or clip its {what}s."
            )


class JoinedEngine(HostEngine):
    """Engines of one shape, stepped as one: all start their step before the first is waited for.

    Returns and lengths of the episodes are in one array each, and the parts' become views of it.
    """

    def __init__(self, parts: Sequence[HostEngine]) -> None:
        first, each = parts[0], parts[0].num_envs
        super().__init__(first.env_name, each * len(parts), first.observation, first.action)
        self.name = first.name  # type: ignore[misc]
        self._parts = [(part, slice(n * each, (n + 1) * each)) for n, part in enumerate(parts)]
        self._set_obs(np.concatenate([part._obs for part in parts]))
        self._returns = np.concatenate([part._returns for part in parts])
        self._lengths = np.concatenate([part._lengths for part in parts])
        for part, part_slice in self._parts:
            part._returns, part._lengths = self._returns[part_slice], self._lengths[part_slice]

    @classmethod
    def make(cls, *_: Any) -> Engine:
        """Raise TypeError: a joined engine is made from engines, by `joined`."""
        raise TypeError("A JoinedEngine is made of engines.")

    def reset_arrays(self, mask: Array, seeds: Sequence[int] | None = None) -> Array:
        """Reset the environments of `mask`, in the parts that have any."""
        rows = [
            part.reset_arrays(mask[part_slice], None if seeds is None else seeds[part_slice])
            for part, part_slice in self._parts
            if mask[part_slice].any()
        ]
        return np.concatenate(rows)

    def send_arrays(self, actions: Array) -> None:
        """Start a step of every part."""
        for part, part_slice in self._parts:
            part.send_arrays(actions[part_slice])

    def recv_arrays(self) -> Arrays:
        """Finish the step of every part and return the arrays, concatenated."""
        results = [part.recv_arrays() for part, _ in self._parts]
        obs, rewards, terminated, truncated = (np.concatenate(values) for values in zip(*results, strict=True))
        return obs, rewards, terminated, truncated

    def ended_infos(self) -> Mapping[int, Mapping[str, float]]:
        """Return the infos of every part, environments numbered across all parts."""
        infos = [(part_slice.start, part.ended_infos()) for part, part_slice in self._parts]
        return {first + i: info for first, part in infos for i, info in part.items()}

    def _set_obs(self, obs: Array) -> None:
        super()._set_obs(obs)
        for part, part_slice in getattr(self, "_parts", ()):
            part._set_obs(obs[part_slice])

    def recv(self) -> Transition:
        """Finish the step and return the transition; the parts get their observations too."""
        transition = super().recv()
        self._set_obs(self._obs)
        return transition

    def close(self) -> None:
        """Close every part."""
        for part, _ in self._parts:
            part.close()
