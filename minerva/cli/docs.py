"""`minerva docs`: check the formulas, build the site, serve it, write the results page, all from a git checkout."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

import tyro

from minerva.errors import ConfigError
from minerva.runs.signals import SIGNALS, exit_status

TOOL = Path("tools", "site", "make_site.py")


@dataclass(frozen=True)
class Docs:
    """Check every formula, build or serve the documentation, or write the results page. Needs a git checkout."""

    action: tyro.conf.Positional[Literal["check", "build", "serve", "results"]]
    """check: compare every formula with its line of code. build: write the site to build/site. serve: serve the site,
    building it if needed. results: write docs/results.md from the results and grids in benchmarks/."""
    port: int = 8000
    """Port to serve on."""

    def run(self) -> int:
        """Run the checkout's tool with the checkout's code. Return its exit status, or that of a signal."""
        root = _checkout()
        paths = [str(root), str(root / "packages" / "mathdoc"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, str(root / TOOL), self.action, "--port", str(self.port)]
        tool = subprocess.Popen(command, env=environment)
        received: list[int] = []

        def stop(number: int, frame: FrameType | None) -> None:
            received.append(number)
            tool.terminate()

        before = {number: signal.signal(number, stop) for number in SIGNALS}
        try:
            code = tool.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return code if code >= 0 else exit_status(received[0] if received else -code)


def _checkout() -> Path:
    """Return the checkout that contains the current directory, or the one that the package is installed from."""
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).parents[2]):
        if (folder / TOOL).is_file():
            return folder
    raise ConfigError(
        "The documentation is built from a git checkout of Minerva, and this folder is not in one; "
        "`python -m mathdoc check PACKAGE` checks the formulas of any package."
    )
