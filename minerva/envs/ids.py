"""Make environments from what the user gives: ids, ids with arguments, callables or instances."""

import contextlib
import copy
import importlib
import importlib.util
import inspect
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import ENV_ID_RE, find_highest_version, get_env_id, parse_env_id
from gymnasium.wrappers import TimeLimit

from minerva.config import nearest
from minerva.envs.games import ATARI, TRAINING_ONLY, register_games
from minerva.envs.pixels import PIXELS, prepare_drawing, register_pixels
from minerva.errors import EnvError, pip_install


@dataclass(frozen=True)
class Task:
    """An environment id, with arguments for `gymnasium.make`."""

    id: str
    kwargs: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.id} ({', '.join(f'{name}={value!r}' for name, value in self.kwargs.items())})"


VectorEnv = gym.vector.VectorEnv
EnvLike = str | Task | Callable[[], gym.Env[Any, Any]] | gym.Env[Any, Any] | VectorEnv[Any, Any, Any]
EnvFactory = Callable[[], gym.Env[Any, Any]]

DM_CONTROL = "dm_control/"

_made: weakref.WeakValueDictionary[int, gym.Env[Any, Any]] = weakref.WeakValueDictionary()
"""Environments returned by functions given as environments, to detect one that returns the same object again."""


def is_dm_control(env: EnvLike) -> bool:
    """Return whether `env` is the id of a dm_control task, whose rewards already lie in [0, 1]."""
    written = env.id if isinstance(env, Task) else env
    return isinstance(written, str) and written.startswith(DM_CONTROL)


def as_evaluated(env: EnvLike) -> EnvLike:
    """Return the environment without the arguments that are meant for training alone."""
    if not isinstance(env, Task) or not env.id.startswith(ATARI):
        return env
    kwargs = {name: value for name, value in env.kwargs.items() if name not in TRAINING_ONLY}
    return Task(env.id, kwargs) if kwargs else env.id


def env_name(env: EnvLike) -> str:
    """Return the environment's name, for folders and messages."""
    if isinstance(env, str):
        return env
    if isinstance(env, Task):
        return env.id
    if isinstance(env, VectorEnv):
        specs: list[Any] = [env.spec, *(getattr(one, "spec", None) for one in getattr(env.unwrapped, "envs", ()))]
        return next((spec.id for spec in specs if hasattr(spec, "id")), type(env.unwrapped).__name__)
    if isinstance(env, gym.Env):
        return env.spec.id if env.spec else type(env.unwrapped).__name__
    return getattr(env, "__name__", type(env).__name__)


def factory(env: EnvLike, /, **options: Any) -> EnvFactory:
    """Return a function that makes a new copy of the environment at each call; `options` go to `gymnasium.make`."""
    if isinstance(env, str):
        env_id = _gymnasium_id(env)
        own = own_callable(env)
        if own is not None:
            return lambda: _call_own(own, options)
        return lambda: _make(env, env_id, **options)
    if isinstance(env, Task):
        return _with_arguments(env, **options)
    if isinstance(env, gym.Env):
        return _copies_of(env)
    if callable(env):
        return lambda: _call(env)
    raise EnvError(
        f"The environment is a {type(env).__name__}: give an id such as 'Pendulum-v1', a function that makes "
        "an environment, or a gymnasium environment."
    )


def full_id(env: str) -> str:
    """Return an id that lacks its version with the newest, as gymnasium would take it; any other id as it is."""
    if env.startswith(DM_CONTROL) or ":" in env or not ENV_ID_RE.fullmatch(env):
        return env
    register_games(env)
    namespace, name, version = parse_env_id(env)
    newest = find_highest_version(namespace, name) if version is None and env not in gym.registry else None
    return env if newest is None else get_env_id(namespace, name, newest)


def known_ids() -> list[str]:
    """Return every registered id in its newest version, dm_control's in Minerva's spelling."""
    by_version = sorted(gym.registry.values(), key=lambda spec: spec.version or 0)
    newest = {
        (spec.namespace, spec.name): spec.id for spec in by_version
    }  # old versions may be registered but unusable
    names = [name for name in newest.values() if not name.startswith((DM_CONTROL, "GymV"))]
    return names + [f"{DM_CONTROL}{domain}/{task}" for domain, task in _dm_control_tasks()]


def check_id(env_id: str) -> None:
    """Raise EnvError with the nearest ids if there is no environment of this id. No environment is made."""
    module, _, name = _gymnasium_id(env_id).rpartition(":")
    if own_callable(env_id) is not None:
        return
    with _env_errors(env_id):
        if module:
            importlib.import_module(module)  # importing it registers the environment
        try:
            gym.spec(name)
        except gym.error.DeprecatedEnv:
            raise
        except gym.error.Error:  # no version, or a module without such an environment
            raise gym.error.NameNotFound from None


def own_callable(env_id: str) -> Callable[..., Any] | None:
    """Return the environment's class or the function that `module:name` names; None if the name is registered."""
    module, _, name = env_id.rpartition(":")
    if not module:
        return None
    with _env_errors(env_id):
        try:
            found = getattr(importlib.import_module(module), name, None)
        except ModuleNotFoundError as error:
            if error.name != module.partition(".")[0]:
                raise
            raise EnvError(
                f"{env_id} is of the module {module!r}, and none of that name can be imported: start in its folder and "
                f"name it with --env {env_id}, or install it."
            ) from None
    by_class = isinstance(found, type) and hasattr(found, "step")  # of gym too, which is answered when it is made
    return found if name not in gym.registry and (by_class or inspect.isfunction(found)) else None


