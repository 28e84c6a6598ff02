"""What a run saves of its environment, and the environment made again from that.

An id is saved as it is, with its arguments. Anything else is saved with the sentence that says why it cannot be made
again: then a person has to give it.
"""

import hashlib
import inspect
import secrets
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from minerva.envs.ids import EnvLike, Task, env_name, full_id
from minerva.errors import EnvError

ID, KWARGS, MADE_BY = "env", "env_kwargs", "env_made_by"
"""Keys in a run's config and checkpoints: the name, the id's arguments, and what made it if not an id."""
KEYS = (ID, KWARGS, MADE_BY)

ADDED_BY_MAKE = (PassiveEnvChecker, OrderEnforcing, TimeLimit)
"""Wrappers that `gymnasium.make` adds by itself."""


class _NotFromAnIdError(Exception):
    """An environment that its id and plain arguments do not describe; the message says why."""


def with_kwargs(env_id: str, kwargs: Mapping[str, Any]) -> EnvLike:
    """Return the environment of this id with these arguments."""
    return Task(env_id, dict(kwargs)) if kwargs else env_id


# --- saving -----------------------------------------------------------------------------------------------------


def saved(env: EnvLike) -> dict[str, Any]:
    """Return what a run saves of its environment, under some of `KEYS`.

    What cannot be told from another environment gets a random mark, so that its run is never taken for another's.
    """
    try:
        kwargs = _kwargs(env)
    except _NotFromAnIdError as reason:
        return {ID: env_name(env), MADE_BY: str(reason)}
    return {ID: env_name(env), KWARGS: kwargs} if kwargs else {ID: env_name(env)}


def _kwargs(env: EnvLike) -> dict[str, Any]:
    """Return the arguments that make this environment from its id."""
    if isinstance(env, str):
        return {}
    if isinstance(env, Task):
        return {name: _plain(name, value) for name, value in env.kwargs.items()}
    if isinstance(env, gym.vector.VectorEnv):
        raise _NotFromAnIdError(f"a vector environment of the class {type(env.unwrapped).__name__}, {_mark()}")
    if not isinstance(env, gym.Env):
        raise _NotFromAnIdError(_function(env))
    registered = _registered(env)
    given: Any = env.unwrapped.spec
    changed = {
        name: value
        for name, value in given.kwargs.items()
        if name != "render_mode" and not (name in registered.kwargs and _equal(registered.kwargs[name], value))
    }
    limits: list[Any] = [one.spec for one in _wrappers(env) if type(one) is TimeLimit]
    limit = min((spec.max_episode_steps for spec in limits), default=None)
    if limit != registered.max_episode_steps:
        changed["max_episode_steps"] = -1 if limit is None else limit
    return {name: _plain(name, value) for name, value in changed.items()}


def _registered(env: gym.Env[Any, Any]) -> EnvSpec:
    """Return the registered spec that this object was made from, without changes but for arguments and time limit."""
    made = env.unwrapped.spec
    spec = gym.registry.get(made.id) if made else None
    if made is None or spec is None or made.entry_point != spec.entry_point:
        raise _NotFromAnIdError(f"an object of the class {type(env.unwrapped).__name__}, {_mark()}")
    extra = [type(one).__name__ for one in _wrappers(env) if type(one) not in ADDED_BY_MAKE]
    known = spec.additional_wrappers
    if env.spec is None or env.spec.additional_wrappers != known or len(extra) != len(known):
        raise _NotFromAnIdError(f"an object with the wrappers [{', '.join(extra)}], {_mark()}")
    return spec


def _wrappers(env: gym.Env[Any, Any]) -> Iterator[gym.Env[Any, Any]]:
    """Yield the wrappers around an environment, from the outermost."""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def _plain(name: str, value: Any) -> Any:
    """Return a value that a text file can hold, as it would be read from there."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is np.float64:
        return float(value)
    if type(value) in (list, tuple):
        return [_plain(name, part) for part in value]
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: _plain(name, part) for key, part in value.items()}
    raise _NotFromAnIdError(f"an object whose argument {name} is a {type(value).__name__}, {_mark()}")


def _equal(one: Any, other: Any) -> bool:
    return (one == other) is True  # an array compares to an array


def _function(make: Any) -> str:
    """Return a function's place in its module and the digest of its source; if it has none, a mark."""
    name = getattr(make, "__qualname__", "")
    found: Any = getattr(sys.modules.get(getattr(make, "__module__", None) or ""), name, None)
    if found is make:
        try:
            digest = hashlib.sha256(inspect.getsource(make).encode()).hexdigest()
            return f"the function {make.__module__}.{name}, of source {digest[:16]}"
        except (OSError, TypeError):  # typed at a prompt
            pass
    return f"a function without a name in a module, {_mark()}"


def _mark() -> str:
    return f"known to one training alone ({secrets.token_hex(8)})"


# --- making again -----------------------------------------------------------------------------------------------


def made_again(about: Mapping[str, Any], given: EnvLike | None = None, trust: bool = False) -> EnvLike:
    """Return the environment to use with what a run saved: `given` by a person, or else the saved one.

    A given id that equals the saved one has the saved arguments. Raise EnvError if the saved one cannot be made again,
    or if it names code that was not imported yet and the person does not `trust` it.
    """
    env_id, kwargs = about[ID], about.get(KWARGS) or {}
    given = full_id(given) if isinstance(given, str) else given
    if given is not None and not _equal(given, env_id):
        return given
    if not isinstance(env_id, str) or not isinstance(kwargs, dict) or not all(isinstance(name, str) for name in kwargs):
        raise EnvError(f"The environment {env_id!r} with arguments {kwargs!r} cannot be made: give another.")
    if given is None and MADE_BY in about:
        raise EnvError(
            f"{env_id} cannot be made again from the files of its run, for it was given as {about[MADE_BY]}: give it "
            "again, in Python as env=..., on the command line as --env module:Class, or --env with a registered id."
        )
    env = with_kwargs(env_id, kwargs)
    if given is None and not trust:
        refuse_unknown_code(env)
    return env


def refuse_unknown_code(env: EnvLike) -> None:
    """Raise EnvError if an environment that a file names would import a module that is not imported yet."""
    words = _texts([env.id, env.kwargs] if isinstance(env, Task) else env)
    modules = [word.rpartition(":")[0] for word in words if ":" in word]
    called = ":" in env_name(env) and env_name(env).rpartition(":")[2] not in gym.registry
    for module in modules:
        if module not in sys.modules or called:  # a function of any module could be named, with arguments of the file
            raise EnvError(
                f"{env} is named in a file, and making it would import and run the module {module!r}: if you trust "
                f"it, add --trust-env, or name it yourself with --env {env_name(env)} (in Python env=...)."
            )


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in nested lists and dicts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value.keys(), *value.values()])
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _texts(part)
