"""Environments that a person typed, as opposed to those that a file names."""

import sys
from pathlib import Path


def import_from_here(env: str | None) -> None:
    """Let the module of a typed `module:name` be found in the working directory, after all other places.

    An id that a file names never gets here: a run that somebody sent must not import what lies beside it. Nor does
    Python's -P allow it, with which Minerva starts the runs of a grid.
    """
    if env and ":" in env and not sys.flags.safe_path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
