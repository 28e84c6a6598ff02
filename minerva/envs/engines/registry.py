"""The engines by name: one line each. An engine is imported when it is asked for, or when `auto` looks for one."""

import importlib
from typing import TYPE_CHECKING, Literal

import torch

from minerva.config import checked
from minerva.envs.engine import Engine
from minerva.envs.ids import EnvLike

ENGINES = {
    "gymnasium": "minerva.envs.engines.gymnasium:GymnasiumEngine",
    "envpool": "minerva.envs.engines.envpool:EnvPoolEngine",
    "processes": "minerva.envs.engines.subprocesses:SubprocessEngine",
    "torch": "minerva.envs.engines.torch_tasks:TorchEngine",
}

FASTEST_FIRST = ("envpool", "gymnasium")
"""What `auto` chooses from."""

if TYPE_CHECKING:
    EngineName = str
else:
    EngineName = Literal[("auto", *ENGINES)]


def engine_class(name: str) -> type[Engine]:
    """Return the engine called `name`."""
    module, _, kind = ENGINES[name].partition(":")
    found: type[Engine] = getattr(importlib.import_module(module), kind)
    return found


def make_engine(
    env: EnvLike,
    num_envs: int,
    engine: EngineName = "auto",
    share: int = 1,
    device: torch.device | None = None,
) -> Engine:
    """Make `num_envs` copies of an environment, stepped by `engine`; `auto` is envpool where it works, or gymnasium.

    `processes` are gymnasium's in processes of their own, which may raise, hang or die. `share` engines divide the
    machine's cores among them. `device` is the learner's, where an engine that can simulates.
    """
    checked("engine", engine, EngineName)
    if engine == "auto":
        engine = next(name for name in FASTEST_FIRST if engine_class(name).unavailable_reason(env) is None)
    return engine_class(engine).make(env, num_envs, share, device or torch.device("cpu"))


def engine_like(trained: EngineName, env: EnvLike) -> tuple[EngineName, str | None]:
    """Return the engine that a policy was trained with; where it does not work, gymnasium and the reason."""
    reason = engine_class(trained).unavailable_reason(env)
    return (trained, None) if reason is None else ("gymnasium", reason)