def _call_own(make: Callable[..., Any], options: Mapping[str, Any]) -> gym.Env[Any, Any]:
    """Make an environment of a user's class or function; the render mode is passed to those that take one."""
    given = dict(options)
    limit = given.pop("max_episode_steps", None)
    if "render_mode" in given and "render_mode" not in inspect.signature(make).parameters:
        del given["render_mode"]
    env = _call(lambda: make(**given))
    return env if limit is None else TimeLimit(env, limit)


def _gymnasium_id(env_id: str) -> str:
    """Return gymnasium's id for the id that the user wrote."""
    register_games(env_id)
    if not env_id.startswith(DM_CONTROL):
        if env_id.count(":") > 1 or not ENV_ID_RE.fullmatch(env_id.rpartition(":")[2]):
            close = nearest(env_id, known_ids())
            raise EnvError(f"{env_id!r} is not an environment id: write one such as Pendulum-v1. {close}")
        return env_id
    if env_id.endswith(PIXELS):
        prepare_drawing()
        return register_pixels(_gymnasium_id(env_id.removesuffix(PIXELS)))
    parts = env_id.split("/")
    if len(parts) != 3 or not all(parts):
        close = nearest(env_id.removesuffix("-v0").replace("-", "/"), known_ids())
        raise EnvError(f"{env_id} does not name a dm_control task: write dm_control/<domain>/<task>. {close}")
    tasks = _dm_control_tasks()
    if not tasks:
        raise EnvError(f"{env_id} needs dm_control, which is not installed: {pip_install('dm-control')}.")
    if (parts[1], parts[2]) not in tasks:
        raise EnvError(f"{env_id} is not a task of dm_control. {nearest(env_id, known_ids())}")
    return f"{DM_CONTROL}{parts[1]}-{parts[2]}-v0"


def _dm_control_tasks() -> list[tuple[str, str]]:
    """Return (domain, task) of every task of the dm_control suite; an empty list if it is not installed."""
    if importlib.util.find_spec("dm_control") is None or importlib.util.find_spec("shimmy") is None:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without a display, importing dm_control warns that it cannot open a window
        import shimmy  # noqa: F401  importing it registers the tasks with gymnasium
        from dm_control import suite
    return list(suite.ALL_TASKS)


def _make(written: str, env_id: str, /, **options: Any) -> gym.Env[Any, Any]:
    if is_dm_control(written):  # lqr draws its springs when it is made: all copies in all runs must get equal ones
        options["task_kwargs"] = {"random": 0, **options.get("task_kwargs", {})}
    with _env_errors(written):
        return gym.make(env_id, **options)


def _with_arguments(task: Task, /, **options: Any) -> EnvFactory:
    make = factory(task.id, **{**task.kwargs, **options})

    def make_or_refuse() -> gym.Env[Any, Any]:
        try:
            return make()
        except (TypeError, ValueError, AssertionError) as error:
            if isinstance(error, EnvError):
                raise
            raise EnvError(f"{task} could not be made: {_first_line(error)}. Give other arguments.") from None

    return make_or_refuse


@contextlib.contextmanager
def _env_errors(written: str) -> Iterator[None]:
    """Turn gymnasium's errors about an id into an EnvError that says what to write instead."""
    try:
        yield
    except (
        gym.error.NameNotFound,
        gym.error.NamespaceNotFound,
        gym.error.VersionNotFound,
        gym.error.UnregisteredEnv,
    ):
        module, _, name = written.rpartition(":")
        if module:
            close = nearest(name, known_ids())
            raise EnvError(
                f"{written} is not a known environment: {module!r} registers none of that id, and has no class or "
                f"function {name!r} that makes one.{f' {close}' if close.startswith('Did') else ''}"
            ) from None
        raise EnvError(f"{written} is not a known environment. {nearest(written, known_ids())}") from None
    except gym.error.DeprecatedEnv as error:
        raise EnvError(f"{written} is out of date: {error}") from None
    except gym.error.DependencyNotInstalled as error:
        if "gymnasium[box2d]" not in str(error):
            raise EnvError(f"{written} could not be made: {_first_line(error)}") from None
        raise EnvError(f"{written} needs Box2D, which is not installed: {pip_install('box2d')}.") from None
    except (gym.error.Error, ImportError) as error:
        raise EnvError(f"{written} could not be made: {_first_line(error)}") from None


def _call(make: Callable[[], Any]) -> gym.Env[Any, Any]:
    """Call a user's function and check that it returns a new environment."""
    before = dict(_made)  # what it makes by another such call is new
    env = make()
    if not isinstance(env, gym.Env):
        raise EnvError(
            f"The function given as environment returned a {type(env).__name__}: it must return a gymnasium.Env; "
            "shimmy.GymV21CompatibilityV0(env=env) makes one of an environment of gym."
        )
    if before.get(id(env.unwrapped)) is env.unwrapped:
        raise EnvError(
            f"The function given as environment returned the same {env_name(env)} twice: it must make a new one at "
            "each call, for training and evaluation step theirs separately."
        )
    _made[id(env.unwrapped)] = env.unwrapped
    return env


def _copies_of(env: gym.Env[Any, Any]) -> EnvFactory:
    """Return a function that makes deep copies of an environment."""

    def make() -> gym.Env[Any, Any]:
        try:
            return copy.deepcopy(env)
        except Exception as error:  # deepcopy raises whatever the environment's parts raise
            raise EnvError(
                f"The environment {env_name(env)} cannot be copied ({_first_line(error)}), and training and evaluation "
                "need one each: give a function that makes it instead."
            ) from None

    return make


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
