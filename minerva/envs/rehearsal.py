"""Rehearse a resume: check that an environment restored from a snapshot takes the steps that the original takes.

A snapshot holds what can be read from an environment. State elsewhere, such as class attributes, mutable defaults,
attributes of functions or a generator of the module, it does not hold. Only steps show that, and they change such
state: so they are taken in a forked process, of which the run sees nothing but the verdict.
"""

import contextlib
import math
import os
import select
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from minerva.compute.seeding import global_generators, set_global_generators
from minerva.envs.pixels import Pictures
from minerva.envs.snapshot import Snapshots
from minerva.envs.spaces import Rows, specs

STEPS = 20
"""Steps before the snapshot; as many follow it, then a reset, and as many again."""
SECONDS = 0.5
"""Time after which no further environment is rehearsed; the first one always is."""
TIMEOUT = 20.0
"""Seconds after which the rehearsal counts as failed."""
TRIES = 3
"""Rehearsals after which an environment that raises or dies in them counts as failed."""
SIZE = 4096
"""Bytes of an answer, which a pipe takes at once."""


def rehearse(envs: Sequence[Snapshots], make: Callable[[], gym.Env[Any, Any]], generators: bool) -> str:
    """Return "", or why an environment restored from a snapshot is not the original.

    `make` makes a new environment to restore into. `generators` says whether a checkpoint holds the process-wide
    generators.
    """
    until = time.monotonic() + TIMEOUT
    for _ in range(TRIES):
        verdict, reason = _in_fork(lambda: _differing(envs, make, generators), until)
        if verdict:
            break
    return reason


def _differing(envs: Sequence[Snapshots], make: Callable[[], gym.Env[Any, Any]], generators: bool) -> str:
    until = time.monotonic() + SECONDS
    other = Snapshots(make())
    for number, original in enumerate(envs):
        try:
            same = _goes_on(original, other, number, generators)
        except BaseException as error:  # whatever an environment raises
            raise RuntimeError(
                f"environment {number} raised {type(error).__name__} in a rehearsal of a resume: {error}"
            ) from error
        if not same:
            return (
                f"environment {number} restored from a snapshot took other steps than the original: it has state "
                "outside its attributes, such as class attributes, or draws from a generator that is not its own"
            )
        if time.monotonic() > until:
            break
    return ""


def _goes_on(original: Snapshots, other: Snapshots, seed: int, generators: bool) -> bool:
    """Return whether another environment takes the steps of the original from a snapshot on."""
    original.env.reset(seed=seed)
    _steps(original.env)
    snapshot, drawn = original.take(), global_generators()
    expected = _future(original.env)
    other.env.reset(seed=0)  # an environment may create its parts at its first reset
    other.restore(snapshot)
    if generators:
        set_global_generators(drawn)
    return _future(other.env) == expected


def _future(env: gym.Env[Any, Any]) -> list[bytes]:
    """Return what an environment shows amid an episode, at the start of the next, and in it."""
    seen = _steps(env)
    first, _ = env.reset()
    return [*seen, np.asarray(first).tobytes(), *_steps(env)]


def _steps(env: gym.Env[Any, Any]) -> list[bytes]:
    """Take steps with actions that are always the same, through ends of episodes; return what is shown."""
    _, spec = specs(env)
    draw, seen = np.random.default_rng(0), []
    for _ in range(STEPS):
        possible = env.mask[None] if isinstance(env, Rows) else np.zeros((1, 0))
        action = spec.native(spec.to_environment(spec.random(possible, draw)[0]))
        obs, reward, terminated, truncated, _ = env.step(action)
        seen.append(np.asarray(obs).tobytes() + repr((reward, terminated, truncated)).encode())
        if terminated or truncated:
            seen.append(np.asarray(env.reset()[0]).tobytes())
    return seen


def _in_fork(function: Callable[[], str], until: float) -> tuple[bool, str]:
    """Return (True, what `function` returns in a copy of this process), or (False, why it returned nothing)."""
    ours, theirs = os.pipe()
    with warnings.catch_warnings():  # Python warns of threads: the copy waits for none, and is killed if it hangs
        warnings.simplefilter("ignore")
        process = os.fork()
    if process == 0:
        _answer(function, theirs)
    try:
        os.close(theirs)
        answered = bool(select.select([ours], [], [], max(until - time.monotonic(), 0))[0])
        answer = os.read(ours, SIZE).decode(errors="replace") if answered else ""
    finally:
        os.close(ours)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    silent = "a rehearsal of a resume died or gave no answer, as it does where an environment draws with OpenGL"
    return answer[:1] == "=", answer[1:] or ("" if answer else silent)


def _answer(function: Callable[[], str], pipe: int) -> None:
    """Write "=" and the result of `function`, or "!" and what it raised; end this process without cleaning up."""
    try:
        try:
            _isolate(pipe)
            text = "=" + function()
        except BaseException as error:  # whatever an environment raises
            text = f"!{error}"
        os.write(pipe, text.encode()[:SIZE])
    finally:  # also if the parent was killed and nobody reads: else the copy would go on training in its place
        os._exit(0)


def _isolate(pipe: int) -> None:
    """Let nothing but the pipe leave this process, not even the lock of the run's folder, and end it in any case."""
    Pictures.drawn = False
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent handles them
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(math.ceil(TIMEOUT))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for open_file in map(int, os.listdir("/dev/fd")):
        with contextlib.suppress(OSError):  # the folder that is listed is closed by now
            if open_file != pipe:
                os.dup2(nowhere, open_file)
