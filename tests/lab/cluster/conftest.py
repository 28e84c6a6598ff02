"""Every Ray that is started here has a secret of its own, and none is written to the user's home."""

import fcntl
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# before Ray is imported, which reads them once
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  Ray spells it so


@pytest.fixture(scope="module", autouse=True)
def beside_other_rays(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hold a lock that modules share, except one that sets `ALONE`: no other worker has a Ray while it runs."""
    alone = getattr(request.module, "ALONE", False)
    with (Path(tempfile.gettempdir()) / f"minerva_tests_ray_{os.getuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
