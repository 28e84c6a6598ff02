"""The registry of engines, one line each. An engine's module is imported when it is requested or tried by `auto`."""

import importlib
from typing import TYPE_CHECKING, Literal

from minerva.config import checked

ENGINES = {
    "gymnasium": "minerva.envs.engines.gymnasium:GymnasiumEngine",
    "envpool": "minerva.envs.engines.envpool:EnvPoolEngine",
    "processes": "minerva.envs.engines.subprocesses:SubprocessEngine",
    "vector": "minerva.envs.engines.vector:VectorEngine",
    "torch": "minerva.envs.engines.torch_tasks:TorchEngine",
    "warp": "minerva.envs.engines.warp:WarpEngine",
}

MANY_ENVS = ("warp",)
"""Engines for thousands of environments, from whose number other defaults follow (`Config.at_scale`)."""

FASTEST_FIRST = ("vector", "envpool", "gymnasium")
"""Engines that `auto` tries, in this order."""

if TYPE_CHECKING:  # the command line reads the names without PyTorch and gymnasium
    import torch

    from minerva.envs.engine import Engine
    from minerva.envs.ids import EnvLike

    EngineName = str
else:
    EngineName = Literal[("auto", *ENGINES)]


def engine_class(name: str) -> "type[Engine]":
    """Import and return the class of the engine called `name`."""
    module, _, kind = ENGINES[name].partition(":")
    found: type[Engine] = getattr(importlib.import_module(module), kind)
    return found


def make_engine(
    env: "EnvLike",
    num_envs: int,
    engine: EngineName = "auto",
    share: int = 1,
    device: "torch.device | None" = None,
) -> "Engine":
    """Make `num_envs` copies of an environment, stepped by `engine`; `auto` is envpool where it works, else gymnasium.

    A vector environment is stepped as it is, by the engine vector.

    `processes` steps gymnasium's environments in subprocesses, which may raise, hang or die. `share` engines share the
    machine's cores. `device` is the learner's: an engine that can simulate on it does.
    """
    import torch

    checked("engine", engine, EngineName)
    if engine == "auto":
        engine = next(name for name in FASTEST_FIRST if engine_class(name).unavailable_reason(env) is None)
    return engine_class(engine).make(env, num_envs, share, device or torch.device("cpu"))


def evaluating_engine(trained: EngineName) -> EngineName:
    """Return the engine that evaluates what the engine `trained` trains."""
    return engine_class(trained).evaluated_with or trained


def engine_like(trained: EngineName, env: "EnvLike") -> tuple[EngineName, str | None]:
    """Return (engine, None) for the engine a policy was trained with, or (gymnasium, reason) if that is unavailable."""
    trained = evaluating_engine(trained)
    reason = None if trained == "auto" else engine_class(trained).unavailable_reason(env)
    return (trained, None) if reason is None else ("gymnasium", reason)
