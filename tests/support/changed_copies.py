"""Changes to copies of the modules, for the tests of mathdoc."""

from typing import NamedTuple


class Change(NamedTuple):
    """A piece of a module's text and what stands in its place."""

    module: str
    old: str
    new: str
