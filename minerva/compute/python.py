"""How another Python process is started: it imports what this one does, and nothing that lies in its folder."""

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

PYTHON = (sys.executable, "-P")
"""This interpreter; -P: the working directory is not a place to import from."""
PACKAGE = Path(__file__).parents[1]


def search_path() -> dict[str, str]:
    """Return this process's environment variables, with a PYTHONPATH of what it imports from: this package, first."""
    paths = [path for path in sys.path if path]  # "" is the working directory
    found = PathFinder.find_spec(PACKAGE.name, paths)
    if found is None or found.origin is None or Path(found.origin).parent != PACKAGE:
        paths.insert(0, str(PACKAGE.parent))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
