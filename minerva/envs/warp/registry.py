"""The tasks that MuJoCo Warp can simulate, by the ids of gymnasium and dm_control, and a user's own."""

import functools
from collections.abc import Callable

import torch

from minerva.envs.ids import EnvLike, own_callable
from minerva.envs.warp.dm_control_tasks import DM_CONTROL
from minerva.envs.warp.gymnasium_tasks import GYMNASIUM
from minerva.envs.warp.own import MujocoTask
from minerva.envs.warp.task import Task


def task_names() -> list[str]:
    """Return the ids of all tasks of gymnasium and dm_control that are here."""
    return [*GYMNASIUM, *DM_CONTROL]


def own_task(env: EnvLike) -> type[MujocoTask] | None:
    """Return the class of a user's task, given itself or as `module:Class`; None for anything else."""
    found = own_callable(env) if isinstance(env, str) else env
    return found if isinstance(found, type) and issubclass(found, MujocoTask) else None


def has_task(env: EnvLike) -> bool:
    """Return whether there is such a task."""
    return own_task(env) is not None or (isinstance(env, str) and env in (*GYMNASIUM, *DM_CONTROL))


def make_task(env: EnvLike, device: torch.device) -> Task:
    """Make the task of this id, with its constants on `device`."""
    own = own_task(env)
    if own is not None:
        return own(device=device)
    return _known_task(str(env), device)


@functools.lru_cache(maxsize=1)
def _known_task(env_id: str, device: torch.device) -> Task:
    """Make a task once for all engines of a run: drawing dm_control's starts takes up to nine seconds."""
    known: dict[str, Callable[[str, torch.device], Task]] = {**GYMNASIUM, **DM_CONTROL}
    return known[env_id](env_id, device)
