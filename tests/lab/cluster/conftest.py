"""Every Ray that is started here has a secret of its own, and none is written to the user's home."""

import os
import secrets
from collections.abc import Iterator

import pytest
from rays import room_for_ray

# before Ray is imported, which reads them once
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  Ray spells it so


@pytest.fixture(scope="module", autouse=True)
def beside_other_rays(request: pytest.FixtureRequest) -> Iterator[None]:
    """A module that sets `ALONE` runs while no other worker has a Ray."""
    with room_for_ray(alone=getattr(request.module, "ALONE", False)):
        yield
