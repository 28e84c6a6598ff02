"""What a test needs: of the system, without which it is skipped with the line that installs it, and of time."""

import ctypes
import ctypes.util
import shutil
from collections.abc import Iterable
from typing import Any

import pytest


def _loads(library: str) -> bool:
    """Whether a shared library is installed and whole."""
    found = ctypes.util.find_library(library)
    try:
        return found is not None and ctypes.CDLL(found) is not None
    except OSError:
        return False


def _needs(there: bool, what: str, packages: str) -> pytest.MarkDecorator:
    reason = f"needs {what}: on Debian apt-get install {packages} (everything the tests need: make system-deps)"
    return pytest.mark.skipif(not there, reason=reason)


browser = _needs(
    shutil.which("chromium") is not None and shutil.which("chromedriver") is not None,
    *("a browser", "chromium chromium-driver"),
)
cxx_compiler = _needs(shutil.which("g++") is not None, "a C++ compiler for torch.compile", "g++")
offscreen_rendering = _needs(
    _loads("OSMesa"),
    *("OSMesa, which draws without a screen", "libosmesa6"),
)
git = _needs(shutil.which("git") is not None, "git", "git")


def all_but_first_slow(cases: Iterable[Any]) -> list[Any]:
    """Cases of one path, which take long in all: `make test` tries the first of them, `make test-slow` the others."""
    first, *others = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*first), *(pytest.param(*case, marks=pytest.mark.slow) for case in others)]
