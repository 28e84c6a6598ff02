"""Many simulators, one learner: blocks of environments stepped by Ray actors.

An actor that dies, or whose node does, is started again by Ray, on another node if need be, and is sent the call that
it left unanswered once more. `Block.collect` is a function of what it is sent: the run goes on as if nothing had been.
What an actor is made of and what it is sent are kept here until its answer has come, not in Ray's hands alone.
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
"""To act, in an actor's life: enough that making it quick pays."""


def make_block(algo: str, config: Config, env: EnvLike, num_envs: int, engine: EngineName) -> ActorWorker:
    """A worker's part. What its agent holds is replaced with every order."""
    torch.set_num_threads(1)
    probe = make_engine(env, 1, engine)
    dimensions = probe.observation.size, probe.action.size
    probe.close()
    agent = agent_class(algo).from_config(*dimensions, config, seed=0, device="cpu")
    return ActorWorker(agent, env, num_envs, engine, CALLS)


class RayBlock:
    """The body of a Ray actor."""

    def __init__(self, made_of: Sequence[Any]) -> None:
        """A reference in a list, which Ray hands over as it is and does not have to find again at a restart."""
        import ray as package

        self.block = make_block(*package.get(made_of[0]))

    def call(self, name: str, *arguments: Any) -> Any:
        """A method of the block. Weights come as a reference, so that a node fetches them once for all its actors."""
        import ray as package

        if name == "collect":
            order = arguments[0]
            arguments = (order._replace(weights=package.get(order.weights)),)
        return getattr(self.block, name)(*arguments)

    def process(self) -> int:
        """The number of the actor's process."""
        return os.getpid()


class RayWorker:
    """A worker in a Ray actor."""

    def __init__(self, package: Any, handle: Any) -> None:
        self.ray, self.handle = package, handle

    def begin(self, name: str, *arguments: Any) -> Any:
        """See `Worker`. Arguments are kept until the result is here: it may be lost with a node, and made again."""
        kept = [self.ray.put(argument) for argument in arguments]
        return self.handle.call.remote(name, *kept), kept

    def result(self, begun: Any) -> Any:
        """See `Worker`."""
        reference, _kept = begun
        return self.ray.get(reference)

    def close(self) -> None:
        """See `Worker`."""
        self.ray.kill(self.handle)


class RayBlocks(RemoteCollector):
    """RemoteCollector whose workers are Ray actors."""

    def __init__(self, package: Any, workers: Sequence[Worker], num_envs: int, made_of: Any) -> None:
        """`made_of` is the reference that actors are made from, also those that replace others."""
        self._ray, self._made_of = package, made_of
        super().__init__(workers, num_envs)

    def publish(self, weights: Tree) -> Any:
        """Put the weights into Ray's store, where each node gets them once."""
        return self._ray.put(weights)


def ray_blocks(
    algo: str, config: Any, env: EnvLike, actors: int, engine: EngineName = "auto", address: str | None = None
) -> RemoteCollector:
    """The environments of a config, in the hands of so many Ray actors of one core each."""
    _check(actors, config.num_envs)
    package = ray(address)
    options = {"num_cpus": 1, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": "SPREAD"}
    remote = package.remote(**options)(RayBlock)
    made_of = package.put((algo, config, env, config.num_envs // actors, _engine(engine)))
    workers = [RayWorker(package, remote.remote([made_of])) for _ in range(actors)]
    return RayBlocks(package, workers, config.num_envs, made_of)


def local_blocks(algo: str, config: Any, env: EnvLike, blocks: int, engine: EngineName = "auto") -> RemoteCollector:
    """The same blocks in this process, one after the other: what actors collect, without them."""
    _check(blocks, config.num_envs)
    made_of = (algo, config, env, config.num_envs // blocks, _engine(engine))
    return RemoteCollector([LocalWorker(make_block(*made_of)) for _ in range(blocks)], config.num_envs)


def _engine(engine: EngineName) -> EngineName:
    """EnvPool only if it is asked for: its simulators have no snapshots that another actor could go on from."""
    return "gymnasium" if engine == "auto" else engine


def _check(actors: int, num_envs: int) -> None:
    if actors < 1 or num_envs % actors:
        raise ConfigError(f"actors is {actors} and num_envs {num_envs}: num_envs must be a multiple of actors.")
