"""Base of engines that simulate on the learner's device: tensors only, and no synchronisation in a step."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from minerva.compute.cuda_graph import InPlace
from minerva.compute.seeding import generator, restore_generator
from minerva.compute.tree import Tree, copy_, mapped
from minerva.envs.engine import Engine, Episode, Transition, numbers_in
from minerva.errors import EnvStepError
from minerva.spec import ActionSpec, ObservationSpec

EPISODE = ("reported", "returns", "lengths")
"""Outputs of a step from which the episodes are read; the others are those of `inform`."""
RUNNING = ("returns", "lengths", "limits")
"""What is known of each environment's current episode."""


class DeviceEngine(Engine):
    """An engine that steps all environments in one pure function of tensors; on CUDA it is one graph.

    `state` is a tree of tensors with one row per environment: the subclass's `simulation`, and return and length of the
    current episode. Ended episodes and non-finite values are recorded on the device and read by `take_episodes`.
    """

    def __init__(
        self, env_name: str, num_envs: int, observation: ObservationSpec, action: ActionSpec, device: torch.device
    ) -> None:
        self.env_name, self.num_envs, self.device = env_name, num_envs, device
        self.observation, self.action = observation, action
        self._low, self._high = (torch.tensor(bound, device=device) for bound in (action.low, action.high))
        self.generator = generator(0, "starts", device)
        self.state: Tree = {
            "simulation": self.start(torch.zeros(num_envs, self.start_numbers, device=device)),
            "returns": torch.zeros(num_envs, dtype=torch.float64, device=device),
            "lengths": torch.zeros(num_envs, dtype=torch.int64, device=device),
            "limits": torch.full((num_envs,), self.time_limit, device=device),
            "faulty": torch.zeros(num_envs, dtype=torch.bool, device=device),
        }
        self.obs = self.observe(self.state["simulation"])
        self._step = InPlace(self.advanced, self.state, "auto")
        self._ended: list[Tree] = []
        self._actions: Any = None  # a tensor between send and recv

    # --- implemented by subclasses --------------------------------------------------------------------------

    start_numbers: int
    """Uniform random numbers that the start of an episode needs."""
    time_limit: int
    """Steps after which an episode is truncated."""
    staggered: ClassVar[bool] = False
    """Whether first episodes are truncated after 1 to `time_limit` steps, so that later ones do not end together."""

    @abstractmethod
    def start(self, uniform: Tensor) -> Tree:
        """Return simulations at an episode's start, from uniform numbers in [0, 1).  [E, start_numbers] -> [E, ...]"""

    @abstractmethod
    def observe(self, simulation: Tree) -> Tensor:
        """Return the observation of each environment.  -> [E, *observation.shape]"""

    @abstractmethod
    def simulate(self, simulation: Tree, actions: Tensor) -> tuple[Tree, Tensor, Tensor]:
        """Return (simulations, rewards, terminated) after a step with actions in the environment's units."""

    def inform(self, simulation: Tree) -> dict[str, Tensor]:
        """Return numbers to report of each environment at its episode's end, such as `is_success`.  -> [E] by name"""
        return {}

    # --- a step, as a pure function -------------------------------------------------------------------------

    def advanced(self, state: Tree, actions: Tensor, uniform: Tensor) -> tuple[Tree, Tree]:
        """Return the state after one step of all environments, with ended ones restarted, and the step's outputs."""
        simulation, rewards, terminated = self.simulate(state["simulation"], self.in_units(actions))
        next_obs = self.observe(simulation)
        lengths, returns = state["lengths"] + 1, state["returns"] + rewards
        truncated = lengths >= state["limits"]
        ended = terminated | truncated
        finite = torch.isfinite(next_obs).flatten(1).all(1) & torch.isfinite(actions).all(1)
        finite = finite & torch.isfinite(rewards.float())  # as they are stored
        info = self.inform(simulation)
        simulation = where(ended, self.start(uniform), simulation)
        outputs = {
            "next_obs": next_obs,
            "obs": self.observe(simulation),
            "rewards": rewards,
            "terminated": terminated,
            "truncated": truncated,
            "ended": ended,
            "reported": ended & (state["limits"] == self.time_limit),  # a staggered one is shorter than the task's
            "returns": returns,
            "lengths": lengths,
            "info": info,
        }
        new_state = {
            "simulation": simulation,
            "returns": torch.where(ended, 0.0, returns),
            "lengths": torch.where(ended, 0, lengths),
            "limits": torch.where(ended, self.time_limit, state["limits"]),
            "faulty": state["faulty"] | ~finite,
        }
        return new_state, outputs

    def in_units(self, actions: Tensor) -> Tensor:
        """Return actions in the environment's units, within its bounds, for actions in [-1, 1]."""
        scaled = self._low + (actions + 1.0) * 0.5 * (self._high - self._low)
        return torch.minimum(torch.maximum(scaled, self._low), self._high)

    def advance(self, actions: Tensor, uniform: Tensor) -> Tree:
        """Step all environments and return the outputs of `advanced`."""
        outputs: Tree = self._step(actions, uniform)
        return outputs

    def observed_starts(self) -> Tensor:
        """Return the first observations of episodes that all begin."""
        return self.observe(self.state["simulation"])

    # --- the engine's interface -----------------------------------------------------------------------------

    def reset(self, seeds: Sequence[int]) -> Tensor:
        """Reset every environment, environment i with `seeds[i]`, and return `obs`; a step in progress is dropped."""
        draws = [generator(seed, "start", torch.device("cpu")) for seed in seeds]
        drawn = torch.stack([torch.rand(self.start_numbers + 1, generator=draw) for draw in draws]).to(self.device)
        self.generator = generator(seeds[0], "starts", self.device)
        before = mapped(torch.zeros_like, {name: self.state[name] for name in ("returns", "lengths", "faulty")})
        share = drawn[:, -1] if self.staggered else torch.ones_like(drawn[:, -1])
        limits = torch.ceil(share * self.time_limit).clamp_min(1).long()
        copy_(self.state, {**before, "limits": limits, "simulation": self.start(drawn[:, :-1])})
        self._actions, self._ended = None, []
        self.obs = self.observed_starts()
        return self.obs

    def send(self, actions: Tensor) -> None:
        """Keep the actions in [-1, 1] for `recv`.  [E, D]"""
        self._check_order(sending=True, under_way=self._actions is not None)
        self._actions = actions

    def recv(self) -> Transition:
        """Step with the actions of `send` and return the transition, without synchronising with the device."""
        self._check_order(sending=False, under_way=self._actions is not None)
        actions, self._actions = self._actions, None
        uniform = torch.rand((self.num_envs, self.start_numbers), generator=self.generator, device=self.device)
        outputs = self.advance(actions, uniform)
        self.obs = outputs["obs"].clone()  # a graph writes its outputs into the same memory at every call
        self._ended.append({name: outputs[name].clone() for name in EPISODE} | mapped(torch.clone, outputs["info"]))
        return Transition(*(outputs[name] for name in Transition._fields))

    def take_episodes(self) -> list[Episode]:
        """Return the episodes since the last call, in one transfer; raise EnvStepError for non-finite values."""
        if not self._ended:
            return []
        rows = {name: torch.stack([row[name].double() for row in self._ended]) for name in self._ended[0]}
        faulty = self.state["faulty"].double().expand(1, -1)
        packed = torch.cat([*rows.values(), faulty]).cpu()
        *parts, faults = packed.split([len(self._ended)] * len(rows) + [1])
        self._ended = []
        self._raise_if_faulty(faults[0])
        steps, envs = parts[0].nonzero(as_tuple=True)
        columns = {name: part[steps, envs].tolist() for name, part in zip(rows, parts, strict=True)}
        _, returns, lengths = (columns.pop(name) for name in EPISODE)
        infos = [numbers_in(dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)]
        each = zip(envs.tolist(), returns, map(int, lengths), infos or [{}] * len(returns), strict=True)
        return [Episode(*episode) for episode in each]

    def under_way(self) -> list[tuple[float, int]]:
        """Return the return and the length, so far, of each environment's current episode."""
        return list(zip(self.state["returns"].tolist(), self.state["lengths"].tolist(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Return the simulations, the unfinished episodes and the state of the generator of starts."""
        simulators = [{"simulation": self.state["simulation"], "generator": self.generator.get_state()}]
        episodes = {name: self.state[name].cpu().clone() for name in RUNNING}
        return {**episodes, "obs": self.obs.cpu().clone(), "simulators": simulators, "unavailable_reason": ""}

    def load_state_dict(self, state: dict[str, Any]) -> str:
        """Restore a state of `state_dict`; return "", or why that is impossible: then reset the environments."""
        if len(state["simulators"]) != 1 or len(state["returns"]) != self.num_envs:
            return f"{type(self).__name__} cannot divide its simulation among other processes"
        (simulator,) = state["simulators"]
        episodes = {name: state[name] for name in RUNNING}
        copy_(self.state, {**episodes, "simulation": simulator["simulation"]})
        restore_generator(self.generator, simulator["generator"])
        self.obs = state["obs"].to(self.device)
        return ""

    @classmethod
    def joined(cls, engines: Sequence["DeviceEngine"]) -> "JoinedDeviceEngine":
        """Return one engine for the environments of several engines of one shape, engine by engine."""
        return JoinedDeviceEngine(engines)

    def close(self) -> None:
        """Release the simulations."""
        self.state, self._ended = {}, []

    def _raise_if_faulty(self, faulty: Tensor) -> None:
        if faulty.any():
            raise EnvStepError(
                f"{self.env_name} gave or was given a value that is not finite, first in environment "
                f"{int(faulty.nonzero()[0])}. Training cannot continue from it; fix the environment or lower the "
                "learning rate."
            )


def where(mask: Tensor, chosen: Any, other: Any) -> Any:
    """Return the rows of `chosen` where `mask` [E] is true, and of `other` elsewhere."""
    return mapped(lambda a, b: torch.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b), chosen, other)


class JoinedDeviceEngine(Engine):
    """Device engines of one shape, stepped as one."""

    def __init__(self, parts: Sequence[DeviceEngine]) -> None:
        first = parts[0]
        self.parts = list(parts)
        self.name = first.name  # type: ignore[misc]
        self.env_name, self.num_envs, self.device = first.env_name, first.num_envs * len(parts), first.device
        self.observation, self.action = first.observation, first.action
        self.obs = torch.cat([part.obs for part in parts])

    @classmethod
    def make(cls, *_: Any) -> Engine:
        """Raise TypeError: a joined engine is made from engines, by `joined`."""
        raise TypeError("A JoinedDeviceEngine is made of engines.")

    @classmethod
    def joined(cls, engines: Sequence[Any]) -> Engine:
        """Raise TypeError: joined engines cannot be joined again."""
        raise TypeError("A JoinedDeviceEngine is joined already.")

    def reset(self, seeds: Sequence[int]) -> Tensor:
        """Reset every environment, environment i with `seeds[i]`, and return `obs`."""
        each = self.parts[0].num_envs
        self.obs = torch.cat([part.reset(seeds[n * each : (n + 1) * each]) for n, part in enumerate(self.parts)])
        return self.obs

    def send(self, actions: Tensor) -> None:
        """Start a step of every part with its slice of the actions.  [E, D]"""
        for part, chunk in zip(self.parts, actions.chunk(len(self.parts)), strict=True):
            part.send(chunk)

    def recv(self) -> Transition:
        """Finish the step of every part and return their transitions, concatenated."""
        results = [part.recv() for part in self.parts]
        self.obs = torch.cat([part.obs for part in self.parts])
        return Transition(*(torch.cat(values) for values in zip(*results, strict=True)))

    def take_episodes(self) -> list[Episode]:
        """Return the episodes that ended since the last call, environments numbered across all parts."""
        each = self.parts[0].num_envs
        episodes = [part.take_episodes() for part in self.parts]
        return [one._replace(env=n * each + one.env) for n, part in enumerate(episodes) for one in part]

    def close(self) -> None:
        """Close every part."""
        for part in self.parts:
            part.close()

    def under_way(self) -> list[tuple[float, int]]:
        """Return the return and the length, so far, of each environment's current episode."""
        return [one for part in self.parts for one in part.under_way()]

    def state_dict(self) -> dict[str, Any]:
        """Raise TypeError: each part is saved with its own run."""
        raise TypeError("The parts of a JoinedDeviceEngine are saved separately.")

    def load_state_dict(self, state: dict[str, Any]) -> str:
        """Raise TypeError: each part is restored with its own run."""
        raise TypeError("The parts of a JoinedDeviceEngine are restored separately.")
