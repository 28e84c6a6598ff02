"""Consoles whose output may fail: a pipe that was closed, a terminal that is gone, a full disk, characters it lacks."""

import logging
import sys
from typing import Any

from rich.console import Console

logger = logging.getLogger("minerva")

SPELLINGS = {"±": "+/-"}
"""What to write instead of a character that the encoding lacks; a question mark for all others."""


class Output:
    """Standard output or error, whichever object that is at the moment.

    When it fails, a warning says so once, and what is written to it later is dropped: training matters more.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._failed: Any = None

    @property
    def stream(self) -> Any:
        """Return the stream itself, also where rich has put a proxy in its place; None if it is closed."""
        stream = getattr(sys, self.name)
        return getattr(stream, "rich_proxied_file", stream)

    @property
    def encoding(self) -> str:
        """Return its encoding, from which rich chooses the characters of bars."""
        return getattr(self.stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self.stream is not None and self.stream.isatty()

    def write(self, text: str) -> int:
        """Write a text, or drop it if the output has failed."""
        self._call("write", text if self._has(text) else "".join(map(self._spelled, text)))
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        self._call("flush")

    def _call(self, method: str, *arguments: str) -> None:
        stream = self.stream
        if stream is None or stream is self._failed:
            return
        try:
            getattr(stream, method)(*arguments)
        except (OSError, ValueError) as error:  # ValueError: it was closed
            self._failed = stream
            reason = getattr(error, "strerror", None) or error
            logger.warning("%s cannot be written to (%s): going on without it.", self.name, reason)

    def _has(self, text: str) -> bool:
        """Return whether the encoding has all these characters, or takes them as part of a file name."""
        names = getattr(self.stream, "errors", None) == "surrogateescape"
        try:
            text.encode(self.encoding, "surrogateescape" if names else "strict")
        except UnicodeEncodeError:
            return False
        return True

    def _spelled(self, character: str) -> str:
        return character if self._has(character) else SPELLINGS.get(character, "?")


OUTPUTS = {name: Output(name) for name in ("stdout", "stderr")}


def make_console(quiet: bool = False, stderr: bool = False) -> Console:
    """Return a console of standard output, or of standard error, that never raises because its output failed."""
    file: Any = OUTPUTS["stderr" if stderr else "stdout"]
    return Console(file=file, quiet=quiet, highlight=False)
