"""The built site, served, and a browser to read it with."""

import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing: the tests' own output is enough."""


@pytest.fixture(scope="session")
def site_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from a copy of what it is made of."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("minerva", "packages/mathdoc/mathdoc", "docs", "tools/site", "benchmarks/results", "benchmarks/grids"):
        shutil.copytree(REPOSITORY / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, root / name)
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "minerva", "docs", "build"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "build" / "site"


@pytest.fixture(scope="session")
def site(site_folder: Path) -> Iterator[str]:
    """Its address."""
    handler = functools.partial(_Quiet, directory=str(site_folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
