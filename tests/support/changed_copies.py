"""Changes to copies of the modules, for the tests of mathdoc."""

from collections.abc import Callable
from typing import NamedTuple

from mathdoc.check import Report

SmallChecked = Callable[..., Report]
"""The fixture `small`: the report on a package with one function."""


class Change(NamedTuple):
    """A piece of a module's text and what stands in its place."""

    module: str
    old: str
    new: str
