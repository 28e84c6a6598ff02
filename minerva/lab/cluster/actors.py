"""Remote workers as Ray actors: many simulators for one learner.

If an actor or its node dies, Ray restarts the actor, on another node if needed, and repeats the unanswered call.
`ActorWorker.collect` depends only on its arguments, so the run continues as if nothing had happened. The constructor
arguments and the call's arguments are referenced here until the result has arrived, so that Ray cannot lose them.
"""

import os
from collections.abc import Sequence
from typing import Any

import torch

from minerva.compute.tree import Tree
from minerva.config import Config
from minerva.envs.engines.registry import EngineName, make_engine
from minerva.envs.ids import EnvLike
from minerva.errors import ConfigError
from minerva.lab.cluster.engine import ray
from minerva.loop.remote import ActorWorker, LocalWorker, RemoteCollector, Worker
from minerva.trainers.registry import agent_class

CALLS = 1_000_000
"""Calls of the policy expected in an actor's life: enough that preparing a fast one pays."""


def make_worker(algo: str, config: Config, env: EnvLike, num_envs: int, engine: EngineName) -> ActorWorker:
    """Return a worker with its own environments and agent; every request replaces the agent's weights."""
    torch.set_num_threads(1)
    probe = make_engine(env, 1, engine)
    specs = probe.observation, probe.action
    probe.close()
    agent = agent_class(algo).from_config(*specs, config, seed=0, device="cpu")
    return ActorWorker(agent, env, num_envs, engine, CALLS)


class RayActor:
    """A Ray actor that holds one worker."""

    def __init__(self, made_of: Sequence[Any]) -> None:
        """Make the worker from a reference in a list, which Ray passes unresolved, so that a restart can reuse it."""
        import ray as package

        self.worker = make_worker(*package.get(made_of[0]))

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the worker. Weights are a reference, so that a node loads them once for all its actors."""
        import ray as package

        if name == "collect":
            request = arguments[0]
            arguments = (request._replace(weights=package.get(request.weights)),)
        return getattr(self.worker, name)(*arguments)

    def process(self) -> int:
        """Return the process id of the actor."""
        return os.getpid()


class RayWorker:
    """Learner's handle of a worker that lives in a Ray actor."""

    def __init__(self, package: Any, handle: Any) -> None:
        self.ray, self.handle = package, handle

    def begin(self, name: str, *arguments: Any) -> Any:
        """Start a call of the worker's method and return a handle of it.

        The arguments are referenced until the result has arrived: it may be lost with a node, and computed again.
        """
        references = [self.ray.put(argument) for argument in arguments]
        return self.handle.call.remote(name, *references), references

    def result(self, begun: Any) -> Any:
        """Wait for the result of a call started by `begin`, and return it."""
        reference, _ = begun
        return self.ray.get(reference)

    def close(self) -> None:
        """End the actor."""
        self.ray.kill(self.handle)


class RayCollector(RemoteCollector):
    """Remote collector whose workers are Ray actors."""

    def __init__(self, package: Any, workers: Sequence[Worker], num_envs: int, made_of: Any) -> None:
        """Keep `made_of`, the reference to the constructor arguments of actors, for restarted ones as well."""
        self._ray, self._made_of = package, made_of
        super().__init__(workers, num_envs)

    def publish(self, weights: Tree) -> Any:
        """Put the weights into Ray's object store, from which each node loads them once."""
        return self._ray.put(weights)


def ray_collector(
    algo: str, config: Any, env: EnvLike, actors: int, engine: EngineName = "auto", address: str | None = None
) -> RemoteCollector:
    """Return a collector that divides the config's environments among `actors` Ray actors of one core each."""
    _check(actors, config.num_envs)
    package = ray(address)
    options = {"num_cpus": 1, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": "SPREAD"}
    remote = package.remote(**options)(RayActor)
    made_of = package.put((algo, config, env, config.num_envs // actors, _engine(engine)))
    workers = [RayWorker(package, remote.remote([made_of])) for _ in range(actors)]
    return RayCollector(package, workers, config.num_envs, made_of)


def local_collector(algo: str, config: Any, env: EnvLike, workers: int, engine: EngineName = "auto") -> RemoteCollector:
    """Return a collector that runs the workers of `ray_collector` in this process, one after the other."""
    _check(workers, config.num_envs)
    made_of = (algo, config, env, config.num_envs // workers, _engine(engine))
    return RemoteCollector([LocalWorker(make_worker(*made_of)) for _ in range(workers)], config.num_envs)


def _engine(engine: EngineName) -> EngineName:
    """Resolve "auto" to gymnasium: EnvPool's simulators have no snapshots from which another actor could continue."""
    return "gymnasium" if engine == "auto" else engine


def _check(actors: int, num_envs: int) -> None:
    if actors < 1 or num_envs % actors:
        raise ConfigError(f"actors is {actors} and num_envs {num_envs}: num_envs must be a multiple of actors.")
