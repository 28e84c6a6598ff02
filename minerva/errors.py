"""Errors that a user can fix. Each message says what is wrong and how to fix it."""

import functools
import importlib.metadata
import os
import re
import shlex
import signal
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def printable(text: str) -> str:
    """Return text that a terminal shows as it is: escape sequences of a file's contents or name are spelled out."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def pip_install(extra: str) -> str:
    """Return the command that installs what an extra of Minerva adds; it works in any folder, for it names packages."""
    try:
        lines = importlib.metadata.requires("minerva") or []
    except importlib.metadata.PackageNotFoundError:
        lines = []
    parts = [line.replace("_", "-").partition(";") for line in lines]
    needed = [package.strip() for package, _, marker in parts if re.search(rf"extra == .{extra}.", marker)]
    return shlex.join(["pip", "install", *needed]) if needed else f"pip install -e '.[{extra}]'"


def with_short_traceback(function: Callable[P, T]) -> Callable[P, T]:
    """Let the traceback of a MinervaError end where `function` was called: the sentence says the rest.

    With the environment variable MINERVA_TRACEBACK set, it ends where the error was raised.
    """

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except MinervaError as error:
            if os.environ.get("MINERVA_TRACEBACK"):
                raise
            explained = error.with_traceback(None)  # its cause, such as an error of an environment, stays
        raise explained

    return call


class MinervaError(Exception):
    """Base of all errors that are caused by the input rather than by Minerva."""

    def __str__(self) -> str:
        return printable(super().__str__())


class SentenceError(MinervaError):
    """An error that is told in one line, whatever a value from a file holds that it quotes."""

    def __str__(self) -> str:
        return super().__str__().replace("\n", "\\n")


class ConfigError(SentenceError, ValueError):
    """An invalid hyperparameter or option."""


class EnvError(SentenceError, ValueError):
    """An environment that does not exist or cannot be trained on."""


class CheckpointError(SentenceError, ValueError):
    """A checkpoint that is damaged, not Minerva's, or made for another config or environment."""


class RunError(SentenceError, RuntimeError):
    """A run folder that cannot be written to or resumed."""


class TrainingError(MinervaError, RuntimeError):
    """Training that started and cannot continue: a non-finite loss, a full disk."""


class TerminatedError(SystemExit):
    """SIGTERM, as KeyboardInterrupt is SIGINT: raised once the checkpoint is written, and not an `Exception` either.

    A script that does not catch it ends with the signal's exit status.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.code = 128 + signal.SIGTERM


class EnvStepError(EnvError, TrainingError):
    """An environment that raised, or violated its spec, while it was stepped; the lines may be its own traceback."""

    __str__ = MinervaError.__str__
