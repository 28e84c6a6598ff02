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
        self.generators = [generator(0, "starts", device)]
        """Generators of starts, of equal numbers of environments each: one, or those of the engines joined in this."""
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
        self._outputs: Tree = {}
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # environments step on it
        self._stepped_by: tuple[DeviceEngine, slice] | None = None  # a joined engine, and which of its environments

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

    @abstractmethod
    def with_envs(self, num_envs: int) -> "DeviceEngine":
        """Return an engine of the same task with another number of environments."""

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
        self._wait_for_step()
        self._stepped_by = None
        each = self.num_envs // len(self.generators)
        self.generators = [generator(seed, "starts", self.device) for seed in seeds[::each]]
        before = mapped(torch.zeros_like, {name: self.state[name] for name in ("returns", "lengths", "faulty")})
        share = drawn[:, -1] if self.staggered else torch.ones_like(drawn[:, -1])
        limits = torch.ceil(share * self.time_limit).clamp_min(1).long()
        copy_(self.state, {**before, "limits": limits, "simulation": self.start(drawn[:, :-1])})
        self._actions, self._ended = None, []
        self.obs = self.observed_starts()
        return self.obs

    def send(self, actions: Tensor) -> None:
        """Start a step with actions in [-1, 1]: on a GPU beside what the caller has it compute until `recv`.  [E, D]"""
        self._check_order(sending=True, under_way=self._actions is not None)
        self._take_back()
        self._actions = actions
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):  # where that is None, nothing changes
            self._outputs = self._stepped(actions)

    def recv(self) -> Transition:
        """Return the transition of the step that `send` started, without synchronising with the host."""
        self._check_order(sending=False, under_way=self._actions is not None)
        self._wait_for_step()
        self._actions, outputs = None, self._outputs
        self.obs = outputs["obs"]
        self._ended.append({**{name: outputs[name] for name in EPISODE}, **outputs["info"]})
        return Transition(*(outputs[name] for name in Transition._fields))

    def _wait_for_step(self) -> None:
        """Let what the caller's stream does next begin after the step that was sent."""
        if self._stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._stream)

    def _stepped(self, actions: Tensor) -> Tree:
        """Return the outputs of a step, those that outlive it copied: a graph writes them anew at every call."""
        shape = self.num_envs // len(self.generators), self.start_numbers
        uniform = [torch.rand(shape, generator=source, device=self.device) for source in self.generators]
        outputs = self.advance(actions, torch.cat(uniform))
        kept = ("obs", "info", *EPISODE)
        return {**outputs, **{name: mapped(torch.clone, outputs[name]) for name in kept}}

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
        self._read_back()
        return list(zip(self.state["returns"].tolist(), self.state["lengths"].tolist(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Return the simulations, the unfinished episodes and the state of the generator of starts."""
        self._read_back()
        (source,) = self.generators  # joined engines are saved one by one, each with its run
        simulators = [{"simulation": self.state["simulation"], "generator": source.get_state()}]
        episodes = {name: self.state[name].cpu().clone() for name in RUNNING}
        return {**episodes, "obs": self.obs.cpu().clone(), "simulators": simulators, "unavailable_reason": ""}

    def load_state_dict(self, state: dict[str, Any]) -> str:
        """Restore a state of `state_dict`; return "", or why that is impossible: then reset the environments."""
        if len(state["simulators"]) != 1 or len(state["returns"]) != self.num_envs:
            return f"{type(self).__name__} cannot divide its simulation among other processes"
        self._stepped_by = None
        (simulator,), (source,) = state["simulators"], self.generators
        episodes = {name: state[name] for name in RUNNING}
        copy_(self.state, {**episodes, "simulation": simulator["simulation"]})
        restore_generator(source, simulator["generator"])
        self.obs = state["obs"].to(self.device)
        return ""

    @classmethod
    def joined(cls, engines: Sequence["DeviceEngine"]) -> "DeviceEngine":
        """Return one engine for the environments of several engines of one task and number, engine by engine.

        It goes on from their states and draws from their generators, so that each has what it would have alone; all
        are stepped in one call. An engine reads back what became of its environments when it is saved or stepped.
        """
        each = engines[0].num_envs
        whole = engines[0].with_envs(each * len(engines))
        for engine in engines:
            engine._take_back()
        copy_(whole.state, mapped(lambda *parts: torch.cat(parts), *[engine.state for engine in engines]))
        whole.obs = torch.cat([engine.obs for engine in engines])
        whole.generators = [source for engine in engines for source in engine.generators]
        for n, engine in enumerate(engines):
            engine._stepped_by = whole, slice(n * each, (n + 1) * each)
        return whole

    def _take_back(self) -> None:
        """Step the environments oneself from now on."""
        self._read_back()
        self._stepped_by = None

    def _read_back(self) -> None:
        """Copy what a joined engine has made of these environments, if there is one."""
        if self._stepped_by is not None:
            whole, own = self._stepped_by
            copy_(self.state, mapped(lambda rows: rows[own], whole.state))
            self.obs = whole.obs[own].clone()

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
